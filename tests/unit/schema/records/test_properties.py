"""What holds for any record: nothing changes on the way.

`pytest --hypothesis-profile=soak` with this file searches much longer.
"""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from sam_pipeline.schema.messages.decode import Decoded, decode
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.json_form import write_json
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import END, SUMMARY_LENGTH, Record, read_wlcg, write_wlcg
from tests.support.builders import NOW, metric_result

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


@given(RECORDS)
def test_text_and_json_give_the_same_rows(record: Record) -> None:
    rows = normalise(record, "metricOutput", {}, NOW)
    headers = {"messageClass": "metricOutput", "content-type": JSON}
    outcome = decoded(Message(headers, write_json(rows).encode()))
    assert [row.values for row in outcome.rows] == rows
