"""From a request to a message."""

from __future__ import annotations

import json
from collections.abc import Mapping

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

RECORD = metric_result()
WLCG = write_wlcg(RECORD).encode()
LINES = "application/jsonl"


def message(body: bytes = WLCG, content_type: str = TEXT, **headers: str) -> Message:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return message_of("metricOutput", {"Content-Type": content_type, **given}, body)


def problem_of(body: bytes, content_type: str = TEXT) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        require_records(message(body, content_type))
    return caught.value


def test_the_path_names_the_class() -> None:
    assert message_of("metric%4Futput", {}, WLCG).message_class == "metricOutput"


def test_the_sender_may_name_the_message() -> None:
    assert message(Sam_Message_Id="one").message_id == "one"
    assert message(Idempotency_Key="two").message_id == "two"
    assert message(Idempotency_Key='"three"').message_id == "three"
    assert message(Sam_Message_Id="one", Idempotency_Key="two").message_id == "one"


def test_a_message_without_a_name_has_that_of_its_content() -> None:
    assert MESSAGE_ID not in message().headers
    assert message().message_id == message().message_id
    assert message().message_id != message(WLCG * 2).message_id


@pytest.mark.parametrize(("name", "ours"), HEADERS.items())
def test_headers_that_decide_over_the_records_travel_with_them(name: str, ours: str) -> None:
    assert message(**{name: "x"}).headers[ours] == "x"


@pytest.mark.parametrize("name", ["samIdentity", "samRefused", "Cookie", "JMSXUserID"])
def test_no_other_header_becomes_one_of_the_message(name: str) -> None:
    assert message(**{name: "x"}).headers.keys() == {CLASS, CONTENT_TYPE}


def test_json_lines_become_the_records_of_an_array() -> None:
    lines = b'{"a": "1"}\r\n\n{"b": "2"}\n'

    taken = message(lines, LINES)

    assert taken.headers[CONTENT_TYPE] == JSON
    fields = [record.fields for record in read(taken) if isinstance(record, ReadRecord)]
    assert fields == [{"a": "1"}, {"b": "2"}]


@pytest.mark.parametrize("name", ["", "a b", "a%2Fb", "a%0Ab", "%FF", "x" * (LONGEST_NAME + 1)])
def test_a_class_that_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        message_of(name, {}, WLCG)

    assert caught.value.status == BAD_REQUEST


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", TEXT),
        (b"hello", TEXT),
        (b"<xml/>", TEXT),
        (b"", JSON),
        (b"{", JSON),
        (b'{"a": 1}\n{', LINES),
        (b"[" * 100_000, JSON),
    ],
)
def test_what_is_not_records_at_all_is_a_bad_request(body: bytes, content_type: str) -> None:
    assert problem_of(body, content_type).status == BAD_REQUEST


@pytest.mark.parametrize("document", [[], [1], "x", None, {}, {"a": [1]}, [{"a": {}}, [1]]])
def test_json_without_a_readable_record_is_refused_as_a_whole(document: object) -> None:
    problem = problem_of(json.dumps(document).encode(), JSON)

    assert problem.status == UNREADABLE
    assert problem.facts["record"] == 1


def test_a_problem_names_record_key_and_value() -> None:
    facts = problem_of(b'{"a": "1", "b": [2]}', JSON).facts

    assert (facts["record"], facts["key"], facts["value"]) == (1, "b", "[2]")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (WLCG, TEXT),
        (b"\n  hello\nEOT\n" + WLCG, TEXT),
        (b'[1, {"a": "1"}]', JSON),
        (b'[{"a": []}, {"a": null}]', JSON),
        (WLCG[:-5], TEXT),
    ],
)
def test_a_message_with_one_readable_record_is_taken(body: bytes, content_type: str) -> None:
    require_records(message(body, content_type))


def test_other_formats_are_left_to_their_readers() -> None:
    headers: Mapping[str, str] = {CLASS: "metricOutput", FORMAT: "nstream"}

    require_records(Message(headers, b"anything"))
