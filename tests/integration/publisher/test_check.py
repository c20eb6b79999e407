"""`sam-publish check --connect` against real brokers: round trips."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.services.activemq5 import ActiveMQ5Server
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import closed_port
from tests.support.brokers.subscriber import subscribed

Check = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Runs the check; returns its exit code and JSON document."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    environment = {**kept, "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path / "state")}
    environment["SAM_PUBLISHER_PASSWORD"] = "sam-secret"  # of both servers

    def run(*arguments: str, **variables: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "sam_pipeline.publisher",
                "check",
                "--connect",
                "--json",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={**environment, **variables},
            check=False,
        )
        assert "Traceback" not in done.stderr
        assert "sam-secret" not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def name() -> str:
    return f"check.{uuid.uuid4().hex}"


def options(*urls: str, destination: str) -> list[str]:
    return ["--destination", destination, *(part for url in urls for part in ("--broker", url))]


def test_every_broker_of_a_topic_passes_a_round_trip(
    check: Check, activemq5: ActiveMQ5Server, name: str
) -> None:
    urls = (activemq5.rest_url, activemq5.url)

    code, document = check(*options(*urls, destination=f"/topic/{name}"))

    assert document["problems"] == []
    assert code == 0
    assert [broker["proven"] for broker in document["brokers"]] == ["round trip", "round trip"]
    assert all(broker["address"] == "127.0.0.1" for broker in document["brokers"])
    assert [broker["anybody_may_publish"] for broker in document["brokers"]] == [False, True]
    assert all(0 < broker["seconds"] < 10 for broker in document["brokers"])


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_broker_where_anybody_may_publish_is_noted_whether_we_have_a_login_or_not(
    check: Check, broker: StompServer, name: str, kind: str
) -> None:
    arguments = ["--destination", f"/{kind}/{name}", "--broker"]

    without = check(*arguments, broker.url)
    with_login = check(*arguments, broker.url_with_user)

    assert (without[0], with_login[0]) == (0, 0)
    assert without[1]["notes"] == with_login[1]["notes"]
    (note,) = without[1]["notes"]
    assert note.startswith(f"{broker.url}: anybody may publish here: ")
    assert f"/{kind}/{name}" in note


def test_a_check_does_not_consume_messages_from_a_queue(
    check: Check, activemq5: ActiveMQ5Server, name: str
) -> None:
    arguments = options(activemq5.rest_url, destination=f"/queue/{name}")

    code, document = check(*arguments)

    assert code == 0
    assert document["brokers"][0]["proven"].startswith("confirmed; ")


def test_the_rabbitmq_api_passes_a_round_trip_when_the_topic_has_a_subscriber(
    check: Check, rabbitmq: RabbitMQServer, name: str
) -> None:
    with subscribed(rabbitmq, f"/topic/{name}") as frames:
        code, document = check(*options(rabbitmq.api_url, destination=f"/topic/{name}"))
        first = next(frames)

    assert code == 0
    assert document["brokers"][0]["proven"] == "round trip"
    assert document["notes"] == []
    assert first.headers["messageClass"] == "sam-check"


def test_a_rabbitmq_topic_without_a_subscriber_is_a_problem(
    check: Check, rabbitmq: RabbitMQServer, name: str
) -> None:
    code, document = check(*options(rabbitmq.api_url, destination=f"/topic/{name}"))

    assert code == 78
    (problem,) = document["problems"]
    assert "no queue is bound" in problem
    assert name in problem


def test_a_destination_that_drops_messages_is_a_problem(
    check: Check, rabbitmq: RabbitMQServer, name: str
) -> None:
    code, document = check(*options(rabbitmq.url, destination=f"/amq/queue/{name}"))

    assert code == 78
    assert document["brokers"][0]["proven"] is None


def test_one_failing_broker_does_not_stop_the_check_of_the_others(
    check: Check, activemq5: ActiveMQ5Server, name: str
) -> None:
    dead = f"stomp://127.0.0.1:{closed_port()}"

    code, document = check(*options(dead, activemq5.rest_url, destination=f"/topic/{name}"))

    assert code == 78
    assert [broker["proven"] for broker in document["brokers"]] == [None, "round trip"]
    (problem,) = document["problems"]
    assert problem.endswith(f"{dead}: connection refused")


def test_a_wrong_password_is_reported_for_each_broker(
    check: Check, activemq5: ActiveMQ5Server, rabbitmq: RabbitMQServer, name: str
) -> None:
    arguments = options(activemq5.rest_url, rabbitmq.api_url, destination=f"/topic/{name}")

    code, document = check(*arguments, SAM_PUBLISHER_PASSWORD="canary")

    assert code == 78
    assert len(document["problems"]) == 2
    assert all("401" in problem for problem in document["problems"])
    assert "canary" not in json.dumps(document)
