"""The commands `sam-db prune` and `sam-db partitions`, also killed and repeated."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.services import missing
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.commands import Workplace
from tests.support.page import ROOT, Page, shell
from tests.support.reports.stored import execute, query

PAGE = Page("docs/prune.md")
SERVICE = (ROOT / "deploy/systemd/database/sam-db-prune.service").read_text()
HOSTS = 3
MANY = 2_500
"""A number of hosts whose results take several batches on SQLite."""


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    database = f"sqlite:///{tmp_path / 'sam.db'}"
    if request.param == "postgresql":
        database = fresh_database(request.getfixturevalue("postgres"))
    return with_schema(tmp_path, database)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Workplace:
    return with_schema(tmp_path, f"sqlite:///{tmp_path / 'sam.db'}")


@pytest.fixture
def on_postgresql(tmp_path: Path, postgres: PostgresServer) -> Workplace:
    return with_schema(tmp_path, fresh_database(postgres))


def with_schema(directory: Path, database: str) -> Workplace:
    workplace = Workplace(directory, broker=f"spool://{directory / 'spool'}", database=database)
    workplace.write_configuration().succeed("sam-db", "upgrade")
    return workplace


def day(age: int) -> date:
    return datetime.now(UTC).date() - timedelta(days=age)


def load(workplace: Workplace, *ages: int, hosts: int = HOSTS) -> None:
    """Publish and consume two results of each host on each day."""
    records = [
        f"hostName: ce{host:05}.example.org\nserviceFlavour: CE\nmetricName: org.example.Ping\n"
        f"metricStatus: OK\ntimestamp: {day(age)}T{hour:02}:00:00Z\ndetailsData: at {hour}\nEOT\n"
        for age in ages
        for hour in (1, 2)
        for host in range(hosts)
    ]
    workplace.succeed("sam-publish", "send", workplace.write("records.txt", "".join(records)))
    workplace.succeed("sam-consume", "run", "--drain")


def stored(workplace: Workplace, condition: str = "") -> dict[date, int]:
    """The number of results of each day."""
    rows = query(workplace.database, f"SELECT timestamp FROM metricOutput {condition}")
    return dict(Counter(date.fromisoformat(str(row["timestamp"])[:10]) for row in rows))


def prune(workplace: Workplace, *options: str) -> dict[str, object]:
    answer = workplace.succeed("sam-db", "prune", *options, "--json").json
    assert isinstance(answer, dict)
    return answer


def test_results_and_details_are_removed_at_their_age(workplace: Workplace) -> None:
    load(workplace, 0, 1, 2, 3, 4)

    dry_run = prune(workplace, "--keep-results", "2d", "--keep-details", "1d", "--dry-run")
    assert set(stored(workplace)) == {day(age) for age in range(5)}
    pruned = prune(workplace, "--keep-results", "2d", "--keep-details", "1d")

    every = 2 * HOSTS
    assert stored(workplace) == {day(0): every, day(1): every, day(2): every, day(3): HOSTS}
    assert set(stored(workplace, "WHERE detailsData IS NOT NULL")) == {day(0), day(1)}
    assert (dry_run["dry_run"], pruned["dry_run"]) == (True, False)
    assert pruned["results"]["before"] == str(day(2))  # type: ignore[index]
    assert pruned["details"]["before"] == str(day(1))  # type: ignore[index]
    assert (pruned["left"], pruned["not_dropped"]) == ([], [])


def test_the_output_counts_the_removed_rows(workplace: Workplace) -> None:
    load(workplace, 0, 1, 2, 3)

    answer = workplace.succeed("sam-db", "prune", "--keep-results", "1d", "--keep-details", "1d")

    results, details = answer.out.splitlines()
    sizes = r"9 rows|2 days, [1-9]\d* bytes", r"12 rows|2 days, [1-9]\d* bytes"
    assert re.search(rf"results before {day(1)}: ({sizes[0]})$", results)
    assert re.search(rf"details before {day(1)}: ({sizes[1]})$", details)
    assert "\r" not in answer.err  # progress is for terminals


def test_audit_rows_and_settled_letters_are_removed_at_their_age(workplace: Workplace) -> None:
    file = workplace.write("old.txt", "hostName: a\nEOT\nhostName: b\nEOT\n")
    for _ in range(2):
        workplace.run("sam-db", "import", "records", file)
    is_file = workplace.database.startswith("sqlite")
    old = "unixepoch() - 100 * 86400" if is_file else "now() - interval '100 days'"
    execute(workplace.database, f"UPDATE loaded_batch SET loaded_at = {old} WHERE batch_id = 1")
    execute(
        workplace.database,
        f"UPDATE dead_letter SET state = 'dropped', changed_at = {old} WHERE record_number = 1"
        " AND dead_letter_id = 1",
    )

    answer = workplace.succeed(
        "sam-db", "prune", "--keep-audit", "90d", "--keep-dead-letters", "90d"
    )

    audit, letters = answer.out.splitlines()
    assert re.search(rf"audit before {day(90)}: 1 row", audit)
    assert re.search(rf"dead letters .*before {day(90)}: 1 row", letters)
    [batch] = query(workplace.database, "SELECT * FROM load_audit")
    assert batch["consumer"] == "sam-db import"
    remaining = prune(workplace, "--keep-audit", "90d", "--keep-dead-letters", "90d", "--dry-run")
    assert remaining["audit"]["rows"] == remaining["dead_letters"]["rows"] == 0  # type: ignore[index]


def test_partitions_of_the_coming_days_are_created(on_postgresql: Workplace) -> None:
    load(on_postgresql, 1)

    first = on_postgresql.succeed("sam-db", "partitions", "--ahead", "2", "--json").json
    second = on_postgresql.succeed("sam-db", "partitions", "--ahead", "2", "--json").json
    table = on_postgresql.succeed("sam-db", "partitions").out

    names = [row["partition"] for row in first]
    assert names == [
        f"metric_result{kind}_{day(age):%Y%m%d}"
        for age in (1, 0, -1, -2)
        for kind in ("", "_detail")
    ]
    # The consumer has created those of today and tomorrow, the last day that it would load.
    assert [row["made"] for row in first] == [False] * 6 + [True] * 2
    assert [row["made"] for row in second] == [False] * 8
    assert all(set(row) == {"partition", "day", "rows", "bytes", "made"} for row in first)
    assert table.splitlines()[-1].endswith("created now")


def test_a_prune_killed_between_days_is_completed_by_the_next(on_postgresql: Workplace) -> None:
    load(on_postgresql, *range(6))
    read_partition = f"metric_result_{day(4):%Y%m%d}"
    before = f"WHERE timestamp < '{day(4)}T00:00:00Z'"  # reads no locked partition

    with reader_of(on_postgresql.database, read_partition):
        kill_prune(on_postgresql, when=lambda: day(5) not in stored(on_postgresql, before))

    assert stored(on_postgresql)[day(4)] == 2 * HOSTS
    prune(on_postgresql, "--keep-results", "2d")
    assert set(stored(on_postgresql)) == {day(age) for age in range(4)}
    assert stored(on_postgresql)[day(3)] == HOSTS


def test_a_prune_killed_between_batches_is_completed_by_the_next(on_sqlite: Workplace) -> None:
    load(on_sqlite, 3, 4, 5, hosts=MANY)
    of_a_day = 2 * MANY
    client = sqlite3.connect(on_sqlite.directory / "sam.db", isolation_level=None)

    with closing(client) as connection:

        def blocks_the_prune() -> bool:
            [rows] = connection.execute("SELECT count(*) FROM metric_result").fetchone()
            if rows < 3 * of_a_day:
                connection.execute("BEGIN IMMEDIATE")
            return connection.in_transaction

        kill_prune(on_sqlite, when=blocks_the_prune)
        connection.execute("ROLLBACK")

    assert MANY < sum(stored(on_sqlite).values()) < 3 * of_a_day
    prune(on_sqlite, "--keep-results", "2d")
    assert stored(on_sqlite) == {day(3): MANY}


def kill_prune(workplace: Workplace, when: Callable[[], bool]) -> None:
    """Kill a prune as soon as `when` is true; the caller keeps it from ending before."""
    with workplace.running("sam-db", "prune", "--keep-results", "2d") as process:
        deadline = time.monotonic() + 60
        while not when():
            assert process.poll() is None and time.monotonic() < deadline
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


@contextmanager
def reader_of(database: str, table: str) -> Iterator[None]:
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.execute(text(f"LOCK TABLE {table} IN ACCESS SHARE MODE"))
        yield
    engine.dispose()


def test_the_commands_of_the_page_work(on_sqlite: Workplace) -> None:
    if shutil.which("sqlite3") is None:
        missing("sqlite3", "apt-get install sqlite3")
    load(on_sqlite, 0, 500)

    answer = shell(on_sqlite, *PAGE.texts("sh"))

    assert answer.code == 0, str(answer)
    assert set(stored(on_sqlite)) == {day(0)}


def test_the_command_of_the_timer_works(workplace: Workplace) -> None:
    load(workplace, 0, 500)
    [command] = re.findall(r"^ExecStart=(.*)$", SERVICE, re.MULTILINE)
    program, config, file, *options = shlex.split(command)

    assert (Path(program).name, config, file) == ("sam-db", "--config", "/etc/sam/owner.toml")
    workplace.succeed("sam-db", "--config", workplace.directory / "sam.toml", *options)

    assert set(stored(workplace)) == {day(0)}
