"""Bad input through `sam-consume run --drain`: each is a dead letter with its reason, and the next
message is loaded."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest

from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.dead_letter import list_dead_letters
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.conservation import numbered
from tests.support.consumer.bad_inputs import A_ROW, INPUTS, Input
from tests.support.consumer.daemon import Wanted, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import fill_spool, subscribe

BAD = [each for each in INPUTS if each.reason != A_ROW]
GOOD = [each for each in INPUTS if each.reason == A_ROW]
NEXT = "after"


@dataclass(frozen=True)
class Outcome:
    """What a drain made of all inputs, each with a good message after it."""

    code: int
    reasons: dict[str, list[str]]
    """By message id."""
    row_ids: set[str]
    keys: set[str]


@pytest.fixture(scope="module", params=["a spool into SQLite", "ActiveMQ into PostgreSQL"])
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    directory = tmp_path_factory.mktemp("bad-input")
    messages = [
        message
        for number, each in enumerate(INPUTS)
        for message in (each.message, *numbered(NEXT, [number]))
    ]
    if request.param == "a spool into SQLite":
        spool = directory / "spool"
        fill_spool(spool, messages)
        site = site_of(directory, [f"spool://{spool}"], Wanted("/topic/none"))
    else:
        broker = request.getfixturevalue(request.param.split()[0].lower())
        postgres: PostgresServer = request.getfixturevalue("postgres")
        destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
        database = fresh_database(postgres)
        site = site_of(directory, [broker.url], Wanted(destination), database=database)
        subscribe(broker, site.name, destination)
        publish(broker.host, broker.port, destination, messages)
    drained = site.drain()
    assert drained.summary["messages"] == len(messages), drained.log
    engine = make_engine(site.database)
    reasons: dict[str, list[str]] = {}
    for letter in list_dead_letters(engine):
        reasons.setdefault(letter.message_id, []).append(letter.reason)
    engine.dispose()
    ids = set(site.column("SELECT messageId FROM metricOutput"))
    keys = set(site.column("SELECT summaryData FROM metricOutput"))
    return Outcome(drained.code, reasons, ids, keys)


@pytest.mark.parametrize("given", BAD, ids=lambda given: given.name)
def test_a_bad_input_is_a_dead_letter_with_its_reason_and_not_a_row(
    outcome: Outcome, given: Input
) -> None:
    assert outcome.reasons.get(given.message_id) == [given.reason]
    assert given.message_id not in outcome.row_ids


@pytest.mark.parametrize("given", GOOD, ids=lambda given: given.name)
def test_a_valid_input_that_looks_bad_is_a_row(outcome: Outcome, given: Input) -> None:
    assert given.message_id not in outcome.reasons
    assert given.message_id in outcome.row_ids


@pytest.mark.parametrize("number", range(len(INPUTS)), ids=[each.name for each in INPUTS])
def test_the_next_message_is_loaded(outcome: Outcome, number: int) -> None:
    assert f"{NEXT}-{number}" in outcome.keys


def test_nothing_else_became_a_dead_letter(outcome: Outcome) -> None:
    assert outcome.reasons.keys() == {given.message_id for given in BAD}
    assert outcome.code == 65
