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
from sam_pipeline.sql.checks.repair import repair
from sam_pipeline.sql.database.engine import make_engine, name_of
from sam_pipeline.sql.errors import SchemaMismatch
from tests.services.postgres import as_role
from tests.support.database.dialects import only_on
from tests.support.database.own_class import add_trigger, run
from tests.support.database.sam_db import sam_db_on, url_of
from tests.support.database.sql_rows import query

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
def grafana(own_engine: Engine) -> Iterator[None]:
    """A role of the site's own, dropped at the end because roles belong to the server."""
    run(own_engine, "CREATE ROLE grafana")
    yield
    run(own_engine, "DROP OWNED BY grafana", "DROP ROLE grafana")


on_postgresql = only_on("postgresql", "own_url")


def add_a_column(engine: Engine) -> None:
    """The view has a column more, so that it must be dropped."""
    [(old,)] = query(engine, "SELECT rtrim(pg_get_viewdef('site_availability'), ';')")
    view = f"CREATE OR REPLACE VIEW site_availability AS SELECT *, 1 AS more FROM ({old}) AS a"
    run(engine, f"SET LOCAL ROLE sam_owner; {view}")


IN_THE_WAY = {
    "view site.mine": "CREATE VIEW site.mine AS SELECT site FROM site_availability",
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
    own_engine: Engine, grafana: None, tmp_path: Path
) -> None:
    add_a_column(own_engine)
    run(own_engine, "CREATE SCHEMA site", "DROP VIEW report_seal")
    sam_db, before = sam_db_on(own_engine, tmp_path), find_problems(own_engine)
    for name, statement in IN_THE_WAY.items():
        run(own_engine, statement)

        refused = sam_db("repair")

        assert (refused.code, refused.out) == (CONFIG, "")
        assert "site_availability" in refused.err and f" {name}" in refused.err
        kind, _, place = name.partition(" on ")[0].rpartition(" ")
        on = " ON site_availability" if " on " in name else ""
        if kind != "grant SELECT":
            run(own_engine, f"DROP {kind} {place}{on}")
    run(own_engine, "REVOKE SELECT (more) ON site_availability FROM grafana")
    assert find_problems(own_engine) == before
    assert repair(own_engine).problems == []


@on_postgresql
def test_views_and_rights_of_a_site_survive_where_a_view_is_replaced_or_dropped(
    own_engine: Engine, grafana: None
) -> None:
    """Also a right that the loader passed on."""
    run(
        own_engine,
        "CREATE SCHEMA site",
        "CREATE VIEW site.mine AS SELECT run_id, level FROM report_change",
        "CREATE VIEW mine AS SELECT * FROM site.mine",
        "GRANT SELECT ON report_change, mine TO grafana",
        "GRANT SELECT ON site_availability TO grafana WITH GRANT OPTION",
        "GRANT SELECT (day) ON site_availability TO grafana",
        "GRANT INSERT ON downtime TO sam_loader WITH GRANT OPTION",
        "SET LOCAL ROLE sam_loader; GRANT INSERT ON downtime TO grafana",
    )
    before = query(own_engine, GRANTS)
    run(own_engine, OTHER_ROWS)
    add_a_column(own_engine)

    done = repair(own_engine).done

    assert {"created view report_change", "created view site_availability"} <= {*done}
    assert find_problems(own_engine) == []
    assert query(own_engine, "SELECT * FROM mine") == []
    assert query(own_engine, GRANTS) == before != []


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
    own_engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(own_engine, "ALTER TABLE site OWNER TO sam", "DROP VIEW report_seal")
    sam_db = sam_db_on(own_engine, tmp_path)
    for role in ("loader", "reporter", "reader"):
        refused = replace(sam_db, url=as_role(sam_db.url, role))("repair")
        assert (refused.code, refused.out) == (NO_PERMISSION, "")
    member = make_engine(as_role(url_of(own_engine), "owner"))

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
    [problem] = second.json["problems"]
    assert (second.json["done"], problem["repair"]) == ([], None)
    assert third.out == f"{name}: nothing to repair\n"
