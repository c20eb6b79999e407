"""Signed results on their whole way, with the installed commands: spools that are old, keys that
are replaced, messages that somebody changed on the way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import BAD_DATA, OK
from tests.support.brokers.fake_broker import closed_port
from tests.support.commands import RESULT, embedded
from tests.support.faketime import under
from tests.support.reports.stored import query

SETTINGS = 'publishers = "publishers.toml"\nsignature_age_days = {days}\n'
POLICY = """
mode = "enforce"
[[publisher]]
name = "cern"
{lines}
signed = true
classes = ["metricOutput"]
hosts = ["*.example.org"]
"""


class Road:
    """A publisher with a key, whose brokers are away at first, and a consumer with a policy."""

    def __init__(self, directory: Path) -> None:
        place = embedded(directory)
        self.lines = place.succeed("sam-publish", "key", "make", "nagios1").out
        environment = {"SAM_PUBLISHER_SIGNING_KEY_FILE": "nagios1.pem"}
        self.place = replace(place, environment=environment)
        self.permit(self.lines)
        self.accept_for(days=30)

    def permit(self, lines: str) -> None:
        self.place.write("publishers.toml", POLICY.format(lines=lines))

    def accept_for(self, days: int) -> None:
        settings = SETTINGS.format(days=days)
        replace(self.place, consumer_settings=settings).write_configuration()

    def spool_result(self, clock: str = "+0s") -> None:
        """A result that stays in the publisher's spool, because its broker is away."""
        dead = {"SAM_PUBLISHER_BROKERS": f"stomp://127.0.0.1:{closed_port()}"}
        variables = {**under(clock, self.place).environment, **self.place.environment, **dead}
        away = replace(self.place, environment=variables)
        assert away.succeed(*RESULT).out.startswith("spooled ")

    def deliver(self) -> None:
        self.place.succeed("sam-publish", "spool", "drain")

    def consume(self) -> int:
        """The exit code."""
        return self.place.run("sam-consume", "run", "--drain").code

    @property
    def publishers(self) -> Sequence[str]:
        """The identity of each loaded result."""
        rows = query(self.place.database, "SELECT publisher FROM metricOutput")
        return [str(row["publisher"]) for row in rows]

    @property
    def reasons(self) -> Sequence[str]:
        """The reason of each dead letter."""
        letters = self.place.succeed("sam-consume", "dead-letter", "list", "--json").json
        return [letter["reason"] for letter in letters]


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return Road(tmp_path)


def test_a_result_that_was_spooled_signed_is_one_of_its_key(road: Road) -> None:
    road.spool_result()
    road.deliver()
    assert road.consume() == OK

    assert (road.publishers, road.reasons) == (["key:nagios1"], [])


def test_a_spool_older_than_its_signatures_may_be_waits_as_letters_until_it_is_accepted(
    road: Road,
) -> None:
    road.accept_for(days=1)
    road.spool_result(clock="-2d")
    road.deliver()
    assert road.consume() == BAD_DATA
    assert (road.publishers, road.reasons) == ([], ["signature-expired"])

    road.accept_for(days=3)
    road.place.succeed("sam-consume", "dead-letter", "replay", "--all")

    assert (road.publishers, road.reasons) == (["key:nagios1"], [])


def test_while_a_key_is_replaced_old_spools_are_loaded_and_afterwards_they_are_not(
    road: Road,
) -> None:
    road.spool_result(clock="-1h")
    (road.place.directory / "nagios1.pem").rename(road.place.directory / "old.pem")
    new = road.place.succeed("sam-publish", "key", "make", "nagios1").out
    old_key, new_key = (re.search(r'"(ed25519:.+)"', text) for text in (road.lines, new))
    assert old_key and new_key
    both = f'is = ["key:nagios1"]\nkeys = ["{new_key[1]}", "{old_key[1]}"]\n'

    road.permit(new)
    road.spool_result()
    road.deliver()
    assert road.consume() == BAD_DATA
    assert (road.publishers, road.reasons) == (["key:nagios1"], ["bad-signature"])

    road.permit(both)
    road.place.succeed("sam-consume", "dead-letter", "replay", "--all")

    assert (road.publishers, road.reasons) == (["key:nagios1"] * 2, [])


def test_what_somebody_changed_or_added_on_the_way_is_refused(road: Road) -> None:
    road.spool_result()
    road.deliver()
    [element] = (road.place.directory / "spool").glob("*/*")
    element.write_text(element.read_text().replace("metricStatus: OK", "metricStatus: CRITICAL"))
    unsigned = {"SAM_PUBLISHER_SIGNING_KEY_FILE": ""}
    forger = replace(road.place, environment=unsigned)
    forger.succeed(*RESULT)
    assert road.consume() == BAD_DATA

    assert road.publishers == []
    assert sorted(road.reasons) == ["bad-signature", "not-authorised"]
