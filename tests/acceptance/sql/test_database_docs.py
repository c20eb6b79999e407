"""The commands and queries of docs/database.md work, and its guarantees hold."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import needed
from tests.services.postgres import PostgresServer, running_copy, running_postgres, server_account
from tests.support.commands import Answer, Workplace
from tests.support.page import Page, on_postgresql, on_sqlite, shell, with_database
from tests.support.reports.stored import execute, query

PAGE = Page("docs/database.md")
QUERIES = {
    section: PAGE.texts("sql", section)
    for section in ("Query", "Vacuum", "Show the size", "Show who loaded", "Show exclusions")
}
CHECK = PAGE.texts("sh", "Check the database")
BACK_UP = PAGE.texts("sh", "Back up")
RESTORE, RENAME = PAGE.texts("sh", "Restore")
ACCESS, PANELS = PAGE.texts("sql", "Grafana")
(INDEX,) = PAGE.texts("sql", "Add an index")
(SETTINGS,) = PAGE.texts("sql", "Tune")
(UPGRADE,) = PAGE.texts("sh", "Upgrade")
(STANDBY,), (PROMOTE,) = (PAGE.texts(language, "Run a standby") for language in ("sh", "sql"))
BACK_UP_FILE, RESTORE_FILE = PAGE.texts("sh", "Use SQLite")
RESULT_BYTES = 200
"""The size of a result according to the page."""
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
    """A private server: the page changes settings and roles."""
    with needed(running_postgres()) as server:
        yield server


@pytest.fixture(scope="module")
def sam(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """The database `sam` with three results, which no test changes."""
    with on_postgresql(tmp_path_factory.mktemp("sam"), server) as workplace:
        load(workplace)
        yield workplace


@pytest.fixture
def file(tmp_path: Path) -> Workplace:
    """`sam.db` with three results."""
    workplace = on_sqlite(tmp_path)
    load(workplace)
    return workplace


def load(workplace: Workplace) -> None:
    workplace.succeed("sam-publish", "send", stdin=RECORDS)
    workplace.succeed("sam-consume", "run", "--drain")


def succeed(workplace: Workplace, *scripts: str) -> Answer:
    answer = shell(workplace, *scripts)
    assert answer.code == 0, str(answer)
    return answer


def psql(workplace: Workplace, statements: str) -> Answer:
    workplace.write("statements.sql", statements)
    return succeed(workplace, "psql -X -q -d sam -v ON_ERROR_STOP=1 -f statements.sql")


def hosts(database: str) -> list[str]:
    rows = query(database, "SELECT hostName FROM metricOutput ORDER BY 1")
    return [next(iter(row.values())) for row in rows]


HOSTS = ["host0.example.org", "host1.example.org", "host2.example.org"]


@pytest.mark.parametrize("section", QUERIES)
def test_every_query_works(sam: Workplace, section: str) -> None:
    for statements in QUERIES[section]:
        assert psql(sam, statements).out


def test_the_commands_that_check_the_database_succeed(sam: Workplace) -> None:
    succeed(sam, *CHECK)


def test_a_backup_is_restored_on_a_new_server(sam: Workplace) -> None:
    with running_postgres() as other:
        there = f"-h {other.host} -p {other.port}"
        for script in [*BACK_UP, RESTORE]:
            succeed(sam, script.replace("-h new.example.org", there))

        moved = with_database(sam, other.url("sam"))
        assert hosts(other.url("sam")) == HOSTS
        assert granted(other.url("sam")) == granted(sam.database)
        succeed(moved, *CHECK)
        moved.succeed("sam-publish", "send", stdin=RECORDS)
        moved.succeed("sam-consume", "run", "--drain")
        assert hosts(other.url("sam")) == HOSTS


def granted(database: str) -> list[str]:
    """Owner and grants of every object."""
    rows = query(
        database,
        "SELECT concat_ws(' ', relname, pg_get_userbyid(relowner), relacl) AS text FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
    )
    return [row["text"] for row in rows]


def test_a_backup_is_restored_beside_the_old_database(
    sam: Workplace, server: PostgresServer
) -> None:
    succeed(sam, *BACK_UP)
    restore = "\n".join(line for line in RESTORE.splitlines() if "roles.sql" not in line)

    succeed(sam, (RENAME + restore).replace("-h new.example.org", ""))

    for name in ("sam", "sam_before"):
        assert hosts(server.url(name)) == HOSTS
    succeed(sam, "dropdb sam_before")


def test_grafana_reads_the_views_and_writes_nothing(sam: Workplace, server: PostgresServer) -> None:
    psql(sam, ACCESS)
    grafana = sam.database.replace(f"{server.user}:{server.password}", "grafana:choose%20one")
    as_grafana = {**sam.environment, "PGUSER": "grafana", "PGPASSWORD": "choose one"}
    reader = Workplace(sam.directory, sam.broker, grafana, environment=as_grafana)

    assert "host1.example.org" in psql(reader, PANELS).out
    assert hosts(grafana) == HOSTS
    for statement in ("INSERT INTO site (name) VALUES ('x')", "SELECT * FROM dead_letter"):
        with pytest.raises(Exception, match="permission denied"):
            execute(grafana, statement)
    assert query(grafana, "SHOW statement_timeout") == [{"statement_timeout": "30s"}]


def test_check_ignores_an_index_of_the_site(sam: Workplace) -> None:
    psql(sam, INDEX)

    sam.succeed("sam-db", "check")
    (plan, *_) = query(
        sam.database, "SELECT indexdef FROM pg_indexes WHERE indexname = 'our_message_id'"
    )
    assert "(message_id)" in plan["indexdef"]
    execute(sam.database, "DROP INDEX our_message_id")


def test_the_settings_apply_and_check_reports_the_dangerous_one(
    sam: Workplace, server: PostgresServer
) -> None:
    for statement in SETTINGS.splitlines():
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
    succeed(file, UPGRADE)
    succeed(file, UPGRADE)

    execute(file.database, "UPDATE alembic_version SET version_num = '9999'")

    refused = file.run("sam-consume", "run", "--drain")
    assert refused.code == 78
    assert "9999" in refused.err


def test_a_standby_is_read_and_promoted(sam: Workplace, server: PostgresServer) -> None:
    with tempfile.TemporaryDirectory(prefix="sam-postgres-") as name:
        data = Path(name) / "data"
        here = STANDBY.replace("-h primary.example.org", "").replace("-D standby", f"-D {data}")
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
            standby.execute(PROMOTE)
            there.succeed("sam-consume", "run", "--drain")
            assert hosts(standby.url("sam")) == sorted(2 * HOSTS)
    assert hosts(sam.database) == HOSTS


def test_a_query_by_time_reads_the_partitions_of_its_days(sam: Workplace) -> None:
    days = ("20261119", "20261120")
    sam.succeed("sam-publish", "send", stdin=RECORDS.replace(DAY, "2026-11-19"))
    sam.succeed("sam-consume", "run", "--drain")
    select = f"SELECT hostName FROM metricOutput WHERE timestamp >= '{DAY}T00:00:00Z'"

    plan = str(query(sam.database, f"EXPLAIN {select}"))

    execute(sam.database, "DELETE FROM metric_result WHERE measured_at < '2026-11-20'")
    assert [f"metric_result_{day}" in plan for day in days] == [False, True]


def test_a_file_is_backed_up_and_restored(file: Workplace) -> None:
    assert "ok" in succeed(file, BACK_UP_FILE).out
    execute(file.database, "DELETE FROM metric_result_detail")
    execute(file.database, "DELETE FROM metric_result")

    succeed(file, RESTORE_FILE)

    assert hosts(file.database) == HOSTS
    assert file.succeed("sam-consume", "run", "--drain").out


def test_a_result_takes_the_documented_number_of_bytes(
    sam: Workplace, server: PostgresServer
) -> None:
    server.execute("CREATE DATABASE crowded")
    crowded = with_database(sam, server.url("crowded"))
    crowded.succeed("sam-db", "upgrade")
    before = size_of_results(server.url("crowded"))
    execute(server.url("crowded"), MANY)

    taken = (size_of_results(server.url("crowded")) - before) / 10_000

    assert 0.7 * taken < RESULT_BYTES < 1.4 * taken
    server.execute("DROP DATABASE crowded WITH (FORCE)")


def size_of_results(database: str) -> int:
    ((size),) = query(
        database,
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) AS size FROM pg_class"
        " WHERE relkind = 'r' AND relname ~ '^metric_result(_[0-9]+)?$'",
    )
    return int(size["size"])


def test_the_roles_exist(sam: Workplace) -> None:
    roles = query(sam.database, "SELECT rolname FROM pg_roles WHERE rolname LIKE 'sam\\_%'")

    assert {row["rolname"] for row in roles} == {
        "sam_owner", "sam_loader", "sam_topology", "sam_reporter", "sam_archiver", "sam_reader",
    }  # fmt: skip


def test_every_block_is_run() -> None:
    assert PAGE.unused("sh", "sql") == []
