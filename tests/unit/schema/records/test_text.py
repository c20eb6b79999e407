"""The record text: what the strict writer writes and the tolerant reader accepts."""

from __future__ import annotations

import pytest

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.text import BadRecord, ReadRecord, read_wlcg, write_wlcg
from tests.support.builders import metric_result


def fields_of(body: bytes | str, **options: object) -> list[dict[str, str]]:
    body = body.encode() if isinstance(body, str) else body
    records = read_wlcg(body, message_class=METRIC_OUTPUT, **options)  # type: ignore[arg-type]
    assert all(isinstance(record, ReadRecord) for record in records), records
    return [record.fields for record in records if isinstance(record, ReadRecord)]


def reasons_of(body: bytes, **options: object) -> list[str]:
    records = read_wlcg(body, message_class=METRIC_OUTPUT, **options)  # type: ignore[arg-type]
    return [record.reason for record in records if isinstance(record, BadRecord)]


def test_the_writer_keeps_the_order_of_the_known_writers_and_puts_details_last() -> None:
    record = {"detailsData": "a\nb", "voName": "ops", **metric_result(), "serviceURI": "ce01/x"}

    lines = write_wlcg(record).split("\n")

    assert " ".join(line.split(":")[0] for line in lines) == (
        "serviceURI hostName serviceFlavour siteName metricStatus metricName summaryData"
        " gatheredAt timestamp voName detailsData b EOT "
    )


def test_a_long_summary_is_cut_and_repeated_in_full_in_the_details() -> None:
    summary = "x" * 300

    [record] = fields_of(write_wlcg(metric_result(summaryData=summary, detailsData="more")))
    [ending] = fields_of(write_wlcg(metric_result(detailsData="one\nEOT\nhostName: two")))

    assert record["summaryData"] == "x" * 255
    assert record["detailsData"] == f"{summary}\nmore"
    assert ending["detailsData"] == "one\n EOT\nhostName: two"  # a line that would end it


VARIANTS = (
    "hostName: a\r\nmetricName: b: c\r\nEOT\r\n",
    "\ufeffhostName: a\nmetricName: b: c\nEOT\n",
    "hostName:a\nmetricName:  \t b: c\nEOT",
    "\n\nhostName: a\n\nmetricName: b: c\nEOT\n\n",
    "  hostName: a \nMETRICNAME: b: c\nEOT \n",
)


@pytest.mark.parametrize("body", VARIANTS)
def test_the_reader_accepts_variants_of_known_writers(body: str) -> None:
    assert fields_of(body) == [{"hostName": "a", "metricName": "b: c"}]


def test_an_eot_inside_details_ends_the_record_only_before_a_known_key() -> None:
    body = "hostName: a\ndetailsData: x\nEOT\nnot a key: but text\nEOT\n\nmetricName: b\nEOT\n"

    first, second = fields_of(body)

    assert first["detailsData"] == "x\nEOT\nnot a key: but text"
    assert second == {"metricName": "b"}
    own = "uuid: 1\ndetailsData: x\nEOT\nuuid: 2\nEOT\n"  # of a custom class
    assert (len(fields_of(own)), len(fields_of(own, columns=["UUID"]))) == (1, 2)


def test_invalid_utf8_is_replaced_and_flagged() -> None:
    body = b"hostName: a\nsummaryData: caf\xe9\nEOT\n"

    [record] = read_wlcg(body)

    assert isinstance(record, ReadRecord)
    assert record.fields["summaryData"] == "caf\ufffd"
    assert record.notes == ("invalid UTF-8 replaced",)
    assert record.raw == body


BAD = {
    "duplicate-key": b"hostName: a\nHOSTNAME: b\nEOT\n",
    "no-key": b"hostName: a\nno key here\nEOT\n",
    "nul-byte": b"hostName: a\0b\nEOT\n",
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_record_does_not_affect_its_neighbours(reason: str) -> None:
    valid = b"hostName: a\nEOT\n"
    for nothing in (b"", b"  \n\n", b"EOT\n", b"\r\nEOT\r\n"):
        assert reasons_of(nothing) == ["empty"]

    before, invalid, after = read_wlcg(valid + BAD[reason] + valid)

    assert isinstance(before, ReadRecord) and isinstance(after, ReadRecord)
    assert isinstance(invalid, BadRecord)
    assert (invalid.reason, invalid.raw) == (reason, BAD[reason])


def test_a_missing_final_eot_is_accepted_only_where_nothing_can_be_lost() -> None:
    record = write_wlcg(metric_result()).removesuffix("EOT\n").encode()
    with_details = record + b"detailsData: maybe more\n"

    assert reasons_of(record) == []
    assert reasons_of(record.rstrip(b"\n")) == ["truncated"]
    assert reasons_of(b"hostName: a\n") == ["truncated"]
    assert reasons_of(with_details) == ["truncated"]
    assert reasons_of(with_details, record_count=1) == []
    assert reasons_of(with_details, record_count=2) == ["truncated"]
