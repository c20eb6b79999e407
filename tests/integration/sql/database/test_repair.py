"""`repair` recreates objects that differ from the schema files; a site's own objects stay."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import CONFIG, NO_PERMISSION, OK
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.checks.repair import Repair, repair
from sam_pipeline.sql.database.engine import make_engine, name_of
from sam_pipeline.sql.errors import DatabaseRefused, RepairRefused, SchemaMismatch
from tests.services.postgres import as_role
from tests.support.database.dialects import only_on
from tests.support.database.own_class import add_trigger, run
from tests.support.database.sam_db import sam_db_on, url_of
from tests.support.database.sql_rows import EXAMPLES, insert, query

OTHER_ROWS = (
    "CREATE OR REPLACE VIEW report_change AS SELECT c.run_id, r.report, r.day, c.level,"
    " c.names, c.old, c.new, c.reason, c.old_run_id"
    " FROM report_change_row AS c JOIN run AS r ON r.run_id = c.run_id WHERE c.level = 'site'"
)
"""It has the view's own columns, so that the view can be replaced in place."""

GRANTS = """
    SELECT table_name, column_name, privilege_type, is_grantable
    FROM information_schema.column_privileges WHERE grantee = 'grafana' ORDER BY 1, 2, 3, 4
"""


@pytest.fixture
def postgresql(own_engine: Engine) -> Engine:
    return own_engine


@pytest.fixture
def grafana(postgresql: Engine) -> Iterator[None]:
    """A role of the site's own, dropped at the end because roles belong to the server."""
    run(postgresql, "CREATE ROLE grafana")
    yield
    run(postgresql, "DROP OWNED BY grafana", "DROP ROLE grafana")


on_postgresql = only_on("postgresql", "own_url")


def add_a_column(engine: Engine) -> None:
    """The view has a column more, so that it must be dropped."""
    [(old,)] = query(engine, "SELECT rtrim(pg_get_viewdef('site_availability'), ';')")
    view = f"CREATE OR REPLACE VIEW site_availability AS SELECT *, 1 AS more FROM ({old}) AS a"
    run(engine, f"SET LOCAL ROLE sam_owner; {view}")


def test_a_repair_reports_its_changes_and_a_second_one_makes_none(own_engine: Engine) -> None:
    is_sqlite = own_engine.dialect.name == "sqlite"
    assert repair(own_engine) == Repair([], [])
    on_view = "" if is_sqlite else " on downtime"
    run(own_engine, f"DROP TRIGGER downtime_insert{on_view}", "DROP VIEW report_seal")
    if not is_sqlite:
        run(
            own_engine,
            "REVOKE INSERT ON downtime FROM sam_loader",
            "GRANT SELECT ON dead_letter TO PUBLIC",
            "GRANT EXECUTE ON FUNCTION lock_names TO PUBLIC",
        )

    first, second = repair(own_engine), repair(own_engine)

    done = ["created view report_seal", f"created trigger downtime_insert{on_view}"]
    if not is_sqlite:
        done += ["granted INSERT ON downtime TO sam_loader"]
        done += ["revoked SELECT ON dead_letter TO PUBLIC"]
        done += ["revoked EXECUTE ON FUNCTION lock_names() TO PUBLIC"]
    assert [line for line in first.done if "report_seal TO" not in line] == done
    assert (first.problems, second) == ([], Repair([], []))
    insert(own_engine, "downtime", EXAMPLES["downtime"])
    assert find_problems(own_engine) == []


@on_postgresql
def test_a_view_is_replaced_beneath_the_views_of_a_site(postgresql: Engine, grafana: None) -> None:
    run(
        postgresql,
        "CREATE SCHEMA site",
        "CREATE VIEW site.mine AS SELECT run_id, level FROM report_change",
        "CREATE VIEW mine AS SELECT * FROM site.mine",
        "GRANT SELECT ON report_change, mine TO grafana",
        OTHER_ROWS,
    )
    before = query(postgresql, GRANTS)

    assert repair(postgresql).done == ["created view report_change"]

    assert find_problems(postgresql) == []
    assert query(postgresql, "SELECT * FROM mine") == []
    assert query(postgresql, GRANTS) == before


IN_THE_WAY = {
    "view site.mine": "CREATE VIEW site.mine AS SELECT site FROM site_availability",
    "view mine": "CREATE VIEW mine AS SELECT site FROM site_availability",
    "materialized view mine": "CREATE MATERIALIZED VIEW mine AS SELECT site FROM site_availability",
    "function mine(site_availability)": (
        "CREATE FUNCTION mine(site_availability) RETURNS integer LANGUAGE sql AS 'SELECT 1'"
    ),
    "rule mine on site_availability": (
        "CREATE RULE mine AS ON UPDATE TO site_availability DO INSTEAD NOTHING"
    ),
    "trigger mine on site_availability": (
        "CREATE TRIGGER mine INSTEAD OF DELETE ON site_availability"
        " FOR EACH ROW EXECUTE FUNCTION downtime_stage()"
    ),
    "grant SELECT (more)": "GRANT SELECT (more) ON site_availability TO grafana",
}


@on_postgresql
def test_a_sites_own_object_in_the_way_is_named_and_nothing_changed(
    postgresql: Engine, grafana: None, tmp_path: Path
) -> None:
    add_a_column(postgresql)
    run(postgresql, "CREATE SCHEMA site", "DROP VIEW report_seal")
    sam_db, before = sam_db_on(postgresql, tmp_path), find_problems(postgresql)
    for name, statement in IN_THE_WAY.items():
        run(postgresql, statement)

        refused = sam_db("repair")

        assert (refused.code, refused.out) == (CONFIG, "")
        assert "site_availability" in refused.err and f" {name}" in refused.err
        kind, _, place = name.partition(" on ")[0].rpartition(" ")
        on = " ON site_availability" if " on " in name else ""
        if kind != "grant SELECT":
            run(postgresql, f"DROP {kind} {place}{on}")
    run(postgresql, "REVOKE SELECT (more) ON site_availability FROM grafana")
    assert find_problems(postgresql) == before
    assert repair(postgresql).problems == []


@on_postgresql
def test_a_sites_view_in_the_way_of_a_function_is_named(postgresql: Engine) -> None:
    run(
        postgresql,
        "DROP FUNCTION is_time",
        "CREATE FUNCTION is_time(value timestamptz) RETURNS text LANGUAGE sql AS 'SELECT 1::text'",
        "CREATE VIEW mine AS SELECT is_time(now())",
    )

    with pytest.raises(RepairRefused, match=r"function is_time.* view mine"):
        repair(postgresql)


@on_postgresql
def test_rights_of_a_sites_roles_survive_where_a_view_is_dropped(
    postgresql: Engine, grafana: None
) -> None:
    """Also one that the loader passed on."""
    run(
        postgresql,
        "GRANT SELECT ON site_availability TO grafana WITH GRANT OPTION",
        "GRANT SELECT (day) ON site_availability TO grafana",
        "GRANT EXECUTE ON FUNCTION lock_names TO grafana",
        "GRANT INSERT ON downtime TO sam_loader WITH GRANT OPTION",
        "SET LOCAL ROLE sam_loader; GRANT INSERT ON downtime TO grafana",
    )
    before = query(postgresql, GRANTS)
    add_a_column(postgresql)

    done = repair(postgresql).done

    assert "created view site_availability" in done
    assert find_problems(postgresql) == []
    assert query(postgresql, GRANTS) == before != []


def test_a_sites_trigger_on_a_view_of_ours_survives(own_engine: Engine) -> None:
    other_rows = OTHER_ROWS.replace("OR REPLACE ", "")
    if own_engine.dialect.name == "sqlite":
        run(own_engine, "DROP VIEW report_change", other_rows)
    else:
        run(own_engine, OTHER_ROWS)
    add_trigger(own_engine, "report_change", "INSERT INTO site (name) VALUES (NEW.level);")

    assert "created view report_change" in repair(own_engine).done

    run(own_engine, "INSERT INTO report_change (level) VALUES ('S')")
    assert query(own_engine, "SELECT name FROM site") == [("S",)]
    assert find_problems(own_engine) == []


@on_postgresql
def test_only_the_owner_may_repair_and_what_it_may_not_give_away_remains_a_problem(
    postgresql: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(postgresql, "ALTER TABLE site OWNER TO sam", "DROP VIEW report_seal")
    for role in ("loader", "reporter", "reader"):
        other = make_engine(as_role(url_of(postgresql), role))
        with pytest.raises(DatabaseRefused, match=f"sam_owner, .*{role}_login may not"):
            repair(other)
        other.dispose()
    sam_db = sam_db_on(postgresql, tmp_path)
    refused = replace(sam_db, url=as_role(sam_db.url, "reader"))("repair")
    assert (refused.code, refused.out) == (NO_PERMISSION, "")
    member = make_engine(as_role(url_of(postgresql), "owner"))

    with caplog.at_level(logging.WARNING):
        done, [problem] = repair(member)

    assert "created view report_seal" in done
    assert "must be owner of table site" in caplog.text
    assert "to sam, not to sam_owner" in problem.text
    member.dispose()


def test_another_version_or_schema_is_not_repaired(own_engine: Engine) -> None:
    run(own_engine, "DROP VIEW report_seal")
    if own_engine.dialect.name == "postgresql":
        run(own_engine, "CREATE SCHEMA site")
        other = make_engine(f"{url_of(own_engine)}?options=-c%20search_path%3Dsite,public")
        with pytest.raises(ConfigError, match="schema is site, not public"):
            repair(other)
        other.dispose()
    run(own_engine, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaMismatch, match="9999"):
        repair(own_engine)
    assert "report_seal" not in inspect(own_engine).get_view_names()


def test_the_command_prints_changes_and_remaining_problems(
    own_engine: Engine, tmp_path: Path
) -> None:
    sam_db, name = sam_db_on(own_engine, tmp_path), name_of(own_engine)
    run(own_engine, "DROP VIEW report_seal", "DROP INDEX run_report_day")

    first, second = sam_db("repair"), sam_db("repair", "--json")
    run(own_engine, "CREATE INDEX run_report_day ON run (report, day)")
    third = sam_db("repair")

    assert (first.code, second.code, third.code) == (CONFIG, CONFIG, OK)
    assert f"{name}: created view report_seal\n" in first.out
    assert "index run_report_day is missing" in first.out
    assert first.err.startswith(f"sam-db: error: {name}: 1 problem")
    [problem] = second.json["problems"]
    assert (second.json["database"], second.json["done"]) == (name, [])
    assert problem["problem"].startswith(f"{name}: index run_report_day is missing")
    assert problem["repair"] is None
    assert third.out == f"{name}: nothing to repair\n"
