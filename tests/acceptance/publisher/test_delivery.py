"""How the installed command delivers: after a wrong password, and with a backlog in the spool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.commands import Answer, Workplace

RESULT = "result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE"


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(
        tmp_path,
        broker=f"stomp://127.0.0.1:{closed_port()}",
        database="sqlite://",
        environment={"SAM_PUBLISHER_TIMEOUT_S": "5"},
    ).write_configuration()


def publish(place: Workplace, *options: str) -> Answer:
    return place.succeed("sam-publish", *RESULT.split(), *options)


def test_a_corrected_password_is_tried_at_once(place: Workplace) -> None:
    def publish_with(password: str, *options: str) -> Answer:
        secret = {"SAM_PUBLISHER_PASSWORD": password, **place.environment}
        return publish(replace(place, environment=secret), "--broker", url, *options)

    with FakeBroker(refuses_login="password is invalid") as broker:
        url = broker.url.replace("//", "//probe@")
        publish_with("wrong")
        broker.refuses_login = ""
        again = publish_with("wrong")
        corrected = publish_with("right", "--no-drain")

        assert [login.headers["passcode"] for login in broker.logins] == ["wrong", "right"]
    assert "left out" in again.err
    assert corrected.out.startswith("published")


def test_a_backlog_takes_a_fifth_of_the_time_limit_and_no_broker_is_blamed_for_that(
    place: Workplace,
) -> None:
    for _ in range(2):
        publish(place)

    with FakeBroker(freezes_after=1) as broker:
        answer = publish(place, "--broker", broker.url, "--timeout", "3")

    assert answer.out.startswith("published")
    assert "0 of 2 spooled messages" in answer.err
    assert "next calls" in answer.err
    assert "could not drain" not in answer.err
    assert place.spooled("outbox") == 2


@pytest.mark.parametrize("setting", ["option", "key"])
def test_the_spool_may_be_left_alone(place: Workplace, setting: str) -> None:
    publish(place)

    with FakeBroker() as broker:
        if setting == "option":
            publish(place, "--broker", broker.url, "--no-drain")
        else:
            environment = {**place.environment, "SAM_PUBLISHER_DRAIN": "false"}
            publish(replace(place, environment=environment), "--broker", broker.url)
        left = place.spooled("outbox")
        publish(place, "--broker", broker.url)

        assert len(broker.taken) == 3
    assert (left, place.spooled("outbox")) == (1, 0)
