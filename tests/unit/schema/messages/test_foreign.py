"""Foreign and refused messages: stamps, renamed keys, limits, destinations, results of nstream."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.schema.messages.decode import WHOLE, Decoded, Refused, decode
from sam_pipeline.schema.messages.destination import name_of_destination, problem_of_destination
from sam_pipeline.schema.messages.foreign import make_stamp, parse_renames, rename_problems
from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    FORMAT,
    JSON,
    MESSAGE_ID,
    RENAME,
    Message,
)
from sam_pipeline.schema.messages.refused import KEPT_BYTES, TOO_LARGE, LimitedBody, refusal_of
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


def test_foreign_keys_of_a_text_are_found_in_any_case_and_details_have_many_lines() -> None:
    names = {"METRIC": "metricName", "host": "hostName", "output": "detailsData"}
    values = {"metricName": "org.sam.M", "hostName": "ce01.example.org"}
    values["detailsData"] = "first\nsecond: not a key\nEOT\nof the details"

    rows = decoded(FOREIGN_TEXT * 3, **make_stamp(rename=names).headers).rows

    assert [row.raw for row in rows] == [FOREIGN_TEXT] * 3  # a foreign key starts a record
    assert all(values.items() <= row.values.items() for row in rows)


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


def nstream_result(**changes: str | None) -> dict[str, str]:
    """A result as written by nstream's backend `mq`, with the documented names."""
    result = {
        "metric": "org.lhcb.SRM-VOPut-/lhcb/Role=production",
        "host": "SRM01.example.org",
        "status": "WARNING",
        "summary": "slow",
        "details": r"copied in 61 s\nremoved",
        "tags": "SRMv2",
        "timestamp": "2026-11-20T12:00:00Z",
        **changes,
    }
    return {key: value for key, value in result.items() if value is not None}


def of_nstream(*results: dict[str, str], **headers: str) -> Decoded:
    message = Message(headers, json.dumps(results).encode())
    return decode(make_stamp(format_name="nstream").stamped(message), METRIC_OUTPUT.keys, NOW)


def test_a_result_becomes_a_metric_result_of_the_monitoring_host() -> None:
    [row] = of_nstream(nstream_result(), nagiosHost="etf-prod.example.org").rows

    assert row.values == {
        "metricName": "org.lhcb.SRM-VOPut-/lhcb/Role=production",
        "hostName": "srm01.example.org",
        "metricStatus": "WARNING",
        "summaryData": "slow",
        "detailsData": "copied in 61 s\nremoved",
        "serviceFlavour": "SRMv2",
        "timestamp": "2026-11-20T12:00:00Z",
        "monitoringHost": "etf-prod.example.org",
    }


@pytest.mark.parametrize(
    "text", ["one\ntwo", "C:\\new\nx", "condor_submit \\\n  -file a", "a\\\\b"]
)
def test_details_are_those_before_nagios_escaped_them(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    [row] = of_nstream(nstream_result(details=escaped)).rows

    assert row.values["detailsData"] == text


def test_each_tag_is_a_flavour_and_a_result_without_one_is_refused_alone() -> None:
    for tags in ("CREAM-CE ARC-CE", "CREAM-CE,ARC-CE", " CREAM-CE, ARC-CE "):
        for key in ("tags", "Tags", "serviceFlavour"):
            rows = of_nstream(nstream_result(**{"tags": None, key: tags})).rows
            assert [row.values["serviceFlavour"] for row in rows] == ["CREAM-CE", "ARC-CE"]
    for none in (None, "", " , "):
        outcome = of_nstream(nstream_result(serviceFlavour="SRM"), nstream_result(tags=none))
        assert [(refused.number, refused.reason) for refused in outcome.bad] == [(2, "missing-key")]
        assert [row.values["serviceFlavour"] for row in outcome.rows] == ["SRM"]


HEADERS = {CLASS: "metricOutput"}


def message_of(*pieces: bytes, limit: int, **headers: str) -> Message:
    body = LimitedBody(limit)
    for piece in pieces:
        body.add(piece)
    return body.message({**HEADERS, **headers})


@pytest.mark.parametrize("pieces", [[], [b"a"], [b"ab", b"", b"cd"], [b"a" * KEPT_BYTES]])
def test_a_body_within_the_limit_or_that_can_be_kept_is_whole(pieces: list[bytes]) -> None:
    message = message_of(*pieces, limit=4)
    assert message == Message(HEADERS, b"".join(pieces))
    assert refusal_of(message) is None


def test_a_larger_body_leaves_its_beginning_length_and_digest() -> None:
    pieces = [b"a" * KEPT_BYTES, b"b" * KEPT_BYTES, b"c"]

    message = message_of(*pieces, limit=2 * KEPT_BYTES, **{MESSAGE_ID: "m-1"})

    refusal = refusal_of(message)
    assert refusal and refusal.reason == TOO_LARGE
    assert f"{2 * KEPT_BYTES + 1} bytes" in refusal.text
    assert hashlib.sha256(b"".join(pieces)).hexdigest() in refusal.text
    assert message.body == pieces[0]
    assert (message.message_id, message.message_class) == ("m-1", "metricOutput")
    # Two without an id that begin alike are two messages.
    first, other = (message_of(bytes(KEPT_BYTES), end, limit=KEPT_BYTES) for end in (b"1", b"2"))
    assert first.body == other.body
    assert first.message_id != other.message_id


GOOD = (
    *("/topic/grid.probe.metricOutput", "/queue/Consumer.site-a.VirtualTopic.x", "/topic/a#b"),
    *("/topic/x::site-a", "/topic/site/probes", "/queue/m\u00e9trique", "/amq/queue/own"),
    "/exchange/grid/key",
)


def test_a_topic_a_queue_and_the_forms_of_rabbitmq_are_destinations() -> None:
    assert [problem_of_destination(text) for text in GOOD] == [None] * len(GOOD)
    for name in ("", "/", "a b", " ", "a\nb", "a\0", "a\u00a0b", "a\u202eb"):
        assert problem_of_destination(f"/topic/{name}")
        assert problem_of_destination(f"/topic/{name}", wildcards=True)
    # A wildcard can only be subscribed to.
    for text in ("/topic/*", "/topic/a.*.b", "/queue/a.>", "/topic/a.#"):
        assert "wildcard" in str(problem_of_destination(text))
        assert problem_of_destination(text, wildcards=True) is None


DELIVERED = {
    "/topic/grid.probe.x": "grid.probe.x",
    "/amq/queue/x": "x",
    "/exchange/amq.topic/x.y": "x.y",
    "x": "x",
    "/queue/Consumer.site-a.VirtualTopic.x.y": "VirtualTopic.x.y",
    "/queue/Consumer.a.b.VirtualTopic.x": "Consumer.a.b.VirtualTopic.x",
    "/queue/Consumer.VirtualTopic.x": "Consumer.VirtualTopic.x",
}


def test_a_destination_has_the_same_name_however_a_broker_delivers() -> None:
    assert {text: name_of_destination(text) for text in DELIVERED} == DELIVERED
