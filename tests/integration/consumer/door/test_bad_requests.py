"""Each kind of bad request has its status and problem document, stores nothing, and disturbs no
good request beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sam_pipeline.consumer.sources.door.answers import PROBLEM
from sam_pipeline.consumer.sources.door.openapi import STATUSES
from tests.support.builders import metric_result
from tests.support.consumer.bad_requests import BAD_REQUESTS, JSON, BadRequest, post, wlcg
from tests.support.consumer.door_site import DoorSite, door_site


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorSite]:
    with door_site(tmp_path_factory.mktemp("door")) as door:
        yield door
        assert "Traceback" not in door.daemon.log


def good(metric: str) -> bytes:
    return post(body=wlcg(metric_result(metricName=metric)))


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=[bad.name for bad in BAD_REQUESTS])
def test_a_bad_request_gets_its_problem_and_the_good_one_beside_it_is_stored(
    door: DoorSite, bad: BadRequest
) -> None:
    rows, letters = door.rows(), door.letters()
    metric = f"org.sam.Beside.{bad.name}"

    with door.connect() as connection, door.connect() as other:
        connection.send(bad.data)
        answer = connection.answer()
        if bad.keeps_alive:
            connection.send(good(metric))
            beside = connection.answer()
        else:
            assert connection.at_end
            other.send(good(metric))
            beside = other.answer()

    assert answer.status == bad.status, answer
    assert answer.headers["content-type"].startswith(PROBLEM)
    problem = answer.document
    assert problem["status"] == bad.status
    assert problem["title"]
    assert problem["type"]
    assert bad.status in STATUSES
    assert (beside.status, beside.document["rows"]) == (200, 1)
    assert (door.rows(metric), door.rows(), door.letters()) == (1, rows + 1, letters)


def test_a_refused_method_gets_the_ones_that_are_allowed(door: DoorSite) -> None:
    answer = door.ask(post(method="PATCH"))

    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_a_problem_names_record_key_and_value(door: DoorSite) -> None:
    answer = door.ask(post(content_type=JSON, body=b'[{"hostName": {"a": 1}}]'))

    problem = answer.document
    assert answer.status == 422
    assert (problem["record"], problem["key"], problem["reason"]) == (1, "hostName", "nested")
    assert "a" in problem["value"]
