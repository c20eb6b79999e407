"""What different messages say about one row is kept; nothing is kept about all other rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import Loaded, load
from tests.support.builders import NOW, metric_result
from tests.support.database.own_class import run
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    downtime,
    insert,
    query,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)

VICTIM, FORGER = "key:nagios-cern", "key:forger"
TRUE_ROWS: Mapping[str, Mapping[str, object]] = {
    "metricOutput": metric_result(detailsData="true"),
    "serviceEndpoint": service_endpoint(production="Y"),
    "siteGroup": site_group(),
    "siteContact": site_contact(),
    "downtime": downtime(description="power cut"),
}
WINNING = {
    "metricOutput": {"metricStatus": "CRITICAL", "summaryData": "forged", "detailsData": "forged"},
    "serviceEndpoint": {"validTo": "2026-11-01T00:00:00Z"},
    "siteGroup": {"validTo": "2026-11-02T00:00:00Z", "weight": "1"},
    "siteContact": {"contact": "forger", "timestamp": "2026-11-19T00:00:00Z"},
    "downtime": {"endTime": "2026-11-20T12:00:00Z", "timestamp": "2026-11-19T00:00:00Z"},
}
LOSING = {
    "metricOutput": {"summaryData": "forged"},
    "serviceEndpoint": {"production": "N"},
    "siteGroup": {"weight": "99"},
    "siteContact": {"timestamp": "2026-11-17T00:00:00Z"},
    "downtime": {"endTime": "2026-11-20T12:00:00Z"},
}


TABLES = {
    "metricOutput": ("metric_result_detail", "metric_result"),
    "serviceEndpoint": ("endpoint_membership",),
    "siteGroup": ("site_group_member",),
    "siteContact": ("site_contact",),
    "downtime": ("announced_downtime",),
}
SAID = """
    SELECT c.record, c.message_id, p.identity, c.received_at
    FROM claim AS c JOIN publisher AS p ON p.publisher_id = c.publisher_id
    ORDER BY c.claim_id
"""


def load_now(engine: Engine, *messages: Message) -> Loaded:
    with acting_as("loader", engine) as loader:
        return load(loader, Catalogue(loader), messages, NOW)


def sent(class_name: str, row: Mapping[str, object], sender: str = VICTIM) -> Message:
    text = write_wlcg({key: str(value) for key, value in row.items()})
    return with_identity(new_message(class_name, text), sender)


def claims(engine: Engine) -> list[tuple[str, str, Mapping[str, Any]]]:
    """The class, the identity and the record of each claim, with keys in lower case."""
    rows = query(
        engine,
        """
        SELECT c.class, p.identity, c.record
        FROM claim AS c JOIN publisher AS p ON p.publisher_id = c.publisher_id
        ORDER BY c.claim_id
        """,
    )
    return [
        (name, identity, {key.lower(): value for key, value in json.loads(record).items()})
        for name, identity, record in rows
    ]


def everything(engine: Engine, class_name: str) -> list[tuple[Any, ...]]:
    """The rows of a view, with who sent them and when they arrived."""
    return query(engine, f"SELECT * FROM {class_name}")


def moment(stored_time: int | datetime) -> str:
    """A time of a table as the views accept it."""
    if isinstance(stored_time, int):
        return format_time(datetime.fromtimestamp(stored_time, UTC))
    return stored_time.isoformat()


@pytest.mark.parametrize("class_name", TRUE_ROWS)
def test_one_message_about_a_row_delivered_twice_is_no_claim(
    engine: Engine, class_name: str
) -> None:
    message = sent(class_name, TRUE_ROWS[class_name])

    load_now(engine, message, message)
    load_now(engine, message)

    assert claims(engine) == []


@pytest.mark.parametrize("outcome", [WINNING, LOSING], ids=["wins", "loses"])
@pytest.mark.parametrize("class_name", TRUE_ROWS)
def test_the_row_and_the_statement_that_differs_from_it_are_kept_whichever_wins(
    engine: Engine, class_name: str, outcome: Mapping[str, Mapping[str, object]]
) -> None:
    true_row = TRUE_ROWS[class_name]
    forged_row = {**true_row, **outcome[class_name]}
    load_now(engine, sent(class_name, true_row))
    [before] = stored(engine, class_name)

    loaded = load_now(engine, sent(class_name, forged_row, FORGER))

    [after] = stored(engine, class_name)
    assert (loaded.rows, loaded.duplicates) == ((1, 0) if outcome is WINNING else (0, 1))
    assert (after == before) == (outcome is LOSING)
    kept = claims(engine)
    assert [(name, identity) for name, identity, _ in kept] == [
        (class_name, VICTIM),
        (class_name, FORGER),
    ]
    assert kept[0][2].keys() == {key.lower() for key in before.keys() - {"messageId"}}
    differing = {key.lower() for key in outcome[class_name]}
    assert {key for key in kept[1][2] if kept[0][2].get(key) != kept[1][2][key]} == differing


@pytest.mark.parametrize("class_name", TRUE_ROWS)
def test_statements_of_one_batch_are_kept_like_those_of_several(
    engine: Engine, class_name: str
) -> None:
    true_row = TRUE_ROWS[class_name]
    said = [
        sent(class_name, true_row),
        sent(class_name, {**true_row, **LOSING[class_name]}, FORGER),
        sent(class_name, {**true_row, **WINNING[class_name]}, "uid:1"),
    ]

    load_now(engine, *said)
    load_now(engine, *said)

    assert {identity for _, identity, _ in claims(engine)} == {VICTIM, FORGER, "uid:1"}
    assert len(claims(engine)) == 3


@pytest.mark.parametrize("class_name", TRUE_ROWS)
def test_the_first_and_the_last_of_many_repetitions_are_kept(
    engine: Engine, class_name: str
) -> None:
    messages = [sent(class_name, TRUE_ROWS[class_name]) for _ in range(4)]

    outcomes = [load_now(engine, message) for message in messages]

    assert [loaded.duplicates for loaded in outcomes] == [0, 1, 1, 1]
    ids = query(engine, "SELECT message_id FROM claim ORDER BY claim_id")
    assert ids == [(messages[0].message_id,), (messages[-1].message_id,)]


@pytest.mark.parametrize("class_name", TRUE_ROWS)
def test_the_claims_about_a_row_inserted_in_their_order_make_the_same_row(
    engine: Engine, class_name: str
) -> None:
    true_row = TRUE_ROWS[class_name]
    load_now(engine, sent(class_name, true_row))
    for change in (LOSING, WINNING):
        load_now(engine, sent(class_name, {**true_row, **change[class_name]}, FORGER))
    [row] = everything(engine, class_name)
    with reading(engine) as connection:
        said = connection.execute(text(SAID)).all()
    kept = claims(engine)
    run(engine, *(f"DELETE FROM {table}" for table in (*TABLES[class_name], "claim")))

    for record, message_id, identity, received_at in said:
        facts = {"messageId": message_id, "publisher": identity, "receivedAt": moment(received_at)}
        insert(engine, class_name, {**json.loads(record), **facts})

    assert everything(engine, class_name) == [row]
    assert claims(engine) == kept


def test_a_row_shows_who_sent_it_and_when_it_arrived(engine: Engine) -> None:
    load_now(engine, sent("metricOutput", metric_result()))
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
