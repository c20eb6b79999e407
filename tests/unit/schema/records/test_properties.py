"""What holds for any record and any bytes: nothing changes on the way, and nothing raises.

`pytest --hypothesis-profile=soak` with this file searches much longer.
"""

from __future__ import annotations

import random

from hypothesis import assume, example, given
from hypothesis import strategies as st

from sam_pipeline.schema.messages.decode import Decoded, decode
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.json_form import write_json
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import END, SUMMARY_LENGTH, Record, read_wlcg, write_wlcg
from tests.support.builders import NOW, metric_message, metric_result

REASONS = {
    *("empty", "truncated", "no-key", "duplicate-key", "nul-byte", "bad-text"),
    *("not-json", "nested", "missing-key", "control-character"),
    *("bad-status", "bad-time", "bad-host", "too-old", "in-the-future"),
}

# Characters that mean something to the format or to somebody's reader come more often than others.
ODD = "\xa0\x85\u2028\u3000\ufeff\ufffd\ud800 :|,'EOT"
ANY = st.one_of(st.characters(), st.sampled_from(f"\n\r\t\0\x1c{ODD}"))
TEXT = st.text(st.one_of(st.characters(exclude_characters="\0\n"), st.sampled_from(f"\r\t{ODD}")))
NAME = st.text(st.one_of(st.characters(exclude_categories=["Cc"]), st.sampled_from(ODD)))
DETAILS = st.lists(TEXT, max_size=4).map("\n".join)
OPTIONAL = {
    **dict.fromkeys(["siteName", "gatheredAt", "voName", "voFqan", "role"], NAME),
    **dict.fromkeys(["summaryData", "performanceData"], TEXT),
    "detailsData": DETAILS,
}
RECORDS = st.fixed_dictionaries({}, optional=OPTIONAL).map(lambda given: metric_result(**given))
KEYS = st.sampled_from(METRIC_OUTPUT.keys)
JSON = "application/json; charset=utf-8"


def decoded(message: Message) -> Decoded:
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

    assert [row.values for row in decoded(message).rows] == rows


@given(st.dictionaries(KEYS, st.text(ANY)))
@example({"summaryData": "\n \n", "detailsData": "EOT\nEOT"})
@example({"summaryData": "x" * 300 + "\r\n\ufeffEOT", "detailsData": "\ufeffEOT\r\nhostName: x"})
def test_writing_a_decoded_record_changes_nothing(record: Record) -> None:
    text = write_wlcg(record)
    assume("\0" not in text and text != "EOT\n")
    [again] = read_wlcg(text.encode("utf-8", "replace"))
    assert write_wlcg(again.fields).encode() == text.encode("utf-8", "replace")  # type: ignore[union-attr]


@given(st.lists(RECORDS, min_size=2, max_size=4))
def test_records_in_one_body_are_read_like_single_records(records: list[Record]) -> None:
    bodies = [write_wlcg(record).encode("utf-8", "replace") for record in records]
    together = read_wlcg(b"".join(bodies))
    alone = [record for body in bodies for record in read_wlcg(body)]
    assert [record._replace(line=1) for record in together] == alone


@given(RECORDS)
def test_text_and_json_give_the_same_rows(record: Record) -> None:
    rows = normalise(record, "metricOutput", {}, NOW)
    headers = {"messageClass": "metricOutput", "content-type": JSON}
    outcome = decoded(Message(headers, write_json(rows).encode()))
    assert [row.values for row in outcome.rows] == rows


GOOD = [
    metric_message(metric_result(detailsData="one\ntwo"), metric_result(serviceFlavour="CE, SE")),
    Message(
        {"messageClass": "metricOutput", "content-type": JSON},
        write_json([metric_result(), metric_result(weight="1.5")]).encode(),
    ),
]


def assert_whole(outcome: Decoded) -> None:
    """Check that each record is a row or refused, with a documented reason and a short text."""
    refused_numbers = {refused.number for refused in outcome.bad}
    numbers = refused_numbers | {row.number for row in outcome.rows}
    assert numbers == set(range(1, len(numbers) + 1))
    assert refused_numbers.isdisjoint(row.number for row in outcome.rows)
    for refused in outcome.bad:
        assert refused.reason in REASONS
        assert "\0" not in refused.text and len(refused.text.encode()) < 1000
    for row in outcome.rows:
        assert all("\0" not in value and value.encode() for value in row.values.values())


@given(st.binary(), st.sampled_from(["", JSON]), st.sampled_from(["metricOutput", "own", ""]))
@example(b"", JSON, "metricOutput")
@example(b"\xef\xbb\xbf", "", "metricOutput")
@example(b"\r\nEOT\r\n", "", "metricOutput")
@example(b" \r\n\t", "", "metricOutput")
@example(b"\xff\xfeh\0o\0s\0t\0", "", "metricOutput")
@example(b"EOT\n" * 1000, "", "metricOutput")
@example(b"[" * 100_000, JSON, "metricOutput")
@example(b'{"a":' * 100_000, JSON, "metricOutput")
@example(b'[{"a": ' + b"[" * 900 + b"]" * 900 + b"}]", JSON, "metricOutput")
@example(b'{"\\ud800": 1, "b": "\\ud800"}', JSON, "own")
@example(b'{"hostName": ' + b"9" * 100_000 + b"}", JSON, "metricOutput")
@example(b"timestamp: " + b"9" * 100_000 + b"\nEOT\n", "", "own")
@example(b"k" * 100_000 + b": v\n" + b"k" * 100_000 + b": v\nEOT\n", "", "own")
def test_any_bytes_are_rows_or_refused_records(body: bytes, content_type: str, name: str) -> None:
    outcome = decoded(Message({"messageClass": name, "content-type": content_type}, body))
    assert outcome.rows or outcome.bad
    assert_whole(outcome)


@given(st.sampled_from(GOOD), st.randoms(use_true_random=False))
def test_a_damaged_message_is_rows_or_refusals(message: Message, chance: random.Random) -> None:
    body = bytearray(message.body)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(body))
        piece = chance.choice([b"", b"\n", b"\0", b"\xff", b"EOT\n", b'"', bytes([at % 256])])
        body[at : at + chance.randrange(3)] = piece

    outcome = decoded(Message(message.headers, bytes(body)))

    assert_whole(outcome)
