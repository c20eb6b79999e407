"""Signed results on their whole way: spools that are old, keys that are replaced, messages that
somebody changed on the way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.identity.keys import load_signer
from sam_pipeline.schema.identity.signature import sign
from sam_pipeline.schema.program.command import BAD_DATA, OK
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from tests.support.brokers.fake_broker import closed_port
from tests.support.builders import metric_message, metric_result
from tests.support.commands import RESULT, embedded
from tests.support.reports.stored import query

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
        settings = f'publishers = "publishers.toml"\nsignature_age_days = {days}\n'
        replace(self.place, consumer_settings=settings).write_configuration()

    def spool_result(self) -> None:
        """A result that stays in the publisher's spool, because its broker is away."""
        dead = {"SAM_PUBLISHER_BROKERS": f"stomp://127.0.0.1:{closed_port()}"}
        away = replace(self.place, environment={**self.place.environment, **dead})
        assert away.succeed(*RESULT).out.startswith("spooled ")

    def spool_old_result(self, age: timedelta) -> None:
        """One that was signed and spooled a while ago."""
        then = datetime.now(UTC) - age
        result = metric_result(timestamp=format_time(then))
        signer = load_signer(self.place.directory / "nagios1.pem")
        message = metric_message(result, destination="/topic/grid.probe.metricOutput")
        DirectoryQueue(self.place.directory / "outbox").add(sign(message, signer, then))

    def deliver(self) -> int:
        """The exit code of the consumer."""
        self.place.succeed("sam-publish", "spool", "drain")
        return self.place.run("sam-consume", "run", "--drain").code

    def replay(self) -> None:
        self.place.succeed("sam-consume", "dead-letter", "replay", "--all")

    @property
    def loaded(self) -> tuple[Sequence[str], Sequence[str]]:
        """The identity of each loaded result, and the reason of each dead letter."""
        rows = query(self.place.database, "SELECT publisher FROM metricOutput")
        letters = self.place.succeed("sam-consume", "dead-letter", "list", "--json").json
        return [str(row["publisher"]) for row in rows], sorted(row["reason"] for row in letters)


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return Road(tmp_path)


def test_a_spool_older_than_its_signatures_may_be_waits_as_letters_until_it_is_accepted(
    road: Road,
) -> None:
    road.accept_for(days=1)
    road.spool_result()
    road.spool_old_result(timedelta(days=2))
    assert road.deliver() == BAD_DATA
    assert road.loaded == (["key:nagios1"], ["signature-expired"])

    road.accept_for(days=3)
    road.replay()

    assert road.loaded == (["key:nagios1"] * 2, [])


def test_while_a_key_is_replaced_old_spools_are_loaded_and_afterwards_they_are_not(
    road: Road,
) -> None:
    road.spool_old_result(timedelta(hours=1))
    (road.place.directory / "nagios1.pem").rename(road.place.directory / "old.pem")
    new = road.place.succeed("sam-publish", "key", "make", "nagios1").out
    old_key, new_key = (re.search(r'"(ed25519:.+)"', text) for text in (road.lines, new))
    assert old_key and new_key

    road.permit(new)
    road.spool_result()
    assert road.deliver() == BAD_DATA
    assert road.loaded == (["key:nagios1"], ["bad-signature"])

    road.permit(f'is = ["key:nagios1"]\nkeys = ["{new_key[1]}", "{old_key[1]}"]\n')
    road.replay()

    assert road.loaded == (["key:nagios1"] * 2, [])


def test_what_somebody_changed_or_added_on_the_way_is_refused(road: Road) -> None:
    road.spool_result()
    assert road.place.succeed("sam-publish", "spool", "drain").code == OK
    [element] = (road.place.directory / "spool").glob("*/*")
    element.write_text(element.read_text().replace("metricStatus: OK", "metricStatus: CRITICAL"))
    forger = replace(road.place, environment={"SAM_PUBLISHER_SIGNING_KEY_FILE": ""})
    forger.succeed(*RESULT)

    assert road.deliver() == BAD_DATA
    assert road.loaded == ([], ["bad-signature", "not-authorised"])
