"""Bad input through `sam-consume run --drain`: each is a dead letter with its reason, and the next
message is loaded."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest

from sam_pipeline.sql.database.engine import make_engine
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.conservation import numbered
from tests.support.consumer.bad_inputs import A_ROW, INPUTS, Input
from tests.support.consumer.daemon import Subscription, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import fill_spool, subscribe
from tests.support.database.letters import list_dead_letters

BAD = [case for case in INPUTS if case.reason != A_ROW]
VALID = [case for case in INPUTS if case.reason == A_ROW]
NEXT = "after"


@dataclass(frozen=True)
class Outcome:
    """The result of draining all inputs, each followed by a valid message."""

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
        for number, case in enumerate(INPUTS)
        for message in (case.message, *numbered(NEXT, [number]))
    ]
    if request.param == "a spool into SQLite":
        spool = directory / "spool"
        fill_spool(spool, messages)
        site = site_of(directory, [f"spool://{spool}"], Subscription("/topic/none"))
    else:
        broker = request.getfixturevalue(request.param.split()[0].lower())
        postgres: PostgresServer = request.getfixturevalue("postgres")
        destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
        database = fresh_database(postgres)
        site = site_of(directory, [broker.url], Subscription(destination), database=database)
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


@pytest.mark.parametrize("bad_input", BAD, ids=lambda bad_input: bad_input.name)
def test_a_bad_input_is_a_dead_letter_with_its_reason_and_not_a_row(
    outcome: Outcome, bad_input: Input
) -> None:
    assert outcome.reasons.get(bad_input.message_id) == [bad_input.reason]
    assert bad_input.message_id not in outcome.row_ids


@pytest.mark.parametrize("valid_input", VALID, ids=lambda valid_input: valid_input.name)
def test_a_valid_input_that_looks_bad_is_a_row(outcome: Outcome, valid_input: Input) -> None:
    assert valid_input.message_id not in outcome.reasons
    assert valid_input.message_id in outcome.row_ids


@pytest.mark.parametrize("number", range(len(INPUTS)), ids=[case.name for case in INPUTS])
def test_the_next_message_is_loaded(outcome: Outcome, number: int) -> None:
    assert f"{NEXT}-{number}" in outcome.keys


def test_nothing_else_became_a_dead_letter(outcome: Outcome) -> None:
    assert outcome.reasons.keys() == {bad_input.message_id for bad_input in BAD}
    assert outcome.code == 65
