"""Normalising the values of a record."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import CLOCK, DAY, MOMENT, Limits, normalise
from sam_pipeline.schema.records.text import Record
from sam_pipeline.schema.times import parse_time
from tests.support.builders import NOW, metric_message, metric_result


def row(record: Record, class_name: str = "metricOutput", **headers: str) -> Record:
    [only] = normalise(record, class_name, headers, NOW)
    return only


def refusal(record: Record, class_name: str = "metricOutput") -> str:
    with pytest.raises(RecordRefused) as caught:
        normalise(record, class_name, {}, NOW)
    return caught.value.reason


@pytest.mark.parametrize(
    ("wild", "status"),
    [("ok", "OK"), ("Warning", "WARNING"), ("2", "CRITICAL"), ("3", "UNKNOWN")],
)
def test_a_status_is_a_word_in_any_case_or_a_plugins_exit_code(wild: str, status: str) -> None:
    assert row(metric_result(metricStatus=wild))["metricStatus"] == status


@pytest.mark.parametrize("status", ["4", "-1", "UP", "0K", "DOWNTIME"])
def test_any_other_status_is_refused(status: str) -> None:
    assert refusal(metric_result(metricStatus=status)) == "bad-status"


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T12:00:00Z",
        "2026-11-20T12:00:00",
        "2026-11-20 12:00:00.999",
        "2026-11-20T14:30:00+02:30",
        "1795176000",
    ],
)
def test_a_time_becomes_utc_whole_seconds(text: str) -> None:
    assert row(metric_result(timestamp=text))["timestamp"] == "2026-11-20T12:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        "now",
        "infinity",
        "2026-11-20T24:00:00Z",
        "2026-11-20T23:59:60Z",
        "20/11/2026",
        "2026-02-30T00:00:00Z",
        "2026-11-20T12:00:00+25:00",
        "٢٠٢٦-11-20T12:00:00Z",
        "2026-11-20",
        "1795176000000",
    ],
)
def test_anything_else_is_not_a_time(text: str) -> None:
    assert refusal(metric_result(timestamp=text)) == "bad-time"


def test_results_that_are_too_old_or_in_the_future_are_refused_with_a_reason() -> None:
    assert refusal(metric_result(timestamp="2016-01-01T00:00:00Z")) == "too-old"
    assert refusal(metric_result(timestamp="2026-11-22T12:00:00Z")) == "in-the-future"
    with pytest.raises(RecordRefused, match="0 days old"):
        normalise(metric_result(), "metricOutput", {}, NOW, Limits(past=timedelta(minutes=1)))


def test_the_host_is_the_host_part_of_the_uri_lower_case_without_a_final_dot() -> None:
    from_uri = metric_result(serviceURI="https://CE09.Example.org:8443/cream", hostName="x")

    assert row(from_uri)["hostName"] == "ce09.example.org"
    assert row(metric_result(hostName="CE01.Example.ORG."))["hostName"] == "ce01.example.org"
    assert row(metric_result(serviceURI="srm://[2001:db8::1]:80/x"))["hostName"] == "2001:db8::1"


@pytest.mark.parametrize(
    "host", ["<script>", "=cmd()", "a" * 254, "a" + "." * 300, "ce 01", "bücher.example"]
)
def test_a_bad_host_name_is_refused(host: str) -> None:
    assert refusal(metric_result(hostName=host)) == "bad-host"


def test_a_comma_list_of_flavours_is_one_row_each() -> None:
    rows = normalise(metric_result(serviceFlavour="CE, ARC-CE ,CE,"), "metricOutput", {}, NOW)

    assert [item["serviceFlavour"] for item in rows] == ["CE", "ARC-CE"]


def test_the_flavour_may_come_from_the_service_type() -> None:
    assert row(metric_result(serviceFlavour=None, serviceType="SE"))["serviceFlavour"] == "SE"


def test_the_monitoring_host_comes_from_the_key_the_header_or_gathered_at() -> None:
    record = metric_result()

    assert row(record | {"monitoringHost": "m"}, nagios_host="n")["monitoringHost"] == "m"
    assert row(record, nagiosHost="n")["monitoringHost"] == "n"
    assert row(record)["monitoringHost"] == "wn17.example.org"


@pytest.mark.parametrize("key", METRIC_OUTPUT.required)
def test_a_missing_required_key_is_reported(key: str) -> None:
    assert refusal(metric_result(**{key: None})) == "missing-key"
    assert refusal(metric_result(**{key: " "})) == "missing-key"


def test_control_characters_are_allowed_in_texts_but_not_in_names() -> None:
    assert refusal(metric_result(metricName="a\x07b")) == "control-character"
    assert row(metric_result(summaryData="a\x1bb"))["summaryData"] == "a\x1bb"


def test_a_downtime_names_a_host_or_a_site() -> None:
    downtime = {
        "startTime": "2026-11-20T00:00:00Z",
        "endTime": "2026-11-21T00:00:00Z",
        "classification": "SCHEDULED",
        "severity": "OUTAGE",
    }

    assert refusal(downtime, "downtime") == "missing-key"
    assert row(downtime | {"siteName": "A"}, "downtime")["siteName"] == "A"


def test_only_the_times_of_a_custom_class_are_normalised() -> None:
    record = {"uuid": " x ", "TIMESTAMP": "0", "metricStatus": "whatever", "empty": ""}

    assert row(record, "environment") == {
        "uuid": "x",
        "TIMESTAMP": "1970-01-01T00:00:00Z",
        "metricStatus": "whatever",
    }


TIMES = {"seen": MOMENT, "day": DAY, "clock": CLOCK}


def test_columns_of_a_time_type_hold_times_in_one_form() -> None:
    record = {"Seen": "2026-11-20 13:00:00+01:00", "day": "2026-11-20", "clock": "23:59:59"}

    [only] = normalise(record, "environment", {}, NOW, times=TIMES)

    assert only == {"Seen": "2026-11-20T12:00:00Z", "day": "2026-11-20", "clock": "23:59:59"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seen", "now"),
        ("seen", "2026-02-30T00:00:00Z"),
        ("day", "today"),
        ("day", "2026-02-30"),
        ("day", "20261120"),
        ("day", "2026-11-20T00:00:00Z"),
        ("clock", "now"),
        ("clock", "24:00:00"),
        ("clock", "1:00"),
    ],
)
def test_another_value_of_a_time_column_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(RecordRefused, match=f"bad-time: {key}: '{value}'"):
        normalise({key: value}, "environment", {}, NOW, times=TIMES)


@pytest.mark.parametrize(
    ("weight", "is_valid"),
    [("0", True), ("999999999", True), ("+5", False), ("1_0", False), ("1.5", False)],
)
def test_a_weight_is_a_whole_number(weight: str, is_valid: bool) -> None:
    record = {
        "siteName": "S",
        "groupName": "G",
        "groupType": "region",
        "validFrom": "0",
        "weight": weight,
    }

    if is_valid:
        assert row(record, "siteGroup")["weight"] == weight
    else:
        assert refusal(record, "siteGroup") == "bad-weight"


def test_decoding_gives_rows_by_column_refusals_by_number_and_counts_unknown_keys() -> None:
    message = metric_message(
        metric_result(fancy="1"), metric_result(metricStatus="bad"), metric_result(fancy="2")
    )

    decoded = decode(message, [key.lower() for key in METRIC_OUTPUT.keys], NOW)

    assert [item.number for item in decoded.rows] == [1, 3]
    assert decoded.rows[0].values["hostname"] == "ce01.example.org"
    assert [(item.number, item.reason) for item in decoded.bad] == [(2, "bad-status")]
    assert decoded.ignored == {"fancy": 2}


def test_a_foreign_message_gets_an_id_from_class_and_body() -> None:
    first = Message({"messageClass": "metricOutput"}, b"x")

    assert first.message_id == Message({"messageClass": "METRICoutput"}, b"x").message_id
    assert first.message_id != Message({"messageClass": "other"}, b"x").message_id
    assert first.message_id.startswith("sha256:")


def test_our_ids_sort_by_creation_time() -> None:
    ids = [metric_message().message_id for _ in range(3)]

    assert len(set(ids)) == 3
    assert [item[:14] for item in ids] == sorted(item[:14] for item in ids)


def test_times_before_1000_are_written_with_four_digits() -> None:
    assert parse_time("0999-01-01T00:00:00Z").year == 999
    assert row({"timestamp": "0999-01-01T00:00:00Z"}, "x")["timestamp"] == "0999-01-01T00:00:00Z"


@pytest.mark.parametrize("key", ["validFrom", "validTo", "startTime", "endTime", "VALIDFROM"])
def test_a_date_is_the_midnight_at_which_a_period_begins_or_ends(key: str) -> None:
    assert row({key: "2026-01-31"}, "ourOwnClass") == {key: "2026-01-31T00:00:00Z"}


def test_a_group_may_be_valid_from_a_date() -> None:
    group = {"siteName": "S", "groupName": "G", "groupType": "T", "validfrom": "2026-01-31"}

    assert row(group, "siteGroup")["validFrom"] == "2026-01-31T00:00:00Z"


@pytest.mark.parametrize("value", ["2026-02-30", "2026-1-31", "31/01/2026"])
def test_what_only_looks_like_a_date_is_refused(value: str) -> None:
    assert refusal({"validFrom": value}, "ourOwnClass") == "bad-time"


def test_the_time_of_a_result_needs_more_than_a_date() -> None:
    assert refusal(metric_result(timestamp="2026-11-20")) == "bad-time"
