"""What docs/database.md tells an administrator to type works, and what it says is so."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.schema.records.classes import BUILT_IN
from tests.services import needed
from tests.services.postgres import PostgresServer, running_copy, running_postgres, server_account
from tests.support.commands import Answer, Workplace
from tests.support.page import (
    DOCS,
    blocks,
    on_postgresql,
    on_sqlite,
    read_page,
    shell,
    with_database,
)
from tests.support.reports.stored import execute, query

PAGE = "database.md"
DAY = "2026-11-20"
RECORDS = "".join(
    f"""\
hostName: host{number}.example.org
serviceFlavour: CE
metricName: org.example.Ping
metricStatus: {status}
timestamp: {DAY}T12:00:00Z
detailsData: a line
EOT
"""
    for number, status in enumerate(("OK", "CRITICAL", "WARNING"))
)
MANY = """
    INSERT INTO metricOutput (
        hostName, serviceFlavour, metricName, metricStatus, timestamp, gatheredAt, summaryData,
        messageId
    )
    SELECT
        format('ce%s.example.org', n % 100), 'CE', 'org.example.Ping', 'OK',
        timestamptz '2026-11-01 00:00:00Z' + n * interval '1 second', 'wn17.example.org',
        format('job finished in %s s', n), '06411f9a9d9c00-000000000000000000'
    FROM generate_series(1, 10000) AS n
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One of our own: the page changes settings and roles."""
    with needed(running_postgres()) as server:
        yield server


@pytest.fixture(scope="module")
def sam(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """The database `sam` with three results, which the tests leave as they are."""
    with on_postgresql(tmp_path_factory.mktemp("sam"), server) as place:
        load(place)
        yield place


@pytest.fixture
def file(tmp_path: Path) -> Workplace:
    """`sam.db` with three results."""
    place = on_sqlite(tmp_path)
    load(place)
    return place


def load(place: Workplace) -> None:
    place.succeed("sam-publish", "send", stdin=RECORDS)
    place.succeed("sam-consume", "run", "--drain")


def texts(section: str, language: str) -> list[str]:
    found = [
        one.text for one in blocks(PAGE) if section in one.section and one.language == language
    ]
    assert found, section
    return found


def succeed(place: Workplace, script: str) -> Answer:
    answer = shell(place, script)
    assert answer.code == 0, str(answer)
    return answer


def psql(place: Workplace, statements: str) -> Answer:
    place.write("statements.sql", statements)
    return succeed(place, "psql -X -q -d sam -v ON_ERROR_STOP=1 -f statements.sql")


def hosts(database: str) -> list[str]:
    found = query(database, "SELECT hostName FROM metricOutput ORDER BY 1")
    return [next(iter(row.values())) for row in found]


HOSTS = ["host0.example.org", "host1.example.org", "host2.example.org"]


@pytest.mark.parametrize(
    "section", ["What it promises", "vacuum", "how big", "who loaded", "was excluded"]
)
def test_every_query_is_answered(sam: Workplace, section: str) -> None:
    for statements in texts(section, "sql"):
        assert psql(sam, statements).out


def test_the_commands_that_tell_whether_all_is_well_tell_it(sam: Workplace) -> None:
    for script in texts("all is well", "sh"):
        succeed(sam, script)


def test_a_backup_is_restored_on_a_new_server(sam: Workplace) -> None:
    with running_postgres() as other:
        there = f"-h {other.host} -p {other.port}"
        for script in [*texts("back up", "sh"), texts("restore", "sh")[0]]:
            succeed(sam, script.replace("-h new.example.org", there))

        moved = with_database(sam, other.url("sam"))
        assert hosts(other.url("sam")) == HOSTS
        assert granted(other.url("sam")) == granted(sam.database)
        succeed(moved, "\n".join(texts("all is well", "sh")))
        moved.succeed("sam-publish", "send", stdin=RECORDS)
        moved.succeed("sam-consume", "run", "--drain")
        assert hosts(other.url("sam")) == HOSTS


def granted(database: str) -> list[str]:
    """Who owns what, and who else may do what with it."""
    found = query(
        database,
        "SELECT concat_ws(' ', relname, pg_get_userbyid(relowner), relacl) AS it FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
    )
    return [row["it"] for row in found]


def test_a_backup_is_restored_beside_the_old_database(
    sam: Workplace, server: PostgresServer
) -> None:
    for script in texts("back up", "sh"):
        succeed(sam, script)
    move, rename = texts("restore", "sh")
    restore = "\n".join(line for line in move.splitlines() if "roles.sql" not in line)

    succeed(sam, (rename + restore).replace("-h new.example.org", ""))

    for name in ("sam", "sam_before"):
        assert hosts(server.url(name)) == HOSTS
    succeed(sam, "dropdb sam_before")


def test_grafana_reads_the_views_and_writes_nothing(sam: Workplace, server: PostgresServer) -> None:
    access, panels = texts("Grafana", "sql")
    psql(sam, access)
    grafana = sam.database.replace(f"{server.user}:{server.password}", "grafana:choose%20one")
    as_grafana = {**sam.environment, "PGUSER": "grafana", "PGPASSWORD": "choose one"}
    reader = Workplace(sam.directory, sam.broker, grafana, environment=as_grafana)

    assert "host1.example.org" in psql(reader, panels).out
    assert hosts(grafana) == HOSTS
    for statement in ("INSERT INTO site (name) VALUES ('x')", "SELECT * FROM dead_letter"):
        with pytest.raises(Exception, match="permission denied"):
            execute(grafana, statement)
    assert query(grafana, "SHOW statement_timeout") == [{"statement_timeout": "30s"}]


def test_an_index_of_our_own_is_nobodys_business(sam: Workplace) -> None:
    (index,) = texts("add an index", "sql")

    psql(sam, index)

    sam.succeed("sam-db", "check")
    (plan, *_) = query(
        sam.database, "SELECT indexdef FROM pg_indexes WHERE indexname = 'our_message_id'"
    )
    assert "(message_id)" in plan["indexdef"]
    execute(sam.database, "DROP INDEX our_message_id")


def test_the_settings_are_taken_and_the_dangerous_one_is_found(
    sam: Workplace, server: PostgresServer
) -> None:
    for statement in texts("tune", "sql")[0].splitlines():
        server.execute(statement)
    pending = "SELECT name FROM pg_settings WHERE pending_restart"
    assert {"name": "shared_buffers"} in query(sam.database, pending)
    assert query(sam.database, "SHOW max_wal_size") == [{"max_wal_size": "8GB"}]
    sam.succeed("sam-db", "check")

    server.execute("ALTER DATABASE sam SET synchronous_commit = off")

    assert sam.run("sam-db", "check").code == 78
    server.execute("ALTER DATABASE sam RESET synchronous_commit")
    server.execute("ALTER SYSTEM RESET ALL")


def test_an_upgrade_may_be_repeated_and_another_version_is_refused(file: Workplace) -> None:
    (upgrade,) = texts("upgrade", "sh")
    succeed(file, upgrade)
    succeed(file, upgrade)

    execute(file.database, "UPDATE alembic_version SET version_num = '9999'")

    refused = file.run("sam-consume", "run", "--drain")
    assert refused.code == 78
    assert "9999" in refused.err


def test_a_standby_is_read_and_promoted(sam: Workplace, server: PostgresServer) -> None:
    (copy,) = texts("read-only copy", "sh")
    (promote,) = texts("read-only copy", "sql")
    with tempfile.TemporaryDirectory(prefix="sam-postgres-") as name:
        data = Path(name) / "data"
        here = copy.replace("-h primary.example.org", "").replace("-D standby", f"-D {data}")
        succeed(sam, here)
        if account := server_account():
            subprocess.run(["chown", "-R", account, name], check=True)
        with running_copy(Path(name)) as standby:
            assert hosts(standby.url("sam")) == HOSTS
            there = with_database(sam, standby.url("sam"))
            sam.succeed("sam-publish", "send", stdin=RECORDS.replace(DAY, "2026-11-19"))
            refused = there.run("sam-consume", "run", "--drain", "--timeout", "1")
            assert refused.code == 69, str(refused)
            assert re.search("during recovery|read-only", refused.err)
            standby.execute(promote)
            there.succeed("sam-consume", "run", "--drain")
            assert hosts(standby.url("sam")) == sorted(2 * HOSTS)
    assert hosts(sam.database) == HOSTS


def test_a_question_by_time_reads_the_partitions_of_its_days(sam: Workplace) -> None:
    days = ("20261119", "20261120")
    sam.succeed("sam-publish", "send", stdin=RECORDS.replace(DAY, "2026-11-19"))
    sam.succeed("sam-consume", "run", "--drain")
    question = f"SELECT hostName FROM metricOutput WHERE timestamp >= '{DAY}T00:00:00Z'"

    plan = str(query(sam.database, f"EXPLAIN {question}"))

    execute(sam.database, "DELETE FROM metric_result WHERE measured_at < '2026-11-20'")
    assert [f"metric_result_{day}" in plan for day in days] == [False, True]


def test_a_file_is_backed_up_and_restored(file: Workplace) -> None:
    backup, restore = texts("SQLite", "sh")
    assert "ok" in succeed(file, backup).out
    execute(file.database, "DELETE FROM metric_result_detail")
    execute(file.database, "DELETE FROM metric_result")

    succeed(file, restore)

    assert hosts(file.database) == HOSTS
    assert file.succeed("sam-consume", "run", "--drain").out


def test_a_result_takes_as_much_room_as_it_says(sam: Workplace, server: PostgresServer) -> None:
    (told,) = re.findall(r"A result takes about (\d+) bytes", read_page(PAGE))
    server.execute("CREATE DATABASE crowded")
    crowded = with_database(sam, server.url("crowded"))
    crowded.succeed("sam-db", "upgrade")
    before = size_of_results(server.url("crowded"))
    execute(server.url("crowded"), MANY)

    taken = (size_of_results(server.url("crowded")) - before) / 10_000

    assert 0.7 * taken < int(told) < 1.4 * taken
    server.execute("DROP DATABASE crowded WITH (FORCE)")


def size_of_results(database: str) -> int:
    ((size),) = query(
        database,
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) AS size FROM pg_class"
        " WHERE relkind = 'r' AND relname ~ '^metric_result(_[0-9]+)?$'",
    )
    return int(size["size"])


def test_the_picture_shows_every_table_and_every_promised_view(sam: Workplace) -> None:
    above, rest = read_page(PAGE).split("╔", 1)
    inside, below = rest.split("╚", 1)
    drawn = set(
        re.findall(
            r"\b[a-z]+(?:_[a-z]+)+\b"
            r"|\b(?:site|host|metric|vo|fqan|run|endpoint|horizon|exclusion|seal)\b",
            inside,
        )
    )
    tables = {
        row["relname"]
        for row in query(
            sam.database,
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'",
        )
    }
    views = {
        row["viewname"]
        for row in query(sam.database, "SELECT viewname FROM pg_views WHERE schemaname = 'public'")
    }

    assert drawn - {"metric_result_"} == tables
    promised = {view for view in views if not view.startswith(("report_", "metric_instance"))}
    assert promised - BUILT_IN.keys() <= set(re.findall(r"\w+", below))
    for known in BUILT_IN.values():
        assert known.name in above
    assert {"report_run", "report_change"} <= views


def test_the_roles_are_there(sam: Workplace) -> None:
    roles = set(re.findall(r"`(sam_\w+)`", read_page(PAGE))) - {"sam_before"}

    found = query(sam.database, "SELECT rolname FROM pg_roles WHERE rolname LIKE 'sam\\_%'")

    assert {row["rolname"] for row in found} == roles == {
        "sam_owner", "sam_loader", "sam_reporter", "sam_reader",
    }  # fmt: skip


def test_its_links_lead_somewhere() -> None:
    links = set(re.findall(r"\]\(([\w-]+\.md)\)", read_page(PAGE) + read_page("new-class.md")))

    assert {link for link in links if not (DOCS / link).exists()} == set()


def test_every_block_is_run_here() -> None:
    here = Path(__file__).read_text()
    sections = {one.section for one in blocks(PAGE) if one.language in ("sh", "sql")}

    assert {one for one in sections if not any(words in one for words in PARTS)} == set()
    assert all(f'"{words}"' in here for words in PARTS)


PARTS = (
    *("What it promises", "all is well", "back up", "restore", "vacuum", "how big", "Grafana"),
    *("who loaded", "was excluded", "add an index", "tune", "upgrade", "read-only copy", "SQLite"),
)
