"""Where the database has a message: in rows, claims, dead letters, or the summary of a flood."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.edit import edit_dead_letter
from sam_pipeline.sql.loading.letters.quota import LetterQuota
from sam_pipeline.sql.loading.letters.whereabouts import Whereabouts, whereabouts
from sam_pipeline.sql.loading.load import load
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import downtime, service_endpoint, site_contact, site_group

DAY = timedelta(days=1)
BAD = metric_result(metricStatus="FINE")


def load_now(engine: Engine, *messages: Message, quota: LetterQuota | None = None) -> None:
    with acting_as("loader", engine) as loader:
        load(loader, Catalogue(loader), messages, NOW, quota=quota)


def where(engine: Engine, message_id: str, days: int = 2) -> Whereabouts:
    """As the loader, which can't read results."""
    with acting_as("loader", engine) as loader:
        return whereabouts(loader, message_id, NOW - days * DAY, NOW + DAY)


def test_rows_and_letters_of_one_message_are_found(engine: Engine) -> None:
    message = metric_message(metric_result(), BAD, metric_result(hostName="ce02.example.org"))
    load_now(engine, message, metric_message(metric_result(hostName="other.example.org")))

    found = where(engine, message.message_id)

    assert [row.key["hostName"] for row in found.rows] == ["ce01.example.org", "ce02.example.org"]
    [letter] = found.letters
    assert (letter.record_number, letter.reason) == (2, "bad-status")
    key = found.rows[0].key
    assert {*key} <= {*METRIC_OUTPUT.natural_key}
    assert key["timestamp"] == "2026-11-20T12:00:00Z"
    assert key["voName"] == "ops"
    assert found.is_known
    assert found.not_searched == []


def test_results_outside_of_the_period_are_not_searched(engine: Engine) -> None:
    message = metric_message(metric_result(timestamp="2026-11-10T12:00:00Z"))
    load_now(engine, message)

    assert not where(engine, message.message_id).is_known
    assert len(where(engine, message.message_id, days=11).rows) == 1


@pytest.mark.parametrize(
    ("name", "record", "key"),
    [
        ("serviceEndpoint", service_endpoint(), ("hostName", "ce01.example.org")),
        ("siteGroup", site_group(), ("groupType", "federation")),
        ("siteContact", site_contact(), ("siteName", "EXAMPLE-LCG2")),
        ("downtime", downtime(), ("downtimeId", "D1")),
    ],
)
def test_rows_of_every_class_are_found(
    engine: Engine, name: str, record: dict[str, str], key: tuple[str, str]
) -> None:
    message = new_message(name, write_wlcg(record))
    load_now(engine, message)

    [row] = where(engine, message.message_id).rows

    assert (row.message_class, row.is_claim) == (name, False)
    assert row.key[key[0]] == key[1]
    assert row.received_at is not None


def test_a_message_whose_record_another_one_replaced_is_a_claim(engine: Engine) -> None:
    first = metric_message(metric_result(metricStatus="OK"))
    second = metric_message(metric_result(metricStatus="CRITICAL"))
    load_now(engine, first)
    load_now(engine, second)

    [claim] = where(engine, first.message_id).rows
    [row] = where(engine, second.message_id).rows

    assert (claim.is_claim, row.is_claim) == (True, False)
    assert claim.key == row.key


def test_an_edited_letter_and_the_one_it_replaced_are_found(engine: Engine) -> None:
    message = metric_message(BAD)
    load_now(engine, message)
    [letter] = list_dead_letters(engine)
    with acting_as("loader", engine) as loader:
        edit_dead_letter(loader, letter.dead_letter_id, NOW, b"x")

    found = where(engine, message.message_id).letters

    assert [letter.state for letter in found] == ["dropped", "open"]


def test_a_foreign_message_is_found_by_the_hash_that_is_its_id(engine: Engine) -> None:
    message = Message({"messageClass": "metricOutput"}, metric_message(metric_result(), BAD).body)
    load_now(engine, message)

    found = where(engine, message.message_id)

    assert message.message_id.startswith("sha256:")
    assert (len(found.rows), len(found.letters)) == (1, 1)


def test_a_message_with_an_id_that_is_too_long_for_the_index_is_found(engine: Engine) -> None:
    message = metric_message(BAD, samMessageId="x" * 1000)
    load_now(engine, message)

    assert len(where(engine, "x" * 1000).letters) == 1


def test_a_message_of_a_flood_is_found_in_the_summary_that_quotes_it(engine: Engine) -> None:
    messages = [metric_message(metric_result(metricStatus=f"FINE{n}")) for n in range(3)]
    load_now(engine, *messages, quota=LetterQuota(1, 10_000_000))

    found = [where(engine, message.message_id) for message in messages]

    assert sum(len(one.letters) for one in found) == 1
    assert sum(len(one.summaries) for one in found) == 2
    assert not where(engine, "%").is_known


@pytest.fixture
def own_class(engine: Engine) -> Iterator[None]:
    """A class of the site, with one row; the tests share a database of PostgreSQL."""
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE t (a text, message_id text)"))
        connection.execute(text("CREATE VIEW ownClass AS SELECT a, message_id AS messageId FROM t"))
        connection.execute(text("INSERT INTO t VALUES ('x', 'm-1')"))
        if engine.dialect.name == "sqlite":
            connection.execute(
                text("CREATE TRIGGER own INSTEAD OF INSERT ON ownClass BEGIN SELECT 1; END")
            )
        else:
            connection.execute(
                text(
                    "CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql"
                    " AS $$ BEGIN RETURN NEW; END $$"
                )
            )
            connection.execute(
                text(
                    "CREATE TRIGGER own INSTEAD OF INSERT ON ownClass"
                    " FOR EACH ROW EXECUTE FUNCTION own()"
                )
            )
    yield
    with writing(engine) as connection:
        connection.execute(text("DROP VIEW ownClass"))
        connection.execute(text("DROP TABLE t"))
        if engine.dialect.name == "postgresql":
            connection.execute(text("DROP FUNCTION own"))


@pytest.mark.usefixtures("own_class")
def test_rows_of_a_class_of_the_site_are_found_where_the_login_may_read_it(engine: Engine) -> None:
    mine = whereabouts(engine, "m-1", NOW, NOW)
    as_loader = where(engine, "m-1")

    [row] = mine.rows
    assert row.key["a"] == "x"
    if engine.dialect.name == "postgresql":
        assert as_loader.rows == []
        assert as_loader.not_searched == ["ownclass (permission denied)"]
