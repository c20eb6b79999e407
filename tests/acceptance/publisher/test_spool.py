"""What the installed command says of elements that it could not send, and how they are dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import closed_port
from tests.support.commands import RESULT, Workplace

OK, BAD_DATA, NO_INPUT, FULL, TRY_LATER = 0, 65, 66, 74, 75


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """A spool `outbox` of at most three messages, and no broker."""
    return Workplace(
        tmp_path,
        broker=f"stomp://127.0.0.1:{closed_port()}",
        database="sqlite://",
        environment={"SAM_PUBLISHER_SPOOL_MAX_MESSAGES": "3", "SAM_PUBLISHER_TIMEOUT_S": "5"},
    ).write_configuration()


def spool_results(place: Workplace, count: int) -> DirectoryQueue:
    for _ in range(count):
        place.succeed(*RESULT)
    return DirectoryQueue(place.directory / "outbox")


def test_a_drain_beside_others_says_who_has_the_rest_and_exits_75(place: Workplace) -> None:
    queue = spool_results(place, 2)
    queue.lock(next(queue.names()))

    drained = place.run(
        "sam-publish", "spool", "drain", "--broker", f"spool://{place.directory}/target"
    )

    assert drained.code == TRY_LATER, str(drained)
    assert "drained 1 message" in drained.out
    assert "1 left (1 locked by other processes" in drained.out


def test_what_was_set_aside_fills_the_spool_until_it_is_dropped(place: Workplace) -> None:
    queue = spool_results(place, 3)
    damaged, *others = queue.names()
    (queue.path / damaged).write_text("{")
    place.succeed("sam-publish", "spool", "repair")

    full = place.run(*RESULT)
    listed = place.succeed("sam-publish", "spool", "list", "--json").json
    dropped = place.succeed("sam-publish", "spool", "drop", listed[-1]["element"])
    place.succeed(*RESULT)

    assert (full.code, f"drop what was set aside in {queue.path}.bad" in full.err) == (FULL, True)
    assert [row["element"] for row in listed[:2]] == others
    assert (listed[-1]["set_aside"], "Expecting" in listed[-1]["damage"]) == (True, True)
    assert dropped.out.startswith(f"dropped {damaged.replace('/', '.')}: ")
    assert queue.count() == 3


def test_an_id_that_does_not_exist_drops_nothing_and_exits_66(place: Workplace) -> None:
    queue = spool_results(place, 1)
    (name,) = queue.names()

    answer = place.run("sam-publish", "spool", "drop", name, "no-such-id")

    assert (answer.code, "no-such-id" in answer.err) == (NO_INPUT, True), str(answer)
    assert list(queue.names()) == [name]
