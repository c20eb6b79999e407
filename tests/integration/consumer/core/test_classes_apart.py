"""Failures that affect one class or row only: a violated constraint, a broken view."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.sql.database.engine import make_engine, parse_url
from tests.integration.conftest import DIALECTS
from tests.support.consumer.faults import SpoolSite, site_group, spool_site
from tests.support.consumer.site import Site
from tests.support.database.own_class import make_class

ROWS, ROWS_PER_MESSAGE = 1000, 50
BAD_ONE = 421


@pytest.fixture(params=DIALECTS)
def spool(request: pytest.FixtureRequest, tmp_path: Path) -> SpoolSite:
    """A site with a custom class: how long jobs wait in a queue."""
    if request.param == "sqlite":
        spool = spool_site(tmp_path, f"sqlite:///{tmp_path}/sam.db")
    else:
        spool = spool_site(tmp_path, request.getfixturevalue("postgres_url"))
    engine = make_engine(spool.site.database)
    make_class(engine, "waiting", ce="text NOT NULL", minutes="integer CHECK (minutes >= 0)")
    engine.dispose()
    if request.param == "postgresql":
        spool.site.execute("GRANT INSERT ON waiting TO sam_loader")
    return spool


def waiting(numbers: Sequence[int]) -> Message:
    records = [{"ce": f"ce{number}", "minutes": number} for number in numbers]
    return new_message("waiting", json.dumps(records), content_type="application/json")


def waiting_rows(site: Site) -> int:
    return int(site.scalar("SELECT count(*) FROM waiting"))


def test_the_only_row_of_a_thousand_that_violates_a_constraint_is_a_dead_letter(
    spool: SpoolSite,
) -> None:
    load_a_thousand_rows_of_which_one_is_negative(spool)

    assert waiting_rows(spool.site) == ROWS - 1
    error = str(spool.site.scalar("SELECT error FROM dead_letter"))
    assert error.startswith(("waiting: 23514: ", "waiting: SQLITE_CONSTRAINT_CHECK: "))
    assert "minutes '-1'" in error


@pytest.mark.parametrize("spool", ["postgresql"], indirect=True)
def test_a_row_that_violates_a_deferred_constraint_is_a_dead_letter(
    spool: SpoolSite,
) -> None:
    spool.site.execute("""
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
    """)

    load_a_thousand_rows_of_which_one_is_negative(spool)

    assert waiting_rows(spool.site) == ROWS - 1
    error = spool.site.scalar("SELECT error FROM dead_letter")
    assert str(error).startswith("waiting: 23514: minutes is -1")


def load_a_thousand_rows_of_which_one_is_negative(spool: SpoolSite) -> None:
    numbers = [number if number != BAD_ONE else -1 for number in range(ROWS)]
    starts = range(0, ROWS, ROWS_PER_MESSAGE)
    spool.fill([waiting(numbers[start : start + ROWS_PER_MESSAGE]) for start in starts])
    with spool.daemon():
        spool.wait_until_loaded(rows=0, dead_letters=1)


DAMAGES = {
    "no view": ("sqlite", "DROP VIEW waiting"),
    "no table": ("sqlite", 'DROP TABLE "kept waiting"'),
    "no view and no trigger": ("postgresql", "DROP VIEW waiting"),
    "a missing column": (
        "postgresql",
        'ALTER TABLE "kept waiting" RENAME COLUMN minutes TO hours',
    ),
    "a missing privilege": ("postgresql", "REVOKE INSERT ON waiting FROM sam_loader"),
}


@pytest.mark.parametrize(
    ("spool", "statement"), DAMAGES.values(), ids=DAMAGES.keys(), indirect=["spool"]
)
def test_only_the_messages_of_a_broken_class_are_parked(spool: SpoolSite, statement: str) -> None:
    with spool.daemon():
        spool.fill([waiting(range(10)), site_group("before")])
        spool.wait_until_loaded(rows=0)
        spool.site.execute(statement)
        spool.fill([waiting(range(10, 20)), site_group("after")])

        spool.wait_until_loaded(rows=0, dead_letters=1)

    assert spool.site.scalar("SELECT count(*) FROM siteGroup") == 2
    assert spool.site.scalar("SELECT reason FROM dead_letter") == "class-broken"
    assert spool.site.scalar("SELECT record_number FROM dead_letter") == 0  # the whole message


BROKEN = {
    "no trigger": ("DROP TRIGGER metricOutput_insert ON metricOutput", "metricoutput"),
    "no privilege": ("REVOKE INSERT ON waiting FROM sam_loader", "lacks INSERT on waiting"),
    "no privilege on dead letters": (
        "REVOKE INSERT ON dead_letter FROM sam_loader",
        "lacks INSERT on dead_letter",
    ),
    "a setting": (
        "ALTER ROLE loader_login IN DATABASE {database} SET synchronous_commit = off",
        "synchronous_commit is off",
    ),
    "a setting of triggers": (
        "ALTER DATABASE {database} SET session_replication_role = replica",
        "session_replication_role is replica",
    ),
}


@pytest.mark.parametrize(
    ("spool", "statement", "stem"),
    [("postgresql", *case) for case in BROKEN.values()],
    ids=BROKEN.keys(),
    indirect=["spool"],
)
def test_check_reports_a_database_that_cannot_store_messages(
    spool: SpoolSite, statement: str, stem: str
) -> None:
    spool.site.execute(statement.format(database=parse_url(spool.site.database).database))

    checked = spool.site.run("check")

    assert checked.returncode == 78
    _, line = checked.stderr.splitlines()  # there is no policy, and one problem
    assert stem in line
