"""What different messages say about one row is kept; nothing is kept about all other rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.support.builders import metric_result
from tests.support.database.letters import load_now
from tests.support.database.sql_rows import (
    EXAMPLES,
    LOSING,
    WINNING,
    downtime,
    insert,
    message_of,
    query,
    site_group,
    stored,
)

VICTIM, FORGER = "key:nagios-cern", "key:forger"
SAID = """
    SELECT c.class, p.identity, c.record
    FROM claim AS c JOIN publisher AS p ON p.publisher_id = c.publisher_id
    ORDER BY c.claim_id
"""


def claims(engine: Engine) -> list[tuple[str, str, Mapping[str, Any]]]:
    """The class, the identity and the record of each claim, with keys in lower case."""
    return [
        (name, identity, {key.lower(): value for key, value in json.loads(record).items()})
        for name, identity, record in query(engine, SAID)
    ]


@pytest.mark.parametrize("view", EXAMPLES)
def test_only_the_first_and_the_last_of_many_repetitions_are_kept(
    engine: Engine, view: str
) -> None:
    messages = [message_of(view, EXAMPLES[view], sender=VICTIM) for _ in range(4)]
    load_now(engine, messages[0], messages[0])
    load_now(engine, messages[0])
    assert claims(engine) == []  # one message, delivered again

    outcomes = [load_now(engine, message) for message in messages[1:]]

    assert [loaded.duplicates for loaded in outcomes] == [1, 1, 1]
    ids = query(engine, "SELECT message_id FROM claim ORDER BY claim_id")
    assert ids == [(messages[0].message_id,), (messages[-1].message_id,)]


@pytest.mark.parametrize("together", [False, True], ids=["batches", "one batch"])
@pytest.mark.parametrize("outcome", [WINNING, LOSING], ids=["wins", "loses"])
@pytest.mark.parametrize("view", EXAMPLES)
def test_the_row_and_the_statement_that_differs_from_it_are_kept_whichever_wins(
    engine: Engine, view: str, outcome: Mapping[str, Mapping[str, object]], together: bool
) -> None:
    row = message_of(view, EXAMPLES[view], sender=VICTIM)
    other = message_of(view, {**EXAMPLES[view], **outcome[view]}, sender=FORGER)
    if together:
        load_now(engine, row, other)
        load_now(engine, row, other)
        assert {identity for _, identity, _ in claims(engine)} == {VICTIM, FORGER}
        assert len(claims(engine)) == 2
        return
    load_now(engine, row)
    [before] = stored(engine, view)

    load_now(engine, other)

    [after] = stored(engine, view)
    assert (after == before) == (outcome is LOSING)
    (_, first, true), (_, second, forged) = claims(engine)
    assert (first, second) == (VICTIM, FORGER)
    assert true.keys() == {key.lower() for key in before.keys() - {"messageId"}}
    assert {key for key in forged if true.get(key) != forged[key]} == {
        key.lower() for key in outcome[view]
    }


def test_a_row_shows_who_sent_it_and_when_it_arrived(engine: Engine) -> None:
    load_now(engine, message_of("metricOutput", metric_result(), sender=VICTIM))
    insert(engine, "siteGroup", site_group())
    insert(engine, "downtime", downtime(publisher="uid:7", receivedAt="2026-11-19T00:00:00Z"))

    [(publisher, received)] = query(engine, "SELECT publisher, receivedAt FROM metricOutput")
    assert publisher == VICTIM
    assert "2026-01-01" < received < "9999"
    [(operator,)] = query(engine, "SELECT publisher FROM siteGroup")
    assert operator.split(":")[0] == "operator"
    assert query(engine, "SELECT publisher, receivedAt FROM downtime") == [
        ("uid:7", "2026-11-19T00:00:00Z")
    ]
