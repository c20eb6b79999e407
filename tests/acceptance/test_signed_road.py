"""Signed results on their whole way: old spools, a key that is replaced, and what is changed."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sam_pipeline.schema.identity.keys import load_signer
from sam_pipeline.schema.identity.signature import sign
from sam_pipeline.schema.program.command import BAD_DATA
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from tests.support.builders import metric_message, metric_result
from tests.support.commands import RESULT, Workplace, embedded
from tests.support.reports.stored import query

POLICY = """
mode = "enforce"
[[publisher]]
name = "cern"
is = ["key:nagios1"]
keys = {keys}
signed = true
classes = ["metricOutput"]
hosts = ["*.example.org"]
"""


def make_key(place: Workplace) -> str:
    """The public part of a new key."""
    found = re.search(r'"(ed25519:.+)"', place.succeed("sam-publish", "key", "make", "nagios1").out)
    assert found
    return found[1]


def accept(place: Workplace, *keys: str, days: int) -> None:
    place.write("publishers.toml", POLICY.format(keys=list(keys)))
    settings = f'publishers = "publishers.toml"\nsignature_age_days = {days}\n'
    replace(place, consumer_settings=settings).write_configuration()


def signed_result(place: Workplace, age: timedelta) -> None:
    """A result that was signed with the present key and spooled a while ago."""
    then = datetime.now(UTC) - age
    signer = load_signer(place.directory / "nagios1.pem")
    result = metric_result(timestamp=format_time(then))
    message = metric_message(result, destination="/topic/grid.probe.metricOutput")
    DirectoryQueue(place.directory / "outbox").add(sign(message, signer, then))


def loaded(place: Workplace) -> tuple[list[str], list[str]]:
    """The identity of each loaded result, and the reason of each dead letter."""
    rows = query(place.database, "SELECT publisher FROM metricOutput")
    letters = place.succeed("sam-consume", "dead-letter", "list", "--json").json
    return [str(row["publisher"]) for row in rows], sorted(row["reason"] for row in letters)


def test_old_spools_wait_as_letters_until_their_keys_and_age_are_accepted_and_forgeries_for_ever(
    tmp_path: Path,
) -> None:
    place = embedded(tmp_path)
    publisher = replace(place, environment={"SAM_PUBLISHER_SIGNING_KEY_FILE": "nagios1.pem"})
    old = make_key(place)
    publisher.succeed(*RESULT, "--metric", "changed")
    [element] = (tmp_path / "spool").glob("*/*")
    element.write_text(element.read_text().replace("metricStatus: OK", "metricStatus: CRITICAL"))
    signed_result(place, timedelta(days=2))
    (tmp_path / "nagios1.pem").rename(tmp_path / "old.pem")
    new = make_key(place)
    place.succeed(*RESULT, "--metric", "unsigned")
    publisher.succeed(*RESULT)
    place.succeed("sam-publish", "spool", "drain")
    forged = ["bad-signature", "not-authorised"]

    accept(place, new, days=1)
    assert place.run("sam-consume", "run", "--drain").code == BAD_DATA
    assert loaded(place) == (["key:nagios1"], ["bad-signature", *forged])

    for days, results, letters in ((1, 1, [*forged, "signature-expired"]), (3, 2, forged)):
        accept(place, new, old, days=days)
        place.run("sam-consume", "dead-letter", "replay", "--all")
        assert loaded(place) == (["key:nagios1"] * results, letters)
