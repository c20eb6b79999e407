"""Passive check results as records of metricOutput, and the lines in which Nagios reads them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.check_result import (
    COMMANDS,
    Naming,
    record_of_result,
    result_of_command,
)

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


@pytest.mark.parametrize(
    ("code", "status"), [("0", "OK"), ("1", "CRITICAL"), ("2", "UNKNOWN"), ("DOWN", "CRITICAL")]
)
def test_the_state_of_a_host_is_up_down_or_unreachable(code: str, status: str) -> None:
    record = record_of(f"[1795176000] {HOST};ce01.example.org;{code};DOWN", Naming("CE", "org."))

    assert record["metricStatus"] == status
    assert (record["serviceFlavour"], record["metricName"]) == ("Host", "org.Host-Check")


OTHER_LINES = (
    *("", "garbage", f"{SERVICE};a;b;0;OK", f"[] {SERVICE};a;b;0;OK", f"[-1] {SERVICE};a;b;0;OK"),
    *(f"[1795176000] {SERVICE}", f"[1795176000] {SERVICE};a;b", f"[1795176000] {HOST};a"),
    *("[1795176000] SHUTDOWN_PROGRAM", f"[1795176000] {SERVICE.lower()};a;b;0;OK"),
)


@pytest.mark.parametrize("line", OTHER_LINES)
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(RecordRefused) as raised:
        result_of_command(line)

    assert raised.value.reason == "no-command"


def test_the_output_may_be_missing_and_a_prefix_alone_is_not_the_name_of_a_metric() -> None:
    assert record_of(f"[1795176000] {SERVICE};a;b;0")["summaryData"] == ""
    assert record_of(f"[1795176000] {SERVICE};ce01;;0;OK", Naming("CE", "org."))["metricName"] == ""


FIELD = st.text(st.characters(exclude_characters=";", exclude_categories=["Cs"]))


@given(FIELD, FIELD, FIELD, st.text())
def test_every_field_is_what_lies_between_two_semicolons(
    host: str, service: str, state: str, output: str
) -> None:
    result = result_of_command(f"[1795176000] {SERVICE};{host};{service};{state};{output}")

    assert (result["hostname"], result["servicename"]) == (host, service)
    assert (result["state"], result["output"]) == (state, output)


@given(st.text() | st.text("[]0;1 ABCDEFGHIJKLMNOPQRSTUVWXYZ_|\\n"))
def test_whatever_a_line_contains_it_is_a_record_or_refused(line: str) -> None:
    try:
        record = record_of(line)
    except RecordRefused as refusal:
        assert refusal.reason == "no-command"
    else:
        assert record["serviceFlavour"] in ("Host", "Service")
