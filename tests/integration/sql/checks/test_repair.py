"""`repair` recreates objects that differ from the schema files; a site's own objects stay."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, inspect

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import CONFIG, NO_PERMISSION, OK
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.checks.repair import Repair, repair
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.database.engine import make_engine, name_of, writing
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.errors import DatabaseRefused, RepairRefused, SchemaMismatch
from tests.services.postgres import as_role
from tests.support.database.own_class import add_trigger
from tests.support.database.sam_db import url_of
from tests.support.database.sql_rows import EXAMPLES, insert, query

OTHER_ROWS = (
    "CREATE OR REPLACE VIEW report_change AS SELECT c.run_id, r.report, r.day, c.level,"
    " c.names, c.old, c.new, c.reason, c.old_run_id"
    " FROM report_change_row AS c JOIN run AS r ON r.run_id = c.run_id WHERE c.level = 'site'"
)
"""It has the view's own columns, so that the view can be replaced in place."""

ANOTHER_COLUMN = "CREATE OR REPLACE VIEW site_availability AS SELECT *, 1 AS more FROM ({old}) AS a"
"""It has a column more, so that the view must be dropped."""
OLD = "SELECT pg_get_viewdef('site_availability')"

GRANTS = """
    SELECT table_name, column_name, privilege_type, is_grantable
    FROM information_schema.column_privileges WHERE grantee = 'grafana' ORDER BY 1, 2, 3, 4
"""


@pytest.fixture
def postgresql(postgres_url: str) -> Iterator[Engine]:
    engine = make_engine(postgres_url)
    upgrade(engine)
    yield engine
    engine.dispose()


def execute(engine: Engine, *statements: str) -> None:
    for statement in statements:
        with writing(engine) as connection:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def add_a_column(engine: Engine) -> None:
    [(old,)] = query(engine, OLD)
    execute(engine, f"SET LOCAL ROLE sam_owner; {ANOTHER_COLUMN.format(old=old.rstrip(';'))}")


@pytest.fixture
def grafana(postgresql: Engine) -> Iterator[None]:
    """A role of the site's own, dropped at the end because roles belong to the server."""
    execute(postgresql, "CREATE ROLE grafana")
    yield
    execute(postgresql, "DROP OWNED BY grafana", "DROP ROLE grafana")


def test_a_sound_database_needs_no_repair(own_engine: Engine) -> None:
    assert repair(own_engine) == Repair([], [])


def test_a_repair_reports_its_changes_and_a_second_one_makes_none(own_engine: Engine) -> None:
    on_view = "" if own_engine.dialect.name == "sqlite" else " on downtime"
    execute(own_engine, f"DROP TRIGGER downtime_insert{on_view}", "DROP VIEW report_seal")

    first, second = repair(own_engine), repair(own_engine)

    created = ["created view report_seal", f"created trigger downtime_insert{on_view}"]
    assert [line for line in first.done if not line.startswith("granted")] == created
    assert (first.problems, second) == ([], Repair([], []))
    insert(own_engine, "downtime", EXAMPLES["downtime"])
    assert find_problems(own_engine) == []


def test_a_repair_reports_the_rights_it_granted_and_revoked(postgresql: Engine) -> None:
    execute(
        postgresql,
        "REVOKE INSERT ON downtime FROM sam_loader",
        "GRANT SELECT ON dead_letter TO PUBLIC",
        "GRANT EXECUTE ON FUNCTION lock_names TO PUBLIC",
    )

    assert repair(postgresql).done == [
        "granted INSERT ON downtime TO sam_loader",
        "revoked SELECT ON dead_letter TO PUBLIC",
        "revoked EXECUTE ON FUNCTION lock_names() TO PUBLIC",
    ]


def test_a_repair_keeps_rows_and_leaves_a_table_that_differs(own_engine: Engine) -> None:
    insert(own_engine, "downtime", EXAMPLES["downtime"])
    before = query(own_engine, "SELECT * FROM announced_downtime")
    execute(own_engine, "DROP INDEX run_report_day", "DROP VIEW report_seal")

    repaired = repair(own_engine)

    assert [problem.repair for problem in repaired.problems] == [None]
    assert "index run_report_day is missing" in repaired.problems[0].text
    assert "CREATE INDEX run_report_day" in repaired.problems[0].text
    assert repaired.problems == find_problems(own_engine)
    assert query(own_engine, "SELECT * FROM announced_downtime") == before


def test_objects_that_need_a_missing_table_are_logged_and_all_others_repaired(
    postgresql: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    execute(
        postgresql,
        "DROP TABLE report_change_row CASCADE",
        "DROP TRIGGER downtime_insert ON downtime",
    )

    with caplog.at_level(logging.WARNING):
        repaired = repair(postgresql)

    assert repaired.done == ["created trigger downtime_insert on downtime"]
    assert 'relation "report_change_row" does not exist' in caplog.text
    texts = [problem.text.rpartition(": ")[2] for problem in repaired.problems]
    assert "table report_change_row is missing" in texts
    assert "view report_change is missing" in texts


def test_a_recreated_object_has_its_comment(postgresql: Engine) -> None:
    comments = "SELECT description FROM pg_description WHERE objoid >= 16384 ORDER BY 1"
    before = query(postgresql, comments)
    execute(postgresql, "DROP VIEW report_change", "DROP FUNCTION downtime_stage CASCADE")

    repair(postgresql)

    assert query(postgresql, comments) == before


def test_a_view_is_replaced_beneath_the_views_of_a_site(postgresql: Engine, grafana: None) -> None:
    execute(
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


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("CREATE VIEW site.mine AS SELECT site FROM site_availability", "view site.mine"),
        ("CREATE VIEW mine AS SELECT site FROM site_availability", "view mine"),
        (
            "CREATE MATERIALIZED VIEW mine AS SELECT site FROM site_availability",
            "materialized view mine",
        ),
        (
            "CREATE FUNCTION mine(site_availability) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "function mine(site_availability)",
        ),
        (
            "CREATE RULE mine AS ON UPDATE TO site_availability DO INSTEAD NOTHING",
            "rule mine on site_availability",
        ),
        (
            (
                "CREATE TRIGGER mine INSTEAD OF DELETE ON site_availability"
                " FOR EACH ROW EXECUTE FUNCTION downtime_stage()"
            ),
            "trigger mine on site_availability",
        ),
    ],
)
def test_a_sites_own_object_in_the_way_is_named_and_nothing_changed(
    postgresql: Engine, statement: str, name: str
) -> None:
    add_a_column(postgresql)
    execute(postgresql, "CREATE SCHEMA site", statement, "DROP VIEW report_seal")
    before = find_problems(postgresql)

    with pytest.raises(RepairRefused, match="view site_availability") as caught:
        repair(postgresql)

    assert f" {name}: " in str(caught.value)
    assert find_problems(postgresql) == before
    assert len(before) >= 2


def test_a_sites_view_in_the_way_of_a_function_is_named(postgresql: Engine) -> None:
    execute(
        postgresql,
        "DROP FUNCTION is_time",
        "CREATE FUNCTION is_time(value timestamptz) RETURNS text LANGUAGE sql AS 'SELECT 1::text'",
        "CREATE VIEW mine AS SELECT is_time(now())",
    )

    with pytest.raises(RepairRefused, match=r"function is_time.* view mine"):
        repair(postgresql)


def test_rights_of_a_sites_roles_survive_where_a_view_is_dropped(
    postgresql: Engine, grafana: None
) -> None:
    execute(
        postgresql,
        "GRANT SELECT ON site_availability TO grafana WITH GRANT OPTION",
        "GRANT SELECT (day) ON site_availability TO grafana",
        "GRANT EXECUTE ON FUNCTION lock_names TO grafana",
    )
    before = query(postgresql, GRANTS)
    add_a_column(postgresql)

    done = repair(postgresql).done

    assert done == ["created view site_availability"]
    assert find_problems(postgresql) == []
    assert query(postgresql, GRANTS) == before


def test_a_right_that_the_loader_passed_on_stays_with_a_sites_role(
    postgresql: Engine, grafana: None
) -> None:
    execute(
        postgresql,
        "GRANT INSERT ON downtime TO sam_loader WITH GRANT OPTION",
        "SET LOCAL ROLE sam_loader; GRANT INSERT ON downtime TO grafana",
    )
    before = query(postgresql, GRANTS)
    assert before

    repair(postgresql)

    assert find_problems(postgresql) == []
    assert query(postgresql, GRANTS) == before


def test_a_right_to_a_column_that_would_be_dropped_is_in_the_way(
    postgresql: Engine, grafana: None
) -> None:
    add_a_column(postgresql)
    execute(postgresql, "GRANT SELECT (more) ON site_availability TO grafana")

    with pytest.raises(RepairRefused, match=r"grant SELECT \(more\)"):
        repair(postgresql)


def test_a_sites_trigger_on_a_view_of_ours_survives(own_engine: Engine) -> None:
    if own_engine.dialect.name == "sqlite":
        execute(
            own_engine,
            "DROP VIEW report_change",
            "CREATE VIEW report_change AS SELECT level FROM report_change_row WHERE level = 'site'",
        )
    else:
        execute(own_engine, OTHER_ROWS)
    add_trigger(own_engine, "report_change", "INSERT INTO site (name) VALUES (NEW.level);")

    assert "created view report_change" in repair(own_engine).done

    execute(own_engine, "INSERT INTO report_change (level) VALUES ('S')")
    assert query(own_engine, "SELECT name FROM site") == [("S",)]
    assert find_problems(own_engine) == []


def test_an_object_that_the_user_may_not_give_away_remains_a_problem(
    postgresql: Engine, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    execute(postgresql, "ALTER TABLE site OWNER TO sam", "DROP VIEW report_seal")
    member = make_engine(as_role(postgres_url, "owner"))

    with caplog.at_level(logging.WARNING):
        done, problems = repair(member)

    assert "created view report_seal" in done
    assert "must be owner of table site" in caplog.text
    [problem] = problems
    assert "to sam, not to sam_owner" in problem.text
    member.dispose()


@pytest.mark.parametrize("role", ["loader", "reporter", "reader"])
def test_only_the_owner_may_repair(postgresql: Engine, postgres_url: str, role: str) -> None:
    execute(postgresql, "DROP VIEW report_seal")
    not_the_owner = make_engine(as_role(postgres_url, role))

    with pytest.raises(DatabaseRefused, match=f"sam_owner, .*{role}_login may not"):
        repair(not_the_owner)

    not_the_owner.dispose()


def test_another_version_is_not_repaired(own_engine: Engine) -> None:
    execute(own_engine, "UPDATE alembic_version SET version_num = '9999'", "DROP VIEW report_seal")

    with pytest.raises(SchemaMismatch, match="9999"):
        repair(own_engine)

    assert "report_seal" not in inspect(own_engine).get_view_names()


def test_a_user_of_another_schema_repairs_nothing(postgresql: Engine) -> None:
    name = postgresql.url.database
    execute(
        postgresql, "CREATE SCHEMA site", f"ALTER DATABASE {name} SET search_path = site, public"
    )
    postgresql.dispose()

    with pytest.raises(ConfigError, match="schema is site, not public"):
        repair(postgresql)


def test_of_two_repairs_at_once_one_finds_nothing_to_do(postgresql: Engine) -> None:
    execute(postgresql, "DROP VIEW report_seal")

    with ThreadPoolExecutor(2) as pool:
        repairs = list(pool.map(repair, [postgresql] * 2))

    assert min(len(repaired.done) for repaired in repairs) == 0
    assert find_problems(postgresql) == []


def test_the_command_prints_changes_and_remaining_problems(
    own_engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(own_engine))
    execute(own_engine, "DROP VIEW report_seal")

    assert main(["repair"]) == OK
    assert f"{name_of(own_engine)}: created view report_seal\n" in capsys.readouterr().out
    assert main(["repair"]) == OK
    assert capsys.readouterr().out == f"{name_of(own_engine)}: nothing to repair\n"

    execute(own_engine, "DROP INDEX run_report_day")
    assert main(["repair"]) == CONFIG
    captured = capsys.readouterr()
    assert "index run_report_day is missing" in captured.out
    assert captured.err.startswith(f"sam-db: error: {name_of(own_engine)}: 1 problem")
    assert captured.err.count("\n") == 1


def test_the_command_prints_json(
    own_engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(own_engine))
    execute(own_engine, "DROP VIEW report_seal", "DROP INDEX run_report_day")

    assert main(["repair", "--json"]) == CONFIG

    document = json.loads(capsys.readouterr().out)
    [problem] = document["problems"]
    assert document["database"] == name_of(own_engine)
    assert document["done"][0] == "created view report_seal"
    assert problem["problem"].startswith(f"{name_of(own_engine)}: index run_report_day is missing")
    assert problem["repair"] is None


def test_the_command_exits_77_for_a_role_that_is_not_the_owner(
    postgresql: Engine,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", as_role(postgres_url, "reader"))

    assert main(["repair"]) == NO_PERMISSION

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "belongs to sam_owner" in captured.err


def test_the_command_exits_78_where_a_sites_own_view_is_in_the_way(
    postgresql: Engine,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", postgres_url)
    add_a_column(postgresql)
    execute(postgresql, "CREATE VIEW mine AS SELECT site FROM site_availability")

    assert main(["repair"]) == CONFIG

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "view mine" in captured.err
