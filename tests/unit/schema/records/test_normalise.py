"""Normalising the values of a record, and which records are refused for which reason."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.messages.decode import Decoded, decode
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import CLOCK, DAY, MOMENT, Limits, normalise
from sam_pipeline.schema.records.text import END, SUMMARY_LENGTH, Record, read_wlcg, write_wlcg
from sam_pipeline.schema.times import format_time, parse_time
from tests.support.builders import NOW, metric_message, metric_result

NOON = "2026-11-20T12:00:00Z"


def row(record: Record, class_name: str = "metricOutput", **headers: str) -> Record:
    [only] = normalise(record, class_name, headers, NOW)
    return only


def refusal(record: Record, class_name: str = "metricOutput") -> str:
    with pytest.raises(RecordRefused) as caught:
        normalise(record, class_name, {}, NOW)
    return caught.value.reason


STATUSES = {"ok": "OK", "Warning": "WARNING", "2": "CRITICAL", "3": "UNKNOWN"}
NOONS = (NOON, NOON[:-1], "2026-11-20 12:00:00.999", "2026-11-20T14:30:00+02:30", "1795176000")


@pytest.mark.parametrize(
    ("key", "value", "changes"),
    [
        *(("metricStatus", value, {"metricStatus": text}) for text, value in STATUSES.items()),
        *(("timestamp", NOON, {"timestamp": text}) for text in NOONS),
        ("hostName", "ce01.example.org", {"hostName": None, "HOSTNAME": "CE01.Example.ORG."}),
        ("hostName", "ce01.example.org", {"hostName": "ce01.example.org.:9619"}),
        ("hostName", "2001:db8::9619", {"hostName": "2001:db8::9619"}),
        ("hostName", "ce09", {"serviceURI": "https://CE09:8443/cream", "hostName": "x"}),
        ("hostName", "2001:db8::1", {"serviceURI": "srm://[2001:db8::1]:80/x"}),
        ("serviceFlavour", "SE", {"serviceFlavour": None, "serviceType": "SE"}),
        ("monitoringHost", "m", {"monitoringHost": "m", "nagios_host": "n"}),
        ("monitoringHost", "n", {"nagiosHost": "n"}),
        ("monitoringHost", "wn17.example.org", {}),
        ("summaryData", "a\x1bb", {"summaryData": "a\x1bb"}),
    ],
)
def test_a_value_gets_the_one_form_that_it_has_in_the_database(
    key: str, value: str, changes: dict[str, str | None]
) -> None:
    headers = {name: str(text) for name, text in changes.items() if name.startswith("nagios")}
    record = {name: text for name, text in changes.items() if name not in headers}
    assert row(metric_result(**record), **headers)[key] == value


BAD: dict[str, tuple[str, ...]] = {
    "bad-status metricStatus": ("4", "-1", "UP", "0K", "DOWNTIME"),
    "bad-time timestamp": (
        *("now", "infinity", "20/11/2026", "2026-02-30T00:00:00Z", "2026-11-20T12:00:00+25:00"),
        *("2026-11-20T24:00:01Z", "2026-11-20T23:59:60Z", "٢٠٢٦-11-20T12:00:00Z"),
        *("2026-11-20", "1795176000000"),
    ),
    "too-old timestamp": ("2016-01-01T00:00:00Z",),
    "in-the-future timestamp": ("2026-11-22T12:00:00Z",),
    "bad-host hostName": (
        *("<script>", "=cmd()", "a" * 254, "a" + "." * 300, "ce 01", "bücher.example"),
    ),
    "control-character metricName": ("a\x07b",),
}


@pytest.mark.parametrize("problem", BAD)
def test_any_other_value_is_refused_with_its_reason(problem: str) -> None:
    reason, key = problem.split()
    for value in BAD[problem]:
        assert (value, refusal(metric_result(**{key: value}))) == (value, reason)


def test_a_missing_required_key_is_reported() -> None:
    for key in METRIC_OUTPUT.required:
        for value in (None, " "):
            assert refusal(metric_result(**{key: value})) == "missing-key"
    times = {"startTime": "2026-11-20T00:00:00Z", "endTime": "2026-11-21T00:00:00Z"}
    downtime = {**times, "classification": "SCHEDULED", "severity": "OUTAGE"}
    assert refusal(downtime, "downtime") == "missing-key"  # a host or a site
    assert row(downtime | {"siteName": "A"}, "downtime")["siteName"] == "A"


def test_the_age_that_is_accepted_is_a_limit_and_each_flavour_of_a_list_one_row() -> None:
    with pytest.raises(RecordRefused, match="0 days old"):
        normalise(metric_result(), "metricOutput", {}, NOW, Limits(past=timedelta(minutes=1)))
    rows = normalise(metric_result(serviceFlavour="CE, ARC-CE ,CE,"), "metricOutput", {}, NOW)
    assert [item["serviceFlavour"] for item in rows] == ["CE", "ARC-CE"]


def test_only_the_times_of_a_custom_class_are_normalised() -> None:
    record = {"uuid": " x ", "TIMESTAMP": "0", "metricStatus": "whatever", "empty": ""}
    normal = {"uuid": "x", "TIMESTAMP": "1970-01-01T00:00:00Z", "metricStatus": "whatever"}

    assert row(record, "environment") == normal
    # A date is the midnight at which a period begins or ends.
    for key in ("validFrom", "validTo", "startTime", "endTime", "VALIDFROM"):
        assert row({key: "2026-01-31"}, "ourOwnClass") == {key: "2026-01-31T00:00:00Z"}
        for value in ("2026-02-30", "2026-1-31", "31/01/2026"):
            assert refusal({key: value}, "ourOwnClass") == "bad-time"
    assert parse_time("0999-01-01T00:00:00Z").year == 999
    assert row({"timestamp": "0999-01-01T00:00:00Z"}, "x")["timestamp"] == "0999-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-27 12:00:00+00", "2026-11-27T12:00:00Z"),  # as PostgreSQL writes it
        ("2026-11-27T12:00:00+01", "2026-11-27T11:00:00Z"),
        ("2026-11-27T12:00Z", "2026-11-27T12:00:00Z"),
        ("2026-11-27T12:00:00,123Z", "2026-11-27T12:00:00Z"),
        ("2026-11-27t12:00:00z", "2026-11-27T12:00:00Z"),
        ("2026-11-27T24:00:00Z", "2026-11-28T00:00:00Z"),
        ("2026-12-31T24:00+01:00", "2026-12-31T23:00:00Z"),
    ],
)
def test_a_time_may_be_written_as_iso_8601_and_rfc_3339_permit(text: str, expected: str) -> None:
    assert format_time(parse_time(text)) == expected


def test_columns_of_a_time_type_hold_times_in_one_form() -> None:
    times = {"seen": MOMENT, "day": DAY, "clock": CLOCK}
    record = {"Seen": "2026-11-20 13:00:00+01:00", "day": "2026-11-20", "clock": "23:59:59"}
    bad = {
        "seen": ("now", "2026-02-30T00:00:00Z"),
        "day": ("today", "2026-02-30", "20261120", "2026-11-20T00:00:00Z"),
        "clock": ("now", "24:00:00", "1:00"),
    }

    [only] = normalise(record, "environment", {}, NOW, times=times)

    assert only == {"Seen": NOON, "day": "2026-11-20", "clock": "23:59:59"}
    for key, values in bad.items():
        for value in values:
            with pytest.raises(RecordRefused, match=f"bad-time: {key}: '{value}'"):
                normalise({key: value}, "environment", {}, NOW, times=times)


def test_a_foreign_message_gets_an_id_from_class_and_body_and_ours_sort_by_creation() -> None:
    first = Message({"messageClass": "metricOutput"}, b"x")
    ids = [metric_message().message_id for _ in range(3)]

    assert first.message_id == Message({"messageClass": "METRICoutput"}, b"x").message_id
    assert first.message_id != Message({"messageClass": "other"}, b"x").message_id
    assert first.message_id.startswith("sha256:")
    assert len(set(ids)) == 3
    assert [item[:14] for item in ids] == sorted(item[:14] for item in ids)


# Characters that mean something to the format or to somebody's reader come more often than others.
ODD = "\xa0\x85\u2028\u3000\ufeff\ufffd\ud800 :|,'EOT"
ANY = st.one_of(st.characters(), st.sampled_from(f"\n\r\t\0\x1c{ODD}"))
LINE = st.text(st.one_of(st.characters(exclude_characters="\0\n"), st.sampled_from(f"\r\t{ODD}")))
NAME = st.text(st.one_of(st.characters(exclude_categories=["Cc"]), st.sampled_from(ODD)))
DETAILS = st.lists(LINE, max_size=4).map("\n".join)
OPTIONAL = {
    **dict.fromkeys(["siteName", "gatheredAt", "voName", "voFqan", "role"], NAME),
    **dict.fromkeys(["summaryData", "performanceData"], LINE),
    "detailsData": DETAILS,
}
RECORDS = st.fixed_dictionaries({}, optional=OPTIONAL).map(lambda given: metric_result(**given))
KEYS = st.sampled_from(METRIC_OUTPUT.keys)


def decoded_message(message: Message) -> Decoded:
    return decode(message, METRIC_OUTPUT.keys, NOW)


@given(RECORDS)
@example(metric_result(detailsData="a\r\n\ufeffb\r", siteName="\ufeff x \r", voName="\xa0"))
@example(metric_result(summaryData="caf\udce9", gatheredAt="\xa0"))
def test_decoding_returns_the_normalised_values(record: Record) -> None:
    assume(
        len(record["summaryData"]) <= SUMMARY_LENGTH and END not in record.get("detailsData", "")
    )
    rows = normalise(record, "metricOutput", {}, NOW)

    message = new_message("metricOutput", "".join(map(write_wlcg, rows)), record_count=len(rows))

    assert [row.values for row in decoded_message(message).rows] == rows


@given(st.dictionaries(KEYS, st.text(ANY)))
@example({"summaryData": "\n \n", "detailsData": "EOT\nEOT"})
@example({"summaryData": "x" * 300 + "\r\n\ufeffEOT", "detailsData": "\ufeffEOT\r\nhostName: x"})
def test_writing_a_decoded_record_changes_nothing(record: Record) -> None:
    text = write_wlcg(record)
    assume("\0" not in text and text != "EOT\n")
    [again] = read_wlcg(text.encode("utf-8", "replace"))
    assert write_wlcg(again.fields).encode() == text.encode("utf-8", "replace")  # type: ignore[union-attr]
