"""The section `[consumer]`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from consumer.config import ConsumerConfig, SubscriptionConfig, load_consumer
from schema.errors import ConfigError

COMPLETE = """\
[consumer]
name = "site-a"
brokers = ["stomp://msg.example.org", "spool:///var/spool/sam-in"]
password_file = "secret"

[[consumer.subscription]]
destination = "/topic/grid.probe.metricOutput"
class = "metricOutput"
"""


def loaded(directory: Path, text: str) -> ConsumerConfig:
    (directory / "secret").write_text("hush\n")
    (directory / "secret").chmod(0o600)
    file = directory / "sam.toml"
    file.write_text(text)
    return load_consumer(argparse.Namespace(config=str(file)))


def problems_of(directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, text)
    return "\n".join(caught.value.problems)


def test_a_complete_section_is_read(tmp_path: Path) -> None:
    config = loaded(tmp_path, COMPLETE)

    assert config.name == "site-a"
    assert [str(broker) for broker in config.parsed_brokers()] == [
        "stomp://msg.example.org:61613",
        "spool:///var/spool/sam-in",
    ]
    assert config.subscription == (
        SubscriptionConfig("/topic/grid.probe.metricOutput", "metricOutput"),
    )
    assert config.password_file == tmp_path / "secret"


def test_a_spool_needs_neither_name_nor_subscription(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[consumer]\nbrokers = ["spool:///in"]\n')

    assert config.batch_size == 1000


def test_a_network_broker_needs_a_name_and_a_subscription(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, '[consumer]\nbrokers = ["stomp://a"]\n')

    assert "name is missing" in problems
    assert "no [[consumer.subscription]]" in problems


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        """\
        [consumer]
        name = "site a"
        brokers = ["stomp://a", "http://b"]
        batchsize = 5
        batch_age_s = 0
        password_file = "no-such-file"
        [[consumer.subscription]]
        destination = "grid.probe"
        """,
    )

    for words in ("letters, digits", "http", "batch_size", "more than 0", "no-such-file", "/topic"):
        assert words in problems


def test_a_destination_given_twice_is_a_problem(tmp_path: Path) -> None:
    twice = COMPLETE + '[[consumer.subscription]]\ndestination = "/topic/grid.probe.metricOutput"\n'

    assert "is there twice" in problems_of(tmp_path, twice)


def test_the_environment_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAM_CONSUMER_NAME", "site-b")
    monkeypatch.setenv("SAM_CONSUMER_BROKERS", "spool:///a,spool:///b")

    config = loaded(tmp_path, COMPLETE)

    assert config.name == "site-b"
    assert config.brokers == ("spool:///a", "spool:///b")
