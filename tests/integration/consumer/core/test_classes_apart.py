"""Failures that affect one class or row only: a violated constraint, a broken view."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.sql.database.engine import make_engine
from tests.support.consumer.daemon import running
from tests.support.consumer.site import Site, eventually, make_site
from tests.support.database.own_class import make_class

ROWS, ROWS_PER_MESSAGE = 1000, 50
BAD_ONE = 421


@pytest.fixture
def site(tmp_path: Path, own_url: str) -> Site:
    """A site with a custom class: how long jobs wait in a queue."""
    site = make_site(tmp_path, own_url, [f"spool://{tmp_path}/spool"])
    engine = make_engine(own_url)
    make_class(engine, "waiting", ce="text NOT NULL", minutes="integer CHECK (minutes >= 0)")
    engine.dispose()
    if own_url.startswith("postgresql"):
        site.execute("GRANT INSERT ON waiting TO sam_loader")
    return site


def waiting(numbers: Sequence[int]) -> Message:
    records = [{"ce": f"ce{number}", "minutes": number} for number in numbers]
    return new_message("waiting", json.dumps(records), content_type="application/json")


def site_group(name: str) -> Message:
    lines = ("siteName: S", f"groupName: {name}", "groupType: region")
    return new_message(
        "siteGroup", "\n".join([*lines, "validFrom: 2026-11-01T00:00:00Z", "EOT", ""])
    )


DEFERRED = """
    ALTER TABLE "kept waiting" DROP CONSTRAINT "kept waiting_minutes_check";
    CREATE FUNCTION not_negative() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.minutes < 0 THEN
            RAISE check_violation USING MESSAGE = 'minutes is ' || NEW.minutes;
        END IF;
        RETURN NEW;
    END $$;
    CREATE CONSTRAINT TRIGGER not_negative AFTER INSERT ON "kept waiting"
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION not_negative();
"""


@pytest.mark.parametrize(
    ("own_url", "statement", "error"),
    [
        ("sqlite", "SELECT 1", "waiting: SQLITE_CONSTRAINT_CHECK: "),
        ("postgresql", "SELECT 1", "waiting: 23514: "),
        ("postgresql", DEFERRED, "waiting: 23514: minutes is -1"),
    ],
    ids=["sqlite", "postgresql", "deferred"],
    indirect=["own_url"],
)
def test_the_only_row_of_a_thousand_that_violates_a_constraint_is_a_dead_letter(
    site: Site, statement: str, error: str
) -> None:
    site.execute(statement)
    numbers = [number if number != BAD_ONE else -1 for number in range(ROWS)]
    starts = range(0, ROWS, ROWS_PER_MESSAGE)
    site.fill(*(waiting(numbers[start : start + ROWS_PER_MESSAGE]) for start in starts))

    assert site.drain().code == 65

    assert site.scalar("SELECT count(*) FROM waiting") == ROWS - 1
    letter = str(site.scalar("SELECT error FROM dead_letter"))
    assert letter.startswith(error)
    assert "minutes '-1'" in letter or statement == DEFERRED


@pytest.mark.parametrize(
    ("own_url", "statement"),
    [
        ("sqlite", "DROP VIEW waiting"),
        ("sqlite", 'DROP TABLE "kept waiting"'),
        ("postgresql", "DROP VIEW waiting"),
        ("postgresql", 'ALTER TABLE "kept waiting" RENAME COLUMN minutes TO hours'),
        ("postgresql", "REVOKE INSERT ON waiting FROM sam_loader"),
    ],
    indirect=["own_url"],
)
def test_only_the_messages_of_a_broken_class_are_parked(site: Site, statement: str) -> None:
    with running(site):  # which knows the class
        site.fill(waiting(range(10)), site_group("before"))
        eventually(lambda: site.scalar("SELECT count(*) FROM siteGroup") == 1)
        site.execute(statement)
        site.fill(waiting(range(10, 20)), site_group("after"))
        eventually(lambda: site.scalar("SELECT count(*) FROM siteGroup") == 2 and site.letters())

    letters = site.column("SELECT reason || record_number FROM dead_letter")
    assert letters == ["class-broken0"]  # record 0 is the whole message
