"""The record of a plugin's run, from its exit code and output."""

from __future__ import annotations

import pytest

from sam_pipeline.publisher.probe.plugin import MAX_OUTPUT_BYTES, PluginRun, record_of
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import normalise
from tests.support.builders import NOW, metric_message, metric_result


@pytest.mark.parametrize(
    ("output", "summary", "stem"),
    [
        (b"CRIT caf\xe9\n", "CRIT caf\ufffd", "not UTF-8"),
        (b"CRIT a\0b\n", "CRIT a\ufffdb", "NUL"),
        (b"CRIT | a=1\n" + b"caf\xc3\xa9 " * MAX_OUTPUT_BYTES, "CRIT", "wrote more than"),
        (b"CRIT " + b"x" * MAX_OUTPUT_BYTES, "CRIT", "wrote more than"),
    ],
)
def test_the_status_does_not_depend_on_the_output(output: bytes, summary: str, stem: str) -> None:
    record, [warning] = record_of(PluginRun(NOW, 2, output), "check_it")

    assert (record["metricStatus"], record["summaryData"]) == ("CRITICAL", summary)
    assert stem in warning


def test_output_that_is_too_long_is_cut_between_words_and_characters_with_a_note() -> None:
    words = b"OK | " + b"load=12345 " * (MAX_OUTPUT_BYTES // 11 + 1)
    characters = b"x" + "é".encode() * MAX_OUTPUT_BYTES

    of_words, _ = record_of(PluginRun(NOW, 0, words), "check_it")
    of_characters, _ = record_of(PluginRun(NOW, 0, characters), "check_it")

    assert set(of_words["performanceData"].split()) == {"load=12345"}
    assert f"check_it wrote more than {MAX_OUTPUT_BYTES} bytes]" in of_words["detailsData"]
    assert set(of_characters["summaryData"]) == {"x", "é"}


def test_standard_error_is_recorded_only_without_output() -> None:
    errors = b"\nTraceback (most recent call last):\n  oh | no\nValueError: 7\n"

    alone, _ = record_of(PluginRun(NOW, 1, b" \n", errors), "check_it")
    beside, warnings = record_of(PluginRun(NOW, 0, b"fine\n", b"noise \xff"), "check_it")

    assert alone["metricStatus"] == "WARNING"
    assert alone["summaryData"] == "Traceback (most recent call last):"
    assert (alone["detailsData"], alone["performanceData"]) == (errors.decode().strip(), "")
    assert (beside["summaryData"], beside["detailsData"], warnings) == ("fine", "", [])


@pytest.mark.parametrize(
    "output", [b"", b"\n \n", b"\r\n", b"\0", b"|", b"\xef\xbb\xbf", b"x" * 2000 + b"\r\n|y\0"]
)
def test_any_output_makes_a_record_that_can_be_sent(output: bytes) -> None:
    record = {**metric_result(), **record_of(PluginRun(NOW, 1, output), "check_it")[0]}

    [sent] = normalise(record, "metricOutput", {}, NOW)

    [received] = decode(metric_message(sent), METRIC_OUTPUT.keys, NOW).rows
    assert received.values["metricStatus"] == "WARNING"
    assert received.values["summaryData"]
