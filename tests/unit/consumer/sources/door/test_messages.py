"""From a request to a message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sam_pipeline.consumer.sources.door.answers import BAD_REQUEST, UNREADABLE, HttpProblem
from sam_pipeline.consumer.sources.door.messages import (
    HEADERS,
    LONGEST_NAME,
    message_of,
    require_records,
)
from sam_pipeline.schema.messages.decode import read
from sam_pipeline.schema.messages.foreign import FORMAT
from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    JSON,
    MESSAGE_ID,
    TEXT,
    Message,
)
from sam_pipeline.schema.records.text import ReadRecord, write_wlcg
from tests.support.builders import metric_result

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


@pytest.mark.parametrize("name", ["", "a b", "a%2Fb", "a%0Ab", "%FF", "x" * (LONGEST_NAME + 1)])
def test_a_class_that_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        message_of(name, {}, WLCG)

    assert caught.value.status == BAD_REQUEST


@pytest.mark.parametrize(
    ("body", "content_type"), [(b"<xml/>", TEXT), (b"", JSON), (b'{"a": 1}\n{', LINES)]
)
def test_what_is_not_records_at_all_is_a_bad_request(body: bytes, content_type: str) -> None:
    assert problem_of(body, content_type).status == BAD_REQUEST


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
