"""How fast rows get into the class views, compared with plain tables with the same unique key.

    python -m tests.benchmarks.load [--rows N] [--rounds R] [--present 50000000] [--instances N]

On a private PostgreSQL with durable commits, and on an SQLite file. All doors get rows of the same
kind, from memory, 1 000 per transaction. They take turns, so that other load affects all of them,
and the median of the ratios of each turn counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, Engine, column, insert, table, text

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import make_engine, reading, writing
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.insert import SentRow, copy_rows
from tests.benchmarks.common import (
    arguments,
    check,
    print_figure,
    print_load,
    print_ratio,
    print_speed,
    seconds,
)
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
    args = arguments(__doc__, argv, rows=10_000, rounds=11, present=4_000_000, instances=100_000)
    with running_postgres(SETTINGS) as server:
        good = [
            *(
                compare_doors(fresh_database(server), args.rows, args.rounds, details)
                for details in (False, True)
            ),
            compare_present(server, args.rows, args.rounds, [1_000_000, args.present]),
            read_current_status(fresh_database(server), args.instances),
        ]
    with TemporaryDirectory() as directory:
        good.append(compare_sqlite(Path(directory), args.rows, args.rounds))
    print_load()
    return 0 if all(good) else 1


# Rows -----------------------------------------------------------------------------------------

FIRST_MOMENT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


class Rounds:
    """New rows for every turn, which begin where those of the last turn ended."""

    def __init__(self, details: bool = False) -> None:
        self.given = 0
        self.details = details

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
                copy_rows(connection, view, batch)

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
        triggered = replace(view, bulk=False)
        rows = {"plain": Rounds(details), "bulk": Rounds(details), "trigger": Rounds(details)}
        rows["trigger"].given = first_of_trigger = -(-count * (rounds + 1) // SOURCES) * SOURCES
        views = {"plain": PLAIN, "bulk": view, "trigger": triggered}
        row_s: dict[str, list[float]] = {name: [] for name in views}
        for turn in range(rounds + 1):
            batches = {name: rows[name].next(count) for name in views}
            times = {
                name: seconds(partial(through(engine, views[name]), batches[name]))
                for name in views
            }
            fold_all(engine)
            if turn:  # the first one warms the server up
                for name in times:
                    row_s[name].append(times[name] / count)
        check_count(engine, rows["bulk"].given + rows["trigger"].given - first_of_trigger)
    print(f"PostgreSQL, rows {'with' if details else 'without'} details")
    for name, own in row_s.items():
        print_speed(f"{name}, rows/s", own)
    return all(
        [
            print_ratio("bulk door / plain COPY", row_s["plain"], row_s["bulk"], BULK_BOUND),
            print_ratio("trigger / plain COPY", row_s["plain"], row_s["trigger"], TRIGGER_BOUND),
        ]
    )


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
                cost_s = seconds(partial(bulk, batch)) / count
                fold_all(engine)
                if turn:  # the first one only warms the caches
                    row_s.append(cost_s)
    for size, row_s in zip(present, costs, strict=True):
        print_cost(f"{size / 1e6:g} M rows stored", row_s)
    ratio = min(median(costs[-1]) / median(costs[0]), min(costs[-1]) / min(costs[0]))
    return print_figure("many / few, of the median or fastest turns", ratio, 2, most=PRESENT_BOUND)


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
                    instance_id, measured_at, gatherer_id, source_id, status, has_details,
                    summary, performance_data, message_id
                )
                SELECT
                    k.instance_id, CAST(:midnight AS timestamptz) + n * interval '1 second' * :step,
                    0, k.source_id, 0, false,
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
        rows = of_new_names(Rounds().next(instances))
        through(engine, view)(rows)
        fold_all(engine)
        add_topology(engine, rows)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        query, server_s = f"SELECT {STATUS} FROM current_status", []
        for _ in range(7):
            with reading(engine) as connection:
                statuses = connection.exec_driver_sql(query).all()
                plan = connection.execute(text(f"EXPLAIN (ANALYZE, TIMING off) {query}")).scalars()
                server_s.append(float(list(plan)[-1].split()[-2]) / 1000)
        check("rows of current_status", len(statuses), instances)
    print(f"PostgreSQL, current_status of {instances} metric instances, each at a site")
    return print_figure("in the server, s", min(server_s), 2, most=CURRENT_STATUS_BOUND_S)


def add_topology(engine: Engine, rows: Rows) -> None:
    view = Catalogue(engine).find("serviceEndpoint")
    assert view is not None
    since = format_time(FIRST_MOMENT - timedelta(days=1))
    names = ("hostname", "serviceflavour", "sitename")
    endpoints = [
        ({**{key: row[key] for key in names}, "validfrom": since}, message_id, publisher)
        for row, message_id, publisher in rows
    ]
    through(engine, view)(endpoints)


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
            seconds(partial(by_executemany, engine, PLAIN, for_table)) / count,
            seconds(partial(by_executemany, engine, view, for_view)) / count,
        )
        if turn:
            plain.append(times[0])
            through_view.append(times[1])
    engine.dispose()
    print("SQLite, rows without details")
    print_speed("executemany into the plain table, rows/s", plain)
    print_speed("executemany into the view, rows/s", through_view)
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
    with reading(engine) as connection:
        stored = connection.exec_driver_sql("SELECT count(*) FROM metricOutput").scalar_one()
    check("stored rows", stored, expected)


def print_cost(title: str, row_s: Sequence[float]) -> None:
    print_figure(f"{title}, µs a row", 1e6 * median(row_s))


if __name__ == "__main__":
    sys.exit(main())
