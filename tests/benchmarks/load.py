"""How fast rows get into the class views, compared with plain tables with the same unique key.

    python -m tests.benchmarks.load [--rows N] [--rounds R] [--present 1M,10M] [--instances N]

On a private PostgreSQL with durable commits, and on an SQLite file. All doors get rows of the same
kind, from memory, 1 000 per transaction. They take turns, so that other load affects all of them,
and the median of the ratios of each turn counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, Engine, column, insert, table, text

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import make_engine, reading, writing
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView
from sam_pipeline.sql.loading.fold import fold, fold_all
from sam_pipeline.sql.loading.staging import SentRow, copy_text, store_text
from tests.services.postgres import PostgresServer, fresh_database, running_postgres

BULK_BOUND = 0.6
TRIGGER_BOUND = 0.25
SQLITE_BOUND = 0.4
PRESENT_BOUND = 1.3
CURRENT_STATUS_BOUND_S = 0.5

BATCH = 1000
"""Rows of one transaction."""

SOURCES = 2000
"""The number of metric instances: after one result of each the next time begins."""

# Commits are as durable as by default; a checkpoint should not affect only one contestant.
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}

PLAIN = ClassView("plain", tuple(key.lower() for key in METRIC_OUTPUT.keys), "messageid")

STATUS = "site, service_flavour, host_name, metric_name, vo, status, since, measured_at, summary"
"""The columns of current_status but the publisher, which reads the newest results."""

Rows = Sequence[SentRow]
Door = Callable[[Rows], None]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000, help="of a turn (default: 10000)")
    parser.add_argument("--rounds", type=int, default=11, help="turns of each (default: 11)")
    parser.add_argument(
        "--present",
        type=sizes,
        default=[1_000_000, 4_000_000],
        help="rows already stored, e.g. 1M,50M (default: 1M,4M); 200 bytes of disk per row",
    )
    parser.add_argument(
        "--instances", type=int, default=100_000, help="of current_status (default: 100000)"
    )
    args = parser.parse_args(argv)
    print_machine(args.rows, args.rounds)
    with running_postgres(SETTINGS) as server:
        good = [
            *(
                compare_doors(fresh_database(server), args.rows, args.rounds, details)
                for details in (False, True)
            ),
            compare_new_and_known(fresh_database(server), args.rows, args.rounds),
            compare_present(server, args.rows, args.rounds, args.present),
            read_current_status(fresh_database(server), args.instances),
        ]
    with TemporaryDirectory() as directory:
        good.append(compare_sqlite(Path(directory), args.rows, args.rounds))
    print_load()
    return 0 if all(good) else 1


def sizes(option: str) -> list[int]:
    """The numbers of a list such as `1M,50M`, sorted."""
    units = {"k": 1000, "M": 1_000_000}
    return sorted(int(part.rstrip("kM")) * units.get(part[-1:], 1) for part in option.split(","))


def print_machine(rows: int, rounds: int) -> None:
    row, *_ = result(0)
    size = sum(map(len, row.values()))
    print(f"{rows} rows a turn, {BATCH} a transaction, {rounds} turns; rows of {len(row)} values,")
    print(f"{size} characters, of {SOURCES} metric instances")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    print_load()


def print_load() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}", flush=True)


# Rows -----------------------------------------------------------------------------------------

FIRST_MOMENT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


class Rounds:
    """New rows for every turn, which begin where those of the last turn ended."""

    def __init__(self, details: bool = False) -> None:
        self.given = 0
        self.details = details

    def room(self, count: int) -> int:
        """The number of the first row that differs from the next `count` rows of this object."""
        return self.given + -(-count // SOURCES) * SOURCES

    def next(self, count: int) -> Rows:
        numbers = range(self.given, self.given + count)
        self.given += count
        return [result(number, self.details) for number in numbers]


def result(number: int, details: bool = False) -> SentRow:
    """A row as the loader has it."""
    source, moment = number % SOURCES, number // SOURCES
    row = {
        "hostname": f"ce{source // 10:04}.example.org",
        "serviceflavour": "CE",
        "sitename": f"EXAMPLE-LCG{source // 50}",
        "metricname": f"org.sam.CE-Job{source % 10}",
        "metricstatus": "OK" if number % 50 else "WARNING",
        "timestamp": format_time(FIRST_MOMENT + timedelta(seconds=10 * moment)),
        "gatheredat": f"wn{source % 7}.example.org",
        "monitoringhost": "nagios.example.org",
        "voname": "ops",
        "vofqan": "/ops/Role=lcgadmin",
        "summarydata": f"job finished in {number} s",
        "performancedata": f"time={number}s;400;600;0",
    }
    if details:
        row["detailsdata"] = f"job {number} was sent\nand came back" * 10
    return row, f"{number // 100:032x}", f"uid:{source % 7}"


def of_new_names(rows: Rows) -> Rows:
    return [
        ({**row, "hostname": f"new-{n}-{id_}"}, id_, publisher)
        for n, (row, id_, publisher) in enumerate(rows)
    ]


def transactions(rows: Rows) -> Iterator[Rows]:
    return (rows[at : at + BATCH] for at in range(0, len(rows), BATCH))


# PostgreSQL -----------------------------------------------------------------------------------


@contextmanager
def database(url: str) -> Iterator[tuple[Engine, ClassView]]:
    engine = make_engine(url)
    upgrade(engine)
    view = Catalogue(engine).find(METRIC_OUTPUT.name)
    assert view is not None
    yield engine, view
    engine.dispose()


def through(engine: Engine, view: ClassView) -> Door:
    """The whole door: the text is written, sent and stored."""

    def load(rows: Rows) -> None:
        for batch in transactions(rows):
            with writing(engine) as connection:
                store_text(connection, view, copy_text(view, batch))

    return load


def store_written(engine: Engine, view: ClassView, rows: Rows) -> Callable[[], None]:
    """Only the work of the database: the text is written in advance."""
    texts = [copy_text(view, batch) for batch in transactions(rows)]

    def load() -> None:
        for copied in texts:
            with writing(engine) as connection:
                store_text(connection, view, copied)

    return load


def make_plain_table(connection: Connection) -> None:
    names = PLAIN.all_columns
    key = ", ".join(key.lower() for key in METRIC_OUTPUT.natural_key)
    columns = ", ".join(f"{name} text" for name in names)
    connection.execute(text(f"CREATE TABLE plain ({columns}, UNIQUE ({key}))"))


def compare_doors(url: str, count: int, rounds: int, details: bool) -> bool:
    with database(url) as (engine, view):
        with writing(engine) as connection:
            make_plain_table(connection)
        plain, bulk, trigger = (
            through(engine, target) for target in (PLAIN, view, replace(view, bulk=False))
        )
        bulk_rows, trigger_rows = Rounds(details), Rounds(details)
        first_of_trigger = trigger_rows.given = bulk_rows.room(2 * count * (rounds + 1))
        row_s: dict[str, list[float]] = {name: [] for name in ("plain", "bulk", "trigger")}
        database_row_s: dict[str, list[float]] = {name: [] for name in ("plain", "bulk", "trigger")}
        folded = []
        for turn in range(rounds + 1):
            batch, trigger_batch = bulk_rows.next(count), trigger_rows.next(count)
            second_batch, second_trigger_batch = bulk_rows.next(count), trigger_rows.next(count)
            times = {
                "plain": seconds(lambda batch=batch: plain(batch)),
                "bulk": seconds(lambda batch=batch: bulk(batch)),
                "trigger": seconds(lambda batch=trigger_batch: trigger(batch)),
            }
            fold_s = seconds(lambda: fold_all(engine))
            database_times = {
                "plain": seconds(store_written(engine, PLAIN, second_batch)),
                "bulk": seconds(store_written(engine, view, second_batch)),
                "trigger": seconds(
                    store_written(engine, replace(view, bulk=False), second_trigger_batch)
                ),
            }
            fold_all(engine)
            if turn:  # the first one warms the server up
                folded.append(fold_s / (2 * count))
                for name in times:
                    row_s[name].append(times[name] / count)
                    database_row_s[name].append(database_times[name] / count)
        check_count(engine, bulk_rows.given + trigger_rows.given - first_of_trigger)
    print(f"PostgreSQL, rows {'with' if details else 'without'} details")
    for name, title in (
        ("plain", "COPY into the plain table"),
        ("bulk", "bulk door"),
        ("trigger", "COPY through the trigger"),
    ):
        print_rate(title, row_s[name])
    print_cost("folding of statuses and days", folded)
    return all(
        [
            print_ratio("bulk door / plain COPY", row_s["plain"], row_s["bulk"], BULK_BOUND),
            print_ratio(
                "  without writing the text", database_row_s["plain"], database_row_s["bulk"]
            ),
            print_ratio("trigger / plain COPY", row_s["plain"], row_s["trigger"], TRIGGER_BOUND),
            print_ratio(
                "  without writing the text", database_row_s["plain"], database_row_s["trigger"]
            ),
        ]
    )


def compare_new_and_known(url: str, count: int, rounds: int) -> bool:
    """Print the cost of rows with known names, with new names, and of repeated rows."""
    with database(url) as (engine, view):
        bulk, rows = through(engine, view), Rounds()
        bulk(rows.next(count))
        known_s, new_s, repeated_s = [], [], []
        for _ in range(rounds):
            batch = rows.next(count)
            known_s.append(seconds(lambda batch=batch: bulk(batch)) / count)
            repeated_s.append(seconds(lambda batch=batch: bulk(batch)) / count)
            batch = of_new_names(rows.next(count))
            new_s.append(seconds(lambda batch=batch: bulk(batch)) / count)
            fold_all(engine)
    print("PostgreSQL, bulk door, by kind of rows")
    print_cost("known names, new rows", known_s)
    print_cost("new host and new instance", new_s)
    print_cost("rows that are already stored", repeated_s)
    return True


def compare_present(
    server: PostgresServer, count: int, rounds: int, present: Sequence[int]
) -> bool:
    """Compare the cost of a row with few and with many stored rows; a day has the first size."""
    print("PostgreSQL, bulk door, by the number of stored rows")
    with ExitStack() as stack:
        doors = [
            (*stack.enter_context(database(fresh_database(server))), Rounds()) for _ in present
        ]
        for size, (engine, view, rows) in zip(present, doors, strict=True):
            through(engine, view)(rows.next(SOURCES))
            days = fill_days(engine, size, present[0])
            print(f"  {size / 1e6:g} M rows, {days} days")
        costs: list[list[float]] = [[] for _ in present]
        for turn in range(rounds + 1):
            for (engine, view, rows), row_s in zip(doors, costs, strict=True):
                bulk, batch = through(engine, view), rows.next(count)
                cost_s = seconds(lambda bulk=bulk, batch=batch: bulk(batch)) / count
                fold_all(engine)
                if turn:  # the first one only warms the caches
                    row_s.append(cost_s)
    for size, row_s in zip(present, costs, strict=True):
        print_cost(f"{size / 1e6:g} M rows stored", row_s)
    ratio = median(costs[-1]) / median(costs[0])
    fastest = min(costs[-1]) / min(costs[0])
    print_figure(
        f"{present[-1] / 1e6:g} M / {present[0] / 1e6:g} M", f"{ratio:.2f}", PRESENT_BOUND, "<="
    )
    print_figure("  of the fastest turns", f"{fastest:.2f}")
    return min(ratio, fastest) <= PRESENT_BOUND


def fill_days(engine: Engine, size: int, rows_a_day: int) -> int:
    """Store `size` results of today and the days before; return the number of days."""
    days = -(-size // rows_a_day)
    for day in range(days):
        fill(engine, day, min(rows_a_day, size - day * rows_a_day))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE metric_result"))
        connection.execute(text("CHECKPOINT"))
    return days


def fill(engine: Engine, days_ago: int, count: int) -> None:
    """Insert results of a day into the table, for the loaded instances at times in between."""
    with writing(engine) as connection:
        day = (FIRST_MOMENT - timedelta(days=days_ago)).date()
        connection.execute(text("SELECT make_partitions(ARRAY[CAST(:day AS date)])"), {"day": day})
        connection.execute(
            text("""
                INSERT INTO metric_result (
                    instance_id, measured_at, gatherer_id, source_id, status,
                    summary, performance_data, message_id
                )
                SELECT
                    k.instance_id, CAST(:midnight AS timestamptz) + n * interval '1 second' * :step,
                    0, k.source_id, 0,
                    'job finished in ' || n || ' s', 'time=' || n || 's;400;600;0', md5('' || n)
                FROM result_source AS k, generate_series(0, :moments - 1) AS n
                ORDER BY n
            """),
            {
                "midnight": FIRST_MOMENT - timedelta(days=days_ago),
                "moments": count // SOURCES,
                "step": 86400 / (count // SOURCES),
            },
        )


def read_current_status(url: str, instances: int) -> bool:
    with database(url) as (engine, view):
        bulk = through(engine, view)
        rows = of_new_names(Rounds().next(instances))
        load_s = seconds(lambda: bulk(rows))
        batches = 0
        started = time.perf_counter()
        while folded := fold(engine):
            batches += folded
        fold_s = time.perf_counter() - started
        add_topology(engine, rows)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        server, fetched = [], []
        for _ in range(7):
            with reading(engine) as connection:
                started = time.perf_counter()
                statuses = connection.exec_driver_sql(f"SELECT {STATUS} FROM current_status").all()
                fetched.append(time.perf_counter() - started)
                plan = connection.execute(
                    text(f"EXPLAIN (ANALYZE, TIMING off) SELECT {STATUS} FROM current_status")
                ).scalars()
                server.append(float(list(plan)[-1].split()[-2]) / 1000)
        assert len(statuses) == instances, len(statuses)
    print(f"PostgreSQL, current_status of {instances} metric instances, each at a site")
    print_figure("loading, all names new, µs a row", f"{load_s / instances * 1e6:.1f}")
    print_figure("folding, µs a row", f"{fold_s / instances * 1e6:.1f}")
    print_figure("in the server, s", f"{median(server):.2f}", CURRENT_STATUS_BOUND_S, "<=")
    print_figure("and fetched by Python, s", f"{median(fetched):.2f}")
    return min(server) <= CURRENT_STATUS_BOUND_S


def add_topology(engine: Engine, rows: Rows) -> None:
    view = Catalogue(engine).find("serviceEndpoint")
    assert view is not None
    since = format_time(FIRST_MOMENT - timedelta(days=1))
    endpoints = [
        ({key: row[key] for key in ("hostname", "serviceflavour", "sitename")}, *facts)
        for row, *facts in rows
    ]
    through(engine, view)([({**row, "validfrom": since}, *facts) for row, *facts in endpoints])


# SQLite ---------------------------------------------------------------------------------------


def compare_sqlite(directory: Path, count: int, rounds: int) -> bool:
    engine = make_engine(f"sqlite:///{directory / 'sam.db'}", create=True)
    upgrade(engine)
    view = Catalogue(engine).find(METRIC_OUTPUT.name)
    assert view is not None
    with writing(engine) as connection:
        make_plain_table(connection)
    plain_rows, view_rows = Rounds(), Rounds()
    plain, through_view = [], []
    for turn in range(rounds + 1):
        for_table, for_view = plain_rows.next(count), view_rows.next(count)
        times = (
            seconds(lambda rows=for_table: by_executemany(engine, PLAIN, rows)) / count,
            seconds(lambda rows=for_view: by_executemany(engine, view, rows)) / count,
        )
        if turn:
            plain.append(times[0])
            through_view.append(times[1])
    engine.dispose()
    print("SQLite, rows without details")
    print_rate("executemany into the plain table", plain)
    print_rate("executemany into the view", through_view)
    return print_ratio("view / plain executemany", plain, through_view, SQLITE_BOUND)


def by_executemany(engine: Engine, view: ClassView, rows: Rows) -> None:
    into = insert(table(view.name, *map(column, view.all_columns)))
    by_column = {name: name.lower() for name in view.columns}
    about_message = view.all_columns[len(view.columns) :]
    for batch in transactions(rows):
        values = [
            {
                **{name: row.get(key) for name, key in by_column.items()},
                **dict(zip(about_message, facts, strict=False)),
            }
            for row, *facts in batch
        ]
        with writing(engine) as connection:
            connection.execute(into, values)


def check_count(engine: Engine, expected: int) -> None:
    """Stop unless all rows are stored: a door must not be fast because it leaves rows out."""
    with reading(engine) as connection:
        stored = connection.exec_driver_sql("SELECT count(*) FROM metricOutput").scalar_one()
    if stored != expected:
        raise SystemExit(f"{stored} rows are stored, not {expected}")


# Figures --------------------------------------------------------------------------------------


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def print_figure(title: str, figure: str, bound: float | None = None, sign: str = ">=") -> None:
    """Print a line with a figure and its bound, if it has one."""
    limit = f"   bound {sign} {bound:g}" if bound is not None else ""
    print(f"  {title:42} {figure:>9}{limit}", flush=True)


def print_rate(title: str, row_s: Sequence[float]) -> None:
    print_figure(f"{title}, rows/s", f"{1 / median(row_s):.0f}")


def print_cost(title: str, row_s: Sequence[float]) -> None:
    print_figure(f"{title}, µs a row", f"{median(row_s) * 1e6:.1f}")


def print_ratio(
    title: str, base_s: Sequence[float], own_s: Sequence[float], bound: float | None = None
) -> bool:
    """Print the median speed relative to the base, turn by turn; whether it is within its bound."""
    ratio = median(base / own for base, own in zip(base_s, own_s, strict=True))
    print_figure(title, f"{ratio:.2f}", bound)
    return bound is None or ratio >= bound


if __name__ == "__main__":
    sys.exit(main())
