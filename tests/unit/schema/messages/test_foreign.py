"""Foreign messages: the stamp of their subscription, renamed keys, and limits."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.schema.messages.decode import WHOLE, Decoded, Refused, decode
from sam_pipeline.schema.messages.foreign import (
    FORMAT,
    RENAME,
    Stamp,
    make_stamp,
    parse_renames,
    rename_problems,
)
from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, JSON, Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import Limits
from tests.support.builders import NOW, metric_message, metric_result

COLUMNS = METRIC_OUTPUT.keys
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
FOREIGN_TEXT = b"""\
metric: org.sam.M
Host: ce01.example.org
serviceFlavour: CE
metricStatus: OK
timestamp: 2026-11-20T12:00:00Z
output: first
second: not a key
EOT
of the details
EOT
"""


def decoded(body: bytes, limits: Limits = Limits(), **headers: str) -> Decoded:  # noqa: B008
    message = Message({CLASS: "metricOutput", **headers}, body)
    return decode(message, COLUMNS, NOW, limits)


def only_refusal(outcome: Decoded) -> Refused:
    assert not outcome.rows
    [refused] = outcome.bad
    return refused


def test_a_stamp_adds_the_headers_that_a_message_lacks_and_changes_no_other() -> None:
    stamp = make_stamp("metricOutput", "nstream", {"site": "siteName"})
    added = {CLASS: "metricOutput", FORMAT: "nstream", RENAME: "site=siteName"}
    theirs = Message({CLASS: "own", FORMAT: "wlcg"}, b"")

    stamped = stamp.stamped(Message({"nagiosHost": "etf", CLASS: ""}, b"x"))

    assert stamped == Message({"nagiosHost": "etf", **added}, b"x")
    assert make_stamp("metricOutput", "nstream").stamped(theirs) == theirs
    for complete in (Stamp(), make_stamp(), make_stamp("metricOutput", "wlcg")):
        message = metric_message()
        assert complete.stamped(message) is message
    # Results of nstream are metric results unless a class is given.
    assert make_stamp(format_name="nstream").headers[CLASS] == "metricOutput"
    assert make_stamp("perfSonar", "nstream").headers[CLASS] == "perfSonar"


@given(st.dictionaries(NAMES, NAMES))
@example({"a=b,c": "%41", "ü:\n": "x y"})
def test_any_names_can_be_encoded_in_the_header(rename: dict[str, str]) -> None:
    problems = list(rename_problems(rename.items()))
    headers = make_stamp(rename=rename).headers

    outcome = decode(Message({CLASS: "own", **headers}, b"x: y\nEOT\n"), ["x"], NOW)

    assert all(text.isascii() and text.isprintable() for text in headers.values())
    if problems:
        assert only_refusal(outcome).reason == "bad-rename"
    else:
        expected = {foreign.lower(): ours for foreign, ours in rename.items()}
        assert parse_renames(headers.get(RENAME, "")) == expected


MALFORMED = {
    "not foreign=ours": "metric|metric=|=metricName|a=b,|a=b=c|a b=c|a%2=c",
    "not percent-encoded UTF-8": "a%FF=c",
    "empty": "%20=c",
    "twice": "a=x,A=y",
    "both become": "a=x,b=X",
}


def test_a_malformed_header_refuses_the_whole_message() -> None:
    cases = [(stem, text) for stem, texts in MALFORMED.items() for text in texts.split("|")]
    for stem, text in cases:
        refused = only_refusal(decoded(FOREIGN_TEXT, **{RENAME: text}))
        assert (refused.number, refused.reason) == (WHOLE, "bad-rename")
        assert refused.raw == FOREIGN_TEXT and stem in refused.text
    unknown = only_refusal(decoded(FOREIGN_TEXT, **{FORMAT: "xml"}))
    assert (unknown.number, unknown.reason, unknown.raw) == (WHOLE, "unknown-format", FOREIGN_TEXT)


def renamed(**rename: str) -> dict[str, str]:
    return dict(make_stamp(rename=rename).headers)


def test_foreign_keys_of_a_text_are_found_in_any_case_and_details_have_many_lines() -> None:
    headers = renamed(METRIC="metricName", host="hostName", output="detailsData")
    values = {"metricName": "org.sam.M", "hostName": "ce01.example.org"}
    values["detailsData"] = "first\nsecond: not a key\nEOT\nof the details"

    rows = decoded(FOREIGN_TEXT * 3, **headers).rows

    assert [row.raw for row in rows] == [FOREIGN_TEXT] * 3  # a foreign key starts a record
    assert all(values.items() <= row.values.items() for row in rows)


def test_the_keys_of_json_are_renamed_and_two_may_be_swapped() -> None:
    record = metric_result(metricName=None, Metric="org.sam.M")
    body = json.dumps([record, metric_result()]).encode()
    swapped = {CLASS: "own", **renamed(a="b", b="a")}

    outcome = decoded(body, **{CONTENT_TYPE: JSON}, **renamed(metric="metricname"))

    names = [row.values["metricName"] for row in outcome.rows]
    assert (names, outcome.ignored) == (["org.sam.M", "org.sam.CE-JobSubmit"], {})
    [row] = decode(Message(swapped, b"a: 1\nB: 2\nEOT\n"), ["a", "b"], NOW).rows
    assert row.values == {"b": "1", "a": "2"}


ONE = metric_message().body
AS_JSON = {CONTENT_TYPE: JSON}


def flavours(text: bytes) -> bytes:
    return ONE.replace(b": CE\n", b": %s\n" % text)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        *((body, {}) for body in (ONE * 4, ONE * 3 + ONE.removesuffix(b"EOT\n"), b"EOT\n" * 4)),
        *((flavours(text) * 2, {}) for text in (b"CE,ARC-CE", b"A,B,C,D", b"A,B,C,D,E,F")),
        (json.dumps([metric_result()] * 4).encode(), AS_JSON),
        (json.dumps([{"metric": "x"}] * 4).encode(), {FORMAT: "nstream"}),
    ],
)
def test_a_message_above_a_limit_is_refused_whole(body: bytes, headers: dict[str, str]) -> None:
    for limits, reason, key in (
        (Limits(max_records=3), "too-many-records", "max_records"),
        (Limits(max_message_bytes=len(body) - 1), "too-large", "max_message_bytes"),
    ):
        refused = only_refusal(decoded(body, limits, **headers))
        assert (refused.number, refused.reason, refused.raw) == (WHOLE, reason, body)
        assert key in refused.text
    three = json.dumps([metric_result()] * 3).encode()
    for allowed, of_json in ((ONE * 3, {}), (flavours(b"A,B,C"), {}), (three, AS_JSON)):
        limits = Limits(max_records=3, max_message_bytes=len(allowed))
        assert len(decoded(allowed, limits, **of_json).rows) == 3
