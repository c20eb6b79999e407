"""The record of a plugin's run, from its exit code and output."""

from __future__ import annotations

import pytest

from sam_pipeline.publisher.probe.plugin import PluginRun, record_of
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import normalise
from tests.support.builders import NOW, metric_message, metric_result


def test_the_record_has_the_start_time_of_the_plugin() -> None:
    record = record_of(PluginRun(NOW, 0, b"fine"), "check_it")

    assert record["timestamp"] == "2026-11-20T12:30:00Z"


def test_the_output_of_a_failed_plugin_is_in_the_details() -> None:
    record = record_of(PluginRun(NOW, 9, b"some words\nmore", "ended badly"), "check_it")

    assert record["detailsData"] == "some words\nmore"


@pytest.mark.parametrize(
    "output", [b"", b"\n \n", b"\r\n", b"\0", b"|", b"\xef\xbb\xbf", b"x" * 2000 + b"\r\n|y\0"]
)
def test_any_output_makes_a_record_that_can_be_sent(output: bytes) -> None:
    record = {**metric_result(), **record_of(PluginRun(NOW, 1, output), "check_it")}

    [sent] = normalise(record, "metricOutput", {}, NOW)

    [received] = decode(metric_message(sent), METRIC_OUTPUT.keys, NOW).rows
    assert received.values["metricStatus"] == "WARNING"
    assert received.values["summaryData"]


def test_performance_data_of_all_lines_is_one_list() -> None:
    output = b"DISK OK | /=10%;80;90\n/ is fine\n/var too | /var=2%\n'/my disk'=7%\n"

    record = record_of(PluginRun(NOW, 0, output), "check_disk")

    assert record["summaryData"] == "DISK OK"
    assert record["detailsData"] == "/ is fine\n/var too"
    assert record["performanceData"] == "/=10%;80;90 /var=2% '/my disk'=7%"
