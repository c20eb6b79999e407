"""From a request to a message: in the form of ActiveMQ's message servlet, and in our own."""

from __future__ import annotations

import json
import string
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.consumer.sources.door import exchange
from sam_pipeline.consumer.sources.door.activemq import servlet_message
from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    UNREADABLE,
    UNSUPPORTED,
    HttpProblem,
)
from sam_pipeline.consumer.sources.door.exchange import FORM, MAX_PARAMETERS, parameters_of
from sam_pipeline.consumer.sources.door.messages import HEADERS, message_of, require_records
from sam_pipeline.schema.messages.decode import read
from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    FORMAT,
    JSON,
    MESSAGE_ID,
    TEXT,
    Message,
)
from sam_pipeline.schema.records.text import ReadRecord, write_wlcg
from tests.support.builders import metric_result


def sent(
    path: str = "grid.probe.metricOutput",
    query: str = "type=topic",
    content_type: str = FORM,
    body: bytes = b"body=x",
) -> Message:
    parameters = parameters_of(query, content_type, body)
    return servlet_message(path, parameters, content_type, body)


@given(st.text("%4e1&=+aé", max_size=40), st.integers(3, 8))
def test_a_form_that_is_decoded_in_pieces_has_the_same_fields(fields: str, length: int) -> None:
    with patch.object(exchange, "PIECE_LENGTH", length):
        parameters = parameters_of("", FORM, fields.encode(), errors="replace")

    pairs = parse_qsl(fields, keep_blank_values=True, errors="replace")
    assert parameters == dict(reversed(pairs))


@pytest.mark.parametrize(
    ("path", "query", "destination"),
    [
        ("x", "type=queue", "/queue/x"),
        ("x", "type=other", "/queue/x"),
        ("y", "destination=queue%3A%2F%2Fx&type=topic", "/queue/x"),
        ("y", "destination=", "/topic/y"),
    ],
)
def test_path_or_parameter_names_the_destination(path: str, query: str, destination: str) -> None:
    assert sent(path, query).headers["destination"] == destination


@pytest.mark.parametrize(
    ("query", "content_type", "body", "expected", "stated"),
    [
        ("", "text/plain", b"\xff\0\r\n", b"\xff\0\r\n", "text/plain"),
        ("content-type=text/plain", "application/json", b"{}", b"{}", "text/plain"),
        ("samKey=nagios1", "application/json", b"{}", b"{}", None),  # its headers are signed
        ("", "", b"hostName: a\n", b"hostName: a\n", None),
        ("", 'text/plain; charset="ISO-8859-1"', b"\xfc", b"\xc3\xbc", "text/plain; charset=utf-8"),
    ],
)
def test_a_body_that_is_not_a_form_is_taken_with_its_type(
    query: str, content_type: str, body: bytes, expected: bytes, stated: str | None
) -> None:
    message = sent(query=query, content_type=content_type, body=body)

    assert (message.body, message.headers.get("content-type")) == (expected, stated)


@pytest.mark.parametrize("charset", ["klingon", "utf-16", "ascii", "punycode"])
def test_a_text_that_is_not_in_its_character_set_is_unsupported(charset: str) -> None:
    with pytest.raises(HttpProblem, match=charset) as caught:
        sent(content_type=f"text/plain; charset={charset}", body=b"\xff\xfe\xfc")

    assert caught.value.status == UNSUPPORTED


@pytest.mark.parametrize(
    ("request_parts", "stem"),
    [
        *(({"body": body}, "no field body") for body in (b"hostName: a", b"")),
        *(({"body": body}, "not UTF-8") for body in (b"body=%ff", b"body=\xff")),
        ({"body": b"body=x&=y"}, "has no name"),
        ({"body": b"a&" * MAX_PARAMETERS + b"body=x"}, f"more than {MAX_PARAMETERS}"),
        ({"body": b"body=x&JMSPriority=high"}, "JMSPriority 'high' is not 0 to 9"),
        ({"body": b"body=x&JMSPriority=10"}, "JMSPriority '10' is not 0 to 9"),
        ({"path": ""}, "its name is empty"),
        ({"path": "a b"}, "a blank"),
        ({"path": "a.*"}, "a wildcard"),
    ],
)
def test_a_request_without_a_message_is_bad(request_parts: dict[str, Any], stem: str) -> None:
    with pytest.raises(HttpProblem, match=stem) as caught:
        sent(**request_parts)

    assert caught.value.status == BAD_REQUEST


@given(
    path=st.text(max_size=8),
    query=st.text("=&%+;" + string.ascii_letters, max_size=20),
    content_type=st.sampled_from([FORM, "", "text/plain", "a/b; charset=hex", "a; charset=utf-16"]),
    body=st.binary(max_size=20),
)
def test_any_request_has_an_answer(path: str, query: str, content_type: str, body: bytes) -> None:
    try:
        message = sent(path, query, content_type, body)
    except HttpProblem as problem:
        assert problem.status in (BAD_REQUEST, UNSUPPORTED)
    else:
        assert message.headers["destination"].startswith(("/topic/", "/queue/"))


WLCG = write_wlcg(metric_result()).encode()
LINES = "application/jsonl"


def message(body: bytes = WLCG, content_type: str = TEXT, **headers: str) -> Message:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return message_of("metric%4Futput", {"Content-Type": content_type, **given}, body)


def problem_of(body: bytes, content_type: str = TEXT) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        require_records(message(body, content_type))
    return caught.value


@pytest.mark.parametrize(
    ("headers", "message_id"),
    [
        ({"Sam_Message_Id": "one"}, "one"),
        ({"Idempotency_Key": "two"}, "two"),
        ({"Idempotency_Key": '"three"'}, "three"),
        ({"Sam_Message_Id": "one", "Idempotency_Key": "two"}, "one"),
    ],
)
def test_the_sender_may_name_the_message(headers: Any, message_id: str) -> None:
    assert message(**headers).message_id == message_id


def test_a_message_without_a_name_has_that_of_its_content_and_the_class_of_the_path() -> None:
    assert MESSAGE_ID not in message().headers
    assert message().message_class == "metricOutput"
    assert message().message_id == message().message_id
    assert message().message_id != message(WLCG * 2).message_id


def test_only_headers_that_decide_over_the_records_travel_with_them() -> None:
    for name, ours in HEADERS.items():
        assert message(**{name: "x"}).headers[ours] == "x"  # type: ignore[arg-type]
    others = dict.fromkeys(("samIdentity", "samRefused", "Cookie", "JMSXUserID"), "x")
    assert message(**others).headers.keys() == {CLASS, CONTENT_TYPE}  # type: ignore[arg-type]


def test_json_lines_become_the_records_of_an_array() -> None:
    taken = message(b'{"a": "1"}\r\n\n{"b": "2"}\n', LINES)

    assert taken.headers[CONTENT_TYPE] == JSON
    fields = [record.fields for record in read(taken) if isinstance(record, ReadRecord)]
    assert fields == [{"a": "1"}, {"b": "2"}]


@pytest.mark.parametrize("document", [[], [1], None, {}, {"a": [1]}, [{"a": {}}, [1]]])
def test_json_without_a_readable_record_is_refused_as_a_whole(document: object) -> None:
    problem = problem_of(json.dumps(document).encode(), JSON)

    assert (problem.status, problem.facts["record"]) == (UNREADABLE, 1)


def test_a_message_with_one_readable_record_or_of_another_format_is_taken() -> None:
    for body in (WLCG, b"\n  hello\nEOT\n" + WLCG, WLCG[:-5]):
        require_records(message(body, TEXT))
    for body in (b'[1, {"a": "1"}]', b'[{"a": []}, {"a": null}]'):
        require_records(message(body, JSON))
    require_records(Message({CLASS: "metricOutput", FORMAT: "nstream"}, b"anything"))
