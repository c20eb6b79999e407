"""`check` finds all damage at once, and the command it names repairs everything but tables."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import CONFIG, NO_PERMISSION, OK
from sam_pipeline.sql.checks.check import REPAIR_COMMAND, Problem, find_problems, loader_problems
from sam_pipeline.sql.checks.repair import repair
from sam_pipeline.sql.database.engine import make_engine, name_of
from sam_pipeline.sql.database.roles import ROLES_COMMAND
from sam_pipeline.sql.database.version import access_script
from sam_pipeline.sql.errors import SchemaMismatch
from tests.services.postgres import PostgresServer, as_role, run_psql
from tests.support.consumer.site import site_of
from tests.support.database.dialects import only_on
from tests.support.database.own_class import add_trigger, run
from tests.support.database.sam_db import sam_db_on, url_of
from tests.support.database.sql_rows import query
from tests.support.invoke import invoke

on_postgresql = only_on("postgresql", "own_url")

# Statements, each followed by the problems that they cause, or by stems of these.
OBJECTS = {
    "sqlite": """
DROP VIEW report_change;
= view report_change is missing
DROP VIEW downtime;
CREATE VIEW downtime AS SELECT host_id AS hostName FROM host;
= view downtime was changed
= trigger downtime_insert is missing
DROP TRIGGER siteContact_insert;
CREATE TRIGGER siteContact_insert INSTEAD OF INSERT ON siteContact BEGIN SELECT 1; END;
= trigger siteContact_insert was changed
""",
    "postgresql": """
UPDATE pg_trigger SET tgenabled = 'D' WHERE tgname = 'sitegroup_insert';
= trigger sitegroup_insert on sitegroup was changed
DROP TRIGGER siteContact_insert ON siteContact;
CREATE TRIGGER siteContact_insert INSTEAD OF INSERT ON siteContact
FOR EACH ROW EXECUTE FUNCTION stage_end();
= trigger sitecontact_insert on sitecontact was changed
DO $$ DECLARE view text; BEGIN  -- the second is one that others need
    FOREACH view IN ARRAY ARRAY['downtime', 'metric_instance_name'] LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %s AS SELECT *, 1 AS more FROM (%s) AS a',
            view, rtrim(pg_get_viewdef(view), ';'));
    END LOOP;
END $$;
= view downtime was changed
= view metric_instance_name was changed
ALTER VIEW report_run SET (security_barrier = true);
= view report_run was changed
CREATE OR REPLACE FUNCTION lock_statements() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS 'BEGIN END';
= function lock_statements() was changed
DROP FUNCTION is_time;
CREATE FUNCTION is_time(value timestamptz) RETURNS text LANGUAGE sql AS 'SELECT 1::text';
= function is_time(timestamp with time zone) was changed
= unexpected grant EXECUTE ON FUNCTION is_time(timestamp with time zone) TO PUBLIC
ALTER FUNCTION stage_statement SECURITY INVOKER;
= function stage_statement() was changed
DROP FUNCTION metricOutput_stage CASCADE;
= function metricoutput_stage() is missing
= trigger metricoutput_insert on metricoutput is missing
REVOKE INSERT ON downtime FROM sam_loader;
= grant INSERT ON downtime TO sam_loader is missing
REVOKE UPDATE (state) ON run FROM sam_reporter;
= grant UPDATE (state) ON run TO sam_reporter is missing
GRANT SELECT ON metric_result TO sam_loader;
= unexpected grant SELECT ON metric_result TO sam_loader
GRANT SELECT (name) ON site TO sam_loader;
= unexpected grant SELECT (name) ON site TO sam_loader
GRANT INSERT ON siteGroup TO sam_loader WITH GRANT OPTION;
= grant INSERT ON sitegroup TO sam_loader was changed
GRANT SELECT ON site_availability TO PUBLIC;
= unexpected grant SELECT ON site_availability TO PUBLIC
ALTER TABLE site OWNER TO sam;  -- who also owns what the damage creates
ALTER VIEW report_seal OWNER TO reader_login;
= to reader_login, sam, not to sam_owner
""",
}
TABLES = {
    "sqlite": """
DROP INDEX run_report_day;
= index run_report_day is missing
DROP INDEX site_contact_key;
CREATE INDEX site_contact_key ON site_contact (contact);
= index site_contact_key was changed
DROP VIEW report_run;
ALTER TABLE run DROP COLUMN who;
= column run.who is missing
= view report_run is missing
DROP TABLE seal;
= table seal is missing
""",
    "postgresql": """
DROP INDEX run_report_day;
= index run_report_day is missing
UPDATE pg_index SET indisvalid = false WHERE indexrelid = CAST('site_contact_key' AS regclass);
= index site_contact_key was changed
DROP TABLE load_news CASCADE;
= table load_news is missing
= constraint load_news.load_news_pkey is missing
= view fold_state is missing
= grant SELECT ON fold_state TO sam_loader is missing
ALTER TABLE dead_letter DROP COLUMN error, ALTER COLUMN message_class DROP NOT NULL,
    ALTER COLUMN state SET DEFAULT 'dropped', ALTER COLUMN reason TYPE varchar(50),
    ALTER COLUMN dead_letter_id DROP IDENTITY,
    DROP CONSTRAINT dead_letter_message_id_record_number_body_digest_key,
    DROP CONSTRAINT dead_letter_state_check;
ALTER TABLE dead_letter ADD CONSTRAINT dead_letter_state_check CHECK (state <> '');
= column dead_letter.error is missing
= grant UPDATE (error) ON dead_letter TO sam_loader is missing
= column dead_letter.message_class was changed
= column dead_letter.state was changed
= column dead_letter.reason was changed
= column dead_letter.dead_letter_id was changed
= constraint dead_letter.dead_letter_message_id_record_number_body_digest_key is missing
= constraint dead_letter.dead_letter_state_check was changed
""",
}
OF_TABLES = ("table ", "column ", "constraint ", "index ", "unexpected column", "unexpected constr")


def damage(engine: Engine, damages: str) -> list[str]:
    """Execute the statements; returns the problems that they cause."""
    script = re.sub(r"^= .*\n", "", damages, flags=re.MULTILINE)
    if engine.dialect.name == "postgresql":
        run(engine, script)
    else:
        script_on_sqlite(engine, script)
    return re.findall(r"^= (.*)$", damages, re.MULTILINE)


def script_on_sqlite(engine: Engine, script: str) -> None:
    with closing(sqlite3.connect(url_of(engine)[10:], isolation_level=None)) as connection:
        connection.executescript(script)


def texts(problems: Sequence[Problem]) -> list[str]:
    """The problems without the database's name and without the expected definition."""
    return [problem.text.partition(" (expected: ")[0].rpartition(": ")[2] for problem in problems]


def solve(engine: Engine, problems: Sequence[Problem]) -> None:
    """Run the commands that `check` names, in its order, as an administrator would."""
    for command in dict.fromkeys(problem.repair for problem in problems if problem.repair):
        if command == REPAIR_COMMAND:
            repair(engine)
        elif engine.dialect.name == "sqlite":
            script_on_sqlite(engine, command)
        else:
            run_psql(url_of(engine), access_script() if command == ROLES_COMMAND else command)
    engine.dispose()


def test_damage_to_objects_is_found_at_once_and_repaired(own_engine: Engine) -> None:
    assert find_problems(own_engine) == []
    expected = damage(own_engine, OBJECTS[own_engine.dialect.name])

    problems = find_problems(own_engine)

    found = texts(problems)
    assert [text for text in found if not text.endswith(tuple(expected))] == []
    assert [stem for stem in expected if not any(t.endswith(stem) for t in found)] == []
    assert len(found) == len(expected)
    solve(own_engine, problems)
    assert find_problems(own_engine) == []


def test_damage_to_tables_is_found_and_left_alone(own_engine: Engine) -> None:
    run(own_engine, "INSERT INTO site (name) VALUES ('S')")
    expected = damage(own_engine, TABLES[own_engine.dialect.name])

    problems = find_problems(own_engine)

    assert sorted(texts(problems)) == sorted(expected)
    for problem, problem_text in zip(problems, texts(problems), strict=True):
        assert problem_text.startswith(OF_TABLES) == (problem.repair is None)
    # A view or a grant on a missing table can't be repaired either.
    remaining = repair(own_engine).problems
    assert [p for p in problems if p.repair is None] == [p for p in remaining if p.repair is None]
    assert remaining == find_problems(own_engine)
    assert query(own_engine, "SELECT name FROM site") == [("S",)]


def test_a_sites_own_objects_are_no_problem(own_engine: Engine) -> None:
    run(
        own_engine,
        "CREATE VIEW of_my_own AS SELECT run_id FROM run",
        "CREATE INDEX of_mine ON run (who)",
    )
    if own_engine.dialect.name == "postgresql":
        run(
            own_engine,
            "GRANT SELECT ON site_availability, of_my_own TO reader_login",
            "GRANT SELECT ON of_my_own TO sam_reader, PUBLIC",
            "CREATE AGGREGATE mine (integer) (SFUNC = int4pl, STYPE = integer)",
        )

    assert find_problems(own_engine) == []


@on_postgresql
def test_a_role_without_the_right_to_compare_is_referred_to_the_owner(own_engine: Engine) -> None:
    run(
        own_engine,
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
        "REVOKE CREATE ON SCHEMA public FROM sam_owner",
    )
    other = make_engine(as_role(url_of(own_engine), "reader"))

    *found, not_compared = (problem.text for problem in find_problems(other))

    assert ["grant CREATE ON SCHEMA public" in text for text in found] == [True] * 2
    assert "as their owner" in not_compared
    other.dispose()
    solve(own_engine, find_problems(own_engine))
    assert find_problems(own_engine) == []


HARM = r"is (off|false): a crash can lose|fsync is off|session_replication_role is (replica|local)"


@pytest.mark.parametrize(
    ("where", "setting", "is_harmful"),
    [
        ("DATABASE {name}", "synchronous_commit = FALSE", True),
        ("ROLE loader_login", "session_replication_role = local", True),
        ("ROLE loader_login IN DATABASE {name}", "synchronous_commit = off", True),
        ("SYSTEM", "fsync = off", True),
        ("ROLE loader_login IN DATABASE postgres", "synchronous_commit = off", False),
        ("ROLE reader_login", "synchronous_commit = off", False),
    ],
)
@on_postgresql
def test_a_setting_that_can_lose_data_is_found_wherever_it_is_set(
    postgres: PostgresServer, own_engine: Engine, where: str, setting: str, is_harmful: bool
) -> None:
    target = where.format(name=own_engine.url.database)
    try:
        postgres.execute(f"ALTER {target} SET {setting}")
        postgres.execute("SELECT pg_reload_conf()")
        own_engine.dispose()

        problems = find_problems(own_engine)

        loader = make_engine(as_role(url_of(own_engine), "loader"))
        for found in (problems, loader_problems(loader)):
            assert [bool(re.search(HARM, problem.text)) for problem in found] == [True] * is_harmful
        loader.dispose()
        solve(own_engine, problems)
        assert find_problems(own_engine) == []
    finally:
        reset = "ALL" if where == "SYSTEM" else setting.split()[0]
        postgres.execute(f"ALTER {target} RESET {reset}")
        postgres.execute("SELECT pg_reload_conf()")


# Repairs leave what belongs to a site -------------------------------------------------------------

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
        " FOR EACH ROW EXECUTE FUNCTION stage_statement()"
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


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused_in_one_line(
    postgres: PostgresServer, tmp_path: Path, encoding: str
) -> None:
    name = f"{encoding.lower()}_{uuid.uuid4().hex}"
    postgres.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    site = site_of(tmp_path, [f"spool://{tmp_path}/spool"])
    environment = {**os.environ, "SAM_DATABASE_URL": postgres.url(name)}
    commands = (("sam-db", "upgrade"), ("sam-db", "check"))
    answers = [invoke(*command, env=environment) for command in commands]
    answers.append(
        invoke("sam-consume", "--config", site.config, "run", "--drain", env=environment)
    )
    postgres.execute(f"DROP DATABASE {name}")

    assert [answer.code for answer in answers] == [CONFIG] * 3
    assert all(f"{encoding}, not UTF8" in answer.err for answer in answers), answers
