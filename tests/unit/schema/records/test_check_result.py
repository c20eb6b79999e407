"""Passive check results: commands of Nagios, documents of NRDP, and the output of plugins."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.passive import (
    COMMANDS,
    Naming,
    UnreadableResults,
    record_of_result,
    result_of_command,
    results_in_json,
    results_in_xml,
)
from sam_pipeline.schema.records.plugin_output import Output, measured, split_output

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SERVICE, HOST = COMMANDS


def record_of(line: str, naming: Naming = Naming()) -> dict[str, str]:  # noqa: B008
    return record_of_result(result_of_command(line), naming, NOW)


def test_a_result_of_a_service_becomes_a_metric_result() -> None:
    line = rf"[1795176000] {SERVICE};ce01.example.org;CE-Ping;1;SLOW; 3 s|rtt=3s;1;5\nC:\\temp"

    assert record_of(line, Naming("CE", "org.example.")) == {
        "hostName": "ce01.example.org",
        "serviceFlavour": "CE",
        "metricName": "org.example.CE-Ping",
        "metricStatus": "1",
        "timestamp": "1795176000",
        "summaryData": "SLOW; 3 s",
        "performanceData": "rtt=3s;1;5",
        "detailsData": "C:\\temp",
    }
    # The output may be missing, and a prefix alone is not the name of a metric.
    assert record_of(f"[1795176000] {SERVICE};a;b;0")["summaryData"] == ""
    assert record_of(f"[1795176000] {SERVICE};ce01;;0;OK", Naming("CE", "org."))["metricName"] == ""


OTHER_LINES = (
    *("", "garbage", f"{SERVICE};a;b;0;OK", f"[] {SERVICE};a;b;0;OK", f"[-1] {SERVICE};a;b;0;OK"),
    *(f"[1795176000] {SERVICE}", f"[1795176000] {SERVICE};a;b", f"[1795176000] {HOST};a"),
    *("[1795176000] SHUTDOWN_PROGRAM", f"[1795176000] {SERVICE.lower()};a;b;0;OK"),
)


def test_other_lines_are_refused() -> None:
    for line in OTHER_LINES:
        with pytest.raises(RecordRefused) as raised:
            result_of_command(line)
        assert raised.value.reason == "no-command"


BOMB = """<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>
<checkresults><checkresult><output>&b;</output></checkresult></checkresults>"""


def xml_of(content: str) -> str:
    return f"<checkresults><checkresult type='service'>{content}</checkresult></checkresults>"


NO_DOCUMENTS: tuple[str | bytes, ...] = (
    *(BOMB, '<!DOCTYPE a SYSTEM "file:///etc/passwd"><checkresults/>', "", b"\xff\xfe"),
    *("<checkresults>&a;</checkresults>", "<checkresult/>", "<checkresults>"),
    "<checkresults/><checkresults/>",
    *(b'<?xml version="1.0" encoding="%s"?><checkresults/>' % name for name in (b"x", b"utf-7")),
)


def test_document_types_and_malformed_documents_are_refused() -> None:
    for xml in NO_DOCUMENTS:
        with pytest.raises(UnreadableResults):
            results_in_xml(xml)
    # An error has its line.
    with pytest.raises(UnreadableResults) as in_xml:
        results_in_xml("<checkresults>\n<checkresult>\n</checkresults>")
    with pytest.raises(UnreadableResults) as in_json:
        results_in_json('{"checkresults":\n[{},}]}')
    assert (in_xml.value.line, in_json.value.line) == (3, 2)


def test_a_long_text_takes_no_quadratic_time() -> None:
    text = "&amp;<!-- -->" * 200_000
    assert results_in_xml(xml_of(f"<output>{text}</output>"))[0]["output"] == "&" * 200_000


VALUES = {
    "time=0.1s;;;0.000 size=20B;;;0": [("time", "0.1", "s"), ("size", "20", "B")],
    "load1=0.26;5;10;0;": [("load1", "0.26", "")],
    "a=5;10:20;@10:20;~:5;0:": [("a", "5", "")],
    "a=-1.5e3c \t b=+2": [("a", "-1.5e3", "c"), ("b", "+2", "")],
    "a=.5 b=5.": [("a", ".5", ""), ("b", "5.", "")],
    "'my disk'=9%;80;90": [("my disk", "9", "%")],
    "'a  b'=1 c=2": [("a  b", "1", ""), ("c", "2", "")],
    "'a=b'=1 'it''s'=2": [("a=b", "1", ""), ("it's", "2", "")],
    "'''quoted'''=1": [("'quoted'", "1", "")],
    "a=1EB temp=1°C": [("a", "1", "EB"), ("temp", "1", "°C")],
    "t=3,26s;;;0,0 b=13ms,": [("t", "3.26", "s"), ("b", "13", "ms")],
}


@pytest.mark.parametrize("written", VALUES)
def test_items_have_values_with_units(written: str) -> None:
    output = split_output(f"OK - fine |{written}\n")
    assert output == Output("OK - fine", "", written.replace(" \t ", " "))
    assert [tuple(value) for value in measured(written)] == VALUES[written]


JUNK = (
    *("a=U", "a=U;1;2", "a=", "=1", "a", "'open=1", "a=1=2", "a=x", "a='1'", "a=nan", "a=inf"),
    *("a=1.2.3", "a=1,500,300", "a=--1", "a=1e9999", "a=0x10", "''=1", f"a={'9' * 401}"),
    *("a=1٣", "a=٣"),
)


@pytest.mark.parametrize("junk", JUNK)
def test_an_item_without_a_value_is_kept_and_skipped_and_the_others_are_read(junk: str) -> None:
    text = f"before=1 {junk}  'the last'=2"
    assert split_output(f"OK | {text}") == Output("OK", "", text.replace("  ", " "))
    assert [(*value,) for value in measured(text)] == [("before", "1", ""), ("the last", "2", "")]


@pytest.mark.parametrize("piece", ["'", "'' ", "'a", "=1", "9", "a=9,", "' ''"])
def test_a_lot_of_junk_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    list(measured(f"{piece * 100_000} a={piece * 100_000}"))
    split_output(f"OK | {piece * 100_000}\n|{piece * 100_000}=")
    assert time.process_time() - started < 10
