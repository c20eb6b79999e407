"""Requests to ActiveMQ's message servlet, as messages."""

from __future__ import annotations

import string
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.consumer.sources.door.answers import BAD_REQUEST, UNSUPPORTED, HttpProblem
from sam_pipeline.consumer.sources.door.dialects import forms
from sam_pipeline.consumer.sources.door.dialects.activemq import is_goodbye, servlet_message
from sam_pipeline.consumer.sources.door.dialects.forms import FORM, MAX_PARAMETERS, parameters_of
from sam_pipeline.schema.messages.message import Message

TOPIC = "/topic/grid.probe.metricOutput"


def message_of(
    path: str = "grid.probe.metricOutput",
    query: str = "type=topic",
    content_type: str = FORM,
    body: bytes = b"body=x",
) -> Message:
    parameters = parameters_of(query, content_type, body)
    return servlet_message(path, parameters, content_type, body)


def form(**fields: str) -> Message:
    return message_of(body=urlencode({"body": "x", **fields}).encode())


def problem_of(**request: Any) -> HttpProblem:
    with pytest.raises(HttpProblem) as raised:
        message_of(**request)
    return raised.value


def test_the_fields_of_a_form_are_the_body_and_the_headers_of_a_message() -> None:
    text = "a: b+c&d=e %41\r\n€\U0001f600\n"

    message = message_of(body=urlencode({"body": text, "note": "ü=1", "empty": ""}).encode())

    assert message.body == text.encode()
    assert message.headers == {
        "destination": TOPIC,
        "persistent": "true",
        "priority": "5",
        "note": "ü=1",
        "empty": "",
    }


@given(st.text("%4e1&=+aé", max_size=40), st.integers(3, 8))
def test_a_form_that_is_decoded_in_pieces_has_the_same_fields(fields: str, length: int) -> None:
    with patch.object(forms, "PIECE_LENGTH", length):
        parameters = parameters_of("", FORM, fields.encode(), errors="replace")

    pairs = parse_qsl(fields, keep_blank_values=True, errors="replace")
    assert parameters == dict(reversed(pairs))


def test_parameters_of_the_url_are_headers_too_and_come_first() -> None:
    message = message_of(query="type=topic&clientId=c&note=1", body=b"body=x&note=2")

    assert (message.headers["clientId"], message.headers["note"]) == ("c", "1")


@pytest.mark.parametrize(
    ("path", "query", "destination"),
    [
        ("x", "type=queue", "/queue/x"),
        ("x", "type=TOPIC", "/topic/x"),
        ("x", "", "/topic/x"),
        ("x", "type=other", "/queue/x"),
        ("a/x", "", "/topic/a.x"),
        ("", "destination=x", "/topic/x"),
        ("y", "destination=queue%3A%2F%2Fx&type=topic", "/queue/x"),
        ("y", "destination=topic%3A%2F%2Fx&type=queue", "/topic/x"),
        ("y", "destination=", "/topic/y"),
    ],
)
def test_a_destination_is_named_by_the_path_or_a_parameter(
    path: str, query: str, destination: str
) -> None:
    assert message_of(path, query).headers["destination"] == destination


def test_of_the_parameters_of_jms_none_makes_a_message_expire_or_get_lost() -> None:
    message = form(
        JMSCorrelationID="c",
        JMSType="t",
        JMSReplyTo="topic://r",
        JMSPriority="7",
        JMSDeliveryMode="non-persistent",
        JMSTimeToLive="60000",
        JMSExpiration="1",
    )

    assert message.headers == {
        "destination": TOPIC,
        "persistent": "true",
        "priority": "7",
        "reply-to": "/topic/r",
        "correlation-id": "c",
    }


@pytest.mark.parametrize("body", [b"a\r\n\r\nb", b"", b"\xff\0", b"x" * 1_000_000])
def test_a_body_that_is_not_a_form_is_taken_as_it_is(body: bytes) -> None:
    assert message_of(content_type="text/plain", body=body).body == body


def test_the_type_of_a_body_is_the_content_type_of_the_message() -> None:
    message = message_of(content_type="application/json", body=b"{}")

    assert message.is_json


@pytest.mark.parametrize("query", ["content-type=text/plain", "samKey=nagios1"])
def test_a_message_that_names_its_type_or_is_signed_keeps_its_headers(query: str) -> None:
    message = message_of(query=query, content_type="application/json", body=b"{}")

    assert not message.is_json


def test_a_body_without_a_type_is_kept() -> None:
    message = message_of(content_type="", body=b"hostName: a\n")

    assert message.body == b"hostName: a\n"
    assert "content-type" not in message.headers


def test_a_parameter_named_body_is_the_body_whatever_else_is_sent() -> None:
    message = message_of(query="body=a+b", content_type="text/plain", body=b"other")

    assert message.body == b"a b"


def test_a_text_in_another_character_set_becomes_utf8() -> None:
    content_type = 'text/plain; charset="ISO-8859-1"'

    message = message_of(content_type=content_type, body=b"\xfc")

    assert message.body == "ü".encode()
    assert message.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("charset", ["klingon", "utf-16", "ascii", "punycode"])
def test_a_text_that_is_not_in_its_character_set_is_unsupported(charset: str) -> None:
    problem = problem_of(content_type=f"text/plain; charset={charset}", body=b"\xff\xfe\xfc")

    assert problem.status == UNSUPPORTED
    assert charset in str(problem)


@pytest.mark.parametrize(
    ("request_parts", "stem"),
    [
        ({"body": b"hostName: a"}, "no field body"),
        ({"body": b""}, "no field body"),
        ({"body": b"body=%ff"}, "not UTF-8"),
        ({"body": b"body=\xff"}, "not UTF-8"),
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
    problem = problem_of(**request_parts)

    assert problem.status == BAD_REQUEST
    assert stem in str(problem)


def test_a_client_that_unsubscribes_sends_no_message() -> None:
    assert is_goodbye({"action": "unsubscribe", "clientId": "c"})
    assert not is_goodbye({"action": "unsubscribe"})
    assert not is_goodbye({"action": "send", "clientId": "c"})


@given(
    path=st.text(max_size=8),
    query=st.text("=&%+;" + string.ascii_letters, max_size=20),
    content_type=st.sampled_from([FORM, "", "text/plain", "a/b; charset=hex", "a; charset=utf-16"]),
    body=st.binary(max_size=20),
)
def test_any_request_is_a_message_or_a_problem(
    path: str, query: str, content_type: str, body: bytes
) -> None:
    try:
        message = message_of(path, query, content_type, body)
    except HttpProblem as problem:
        assert problem.status in (BAD_REQUEST, UNSUPPORTED)
    else:
        assert message.headers["destination"].startswith(("/topic/", "/queue/"))
