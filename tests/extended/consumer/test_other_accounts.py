"""Senders and readers with accounts of their own, at a spool."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sam_pipeline.schema.identity.identity import uid_identity
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.integration.consumer.core import test_forged_identities as forged
from tests.integration.consumer.core.test_forged_identities import Entrance, Outcome, outcome_of
from tests.services import PRIVILEGED, missing
from tests.services.broker import OTHER_USER, USER
from tests.support.accounts import account, open_directory
from tests.support.builders import metric_message
from tests.support.consumer.site import sqlite_site

UIDS = {USER: 40001, OTHER_USER: 40666}

test_foreign = (
    forged.test_a_result_of_a_foreign_host_is_a_dead_letter_and_those_beside_it_are_loaded
)
test_claims = (
    forged.test_a_claimed_sender_does_not_replace_the_one_that_the_entrance_has_established
)
test_signatures = forged.test_a_signed_message_is_from_its_key_and_wrong_signatures_are_dead_letters
test_counts = forged.test_every_record_is_a_row_or_a_dead_letter_and_counted_by_its_identity


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The same messages as at the brokers, in files of two accounts."""
    if os.geteuid() != 0:
        missing("other accounts", PRIVILEGED)
    directory = tmp_path_factory.mktemp("entrance")
    box, queue = DirectoryQueue(directory / "box"), DirectoryQueue(directory / "spool")

    def send(user: str, destination: str, messages: Sequence[Message]) -> None:
        """As `user`; for a moment each element belongs to us, so the consumer may not see it."""
        for message in messages:
            box.add(Message({**message.headers, "destination": destination}, message.body))
        for name in list(box.names()):
            os.chown(box.path / name, UIDS[user], -1)
            (queue.path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(box.path / name, queue.path / name)

    identities = {user: uid_identity(uid) for user, uid in UIDS.items()}
    database = f"sqlite:///{directory / 'sam.db'}"
    return outcome_of(Entrance(f"spool://{queue.path}", database, identities, send), directory)


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


def test_an_account_that_may_only_read_database_and_spool_can_run_dry(directory: Path) -> None:
    site = sqlite_site(directory)
    site.fill(metric_message())
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    reader = account(4711, directory)
    before = {*directory.iterdir()}

    answer = reader.run(
        *("sam-consume", "--config", site.config, "run", "--dry-run", "--json", "--count", "1")
    )

    assert answer.code == 0, str(answer)
    assert [row["record"] for row in answer.json["rows"]] == [1]
    assert {*directory.iterdir()} == before
