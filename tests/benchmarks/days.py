"""Days of results in a private database and in Parquet files, the same rows in both.

Of each metric instance 97 of 100 results are OK; the others come in runs of four. The results are
inserted into the table below the views. Only the day before the first one is loaded through the
view, with one result of each instance, which creates all names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pyarrow import csv
from sqlalchemy import Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from tests.benchmarks.load import SETTINGS, database, through
from tests.oracle.duckdb_report import INPUTS, write_inputs

# A partition created in the same transaction is filled without WAL: half the time and disk.
FILL_SETTINGS = {
    **SETTINGS,
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
}
FLAVOURS = ("CE", "ARC-CE", "SRM", "XROOTD")
REPORT = "benchmark"
PUBLISHER = "login:benchmark"
PARTITION = "CREATE TABLE {name} (LIKE metric_result INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
# Each instance is measured at a second of its own within the interval.
RESULTS = """
INSERT INTO {name} (
    result_id, measured_at, instance_id, gatherer_id, source_id, status,
    has_details, summary, performance_data, message_id
)
SELECT nextval('metric_result_result_id_seq'), ordered.* FROM (SELECT
    to_timestamp(start + n * :interval + instance_id * 7919 % :interval) AS moment,
    instance_id, gatherer_id, source_id,
    CASE WHEN abs(hashint8(run) % 100) < 97 THEN 0 ELSE 1 + abs(hashint8(run + 1) % 3) END,
    false, 'job finished in ' || run % 400 || ' s', 'time=' || run % 400 || 's;400;600;0',
    lpad(CAST(run AS text), 32, '0')
FROM gatherer AS g, result_source, generate_series(0, :results - 1) AS n,
    LATERAL (SELECT CAST(:start AS bigint) AS start) AS s,
    LATERAL (SELECT start * 1000 + instance_id * 99991 + (n + instance_id) / 4 AS run) AS r
WHERE g.gathered_at = 'wn1.example.org'
ORDER BY moment) AS ordered
"""
ATTACH = """
ALTER TABLE metric_result ATTACH PARTITION {name} FOR VALUES FROM (:day) TO (:next)
"""
MAKE_OTHERS = "SELECT make_partitions(ARRAY[CAST(:day AS date)])"
MARK = """
INSERT INTO changed_day (day) VALUES (:day) ON CONFLICT (day) DO UPDATE SET change_no = NULL
"""
QUERIES = {
    "membership": "SELECT site, service_flavour, host_name, vo, grid_site, production, monitored,"
    " valid_from_s AS valid_from, valid_to_s AS valid_to FROM report_topology",
    "downtime": "SELECT site, service_flavour, host_name, start_s AS start, end_s AS stop,"
    " classification, severity FROM report_downtime",
}


@dataclass(frozen=True)
class Size:
    """`endpoints` of a site, `metrics` of an endpoint, `results` of an instance on a day."""

    sites: int
    endpoints: int
    metrics: int
    results: int
    days: int = 1

    @property
    def rows_a_day(self) -> int:
        return self.sites * self.endpoints * self.metrics * self.results


@dataclass(frozen=True)
class Days:
    """A filled database and, for DuckDB, the directory of its Parquet files and profile.toml."""

    engine: Engine
    url: str
    directory: Path
    period: Period
    size: Size

    @property
    def profile_file(self) -> Path:
        return self.directory / "profile.toml"


def fill(url: str, directory: Path, size: Size, last_day: date, *, parquet: bool = True) -> Days:
    """Create the schema, the rows and, for DuckDB, the same rows as Parquet files."""
    period = Period(last_day - timedelta(days=size.days - 1), last_day)
    with database(url) as (engine, view):
        before = moment(period.first) - timedelta(hours=1)
        names = {"gatheredat": "wn1.example.org", "monitoringhost": "nagios.example.org"}
        rows = [
            {
                "sitename": site,
                "serviceflavour": flavour,
                "hostname": host,
                **names,
                "metricname": metric,
                "metricstatus": "OK",
                "voname": "ops",
                "timestamp": format_time(before + timedelta(seconds=number % 3600)),
            }
            for number, (site, flavour, host, metric) in enumerate(instances(size))
        ]
        through(engine, view)([(row, f"{n:032x}", PUBLISHER) for n, row in enumerate(rows)])
        add_topology(engine, size, period)
        fold_all(engine)
        for day in period.days():
            fill_day(engine, size, day)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
            connection.execute(text("CHECKPOINT"))
        if parquet:
            export(engine, directory, size)
        (directory / "profile.toml").write_text(profile_text(size))
    print(f"{size}, filled", flush=True)
    return Days(engine, url, directory, period, size)


def fill_day(engine: Engine, size: Size, day: date) -> None:
    """Store a day in one transaction, in order of time; its index is made at the end."""
    name = f"metric_result_{day:%Y%m%d}"
    values = {
        "start": day_start(day),
        "interval": DAY_S // size.results,
        "results": size.results,
        "day": day,
        "next": day + timedelta(days=1),
    }
    with writing(engine) as connection:
        for statement in (PARTITION, RESULTS, ATTACH, MAKE_OTHERS, MARK):
            connection.execute(text(statement.format(name=name)), values)


def export(engine: Engine, directory: Path, size: Size) -> None:
    columns = ", ".join(INPUTS["result"]).replace("measured_at", "measured_at_s")
    file = directory / "result.csv"
    with reading(engine) as connection, file.open("wb") as target:
        cursor = connection.connection.cursor()
        cursor.copy_expert(f"COPY (SELECT {columns} FROM report_result) TO STDOUT CSV", target)
        tables = {
            name: [dict(row) for row in connection.execute(text(query)).mappings()]
            for name, query in QUERIES.items()
        }
    results = csv.read_csv(
        file,
        csv.ReadOptions(column_names=list(INPUTS["result"])),
        convert_options=csv.ConvertOptions(column_types=dict(INPUTS["result"])),
    )
    write_inputs(directory, profile_text(size), result=results, **tables)
    file.unlink()


def profile_text(size: Size) -> str:
    """A profile with every metric, in which either flavour of compute element is enough."""
    text = f'name = "{REPORT}"\nvalidity_s = "off"\nvo = "ops"\n'
    for flavour in FLAVOURS[: size.endpoints]:
        metrics = [f"org.sam.{flavour}-Check{number}" for number in range(size.metrics)]
        text += f"[flavours.{flavour}]\nmetrics = {metrics}\n"
    for name, flavours in (("compute", FLAVOURS[:2]), ("storage", FLAVOURS[2:])):
        if own := [flavour for flavour in flavours if flavour in FLAVOURS[: size.endpoints]]:
            text += f"[functions.{name}]\nflavours = {own}\n"
    return text


def instances(size: Size) -> Iterator[tuple[str, str, str, str]]:
    """Site, flavour, host and metric."""
    for site, flavour, host in endpoints(size):
        for number in range(size.metrics):
            yield site, flavour, host, f"org.sam.{flavour}-Check{number}"


def endpoints(size: Size) -> Iterator[tuple[str, str, str]]:
    for site in range(size.sites):
        for number in range(size.endpoints):
            flavour = FLAVOURS[number % len(FLAVOURS)]
            yield f"SITE-{site:03}", flavour, f"h{number:02}.site-{site:03}.example.org"


def add_topology(engine: Engine, size: Size, period: Period) -> None:
    """Add endpoints, and for every twentieth site a downtime of some hours on each day."""
    view = Catalogue(engine).find("serviceEndpoint")
    assert view is not None
    since = {"validfrom": format_time(moment(period.first) - timedelta(days=400))}
    rows = [
        {"sitename": site, "serviceflavour": flavour, "hostname": host, **since}
        for site, flavour, host in endpoints(size)
    ]
    through(engine, view)([(row, "topology", PUBLISHER) for row in rows])
    statement = text(
        "INSERT INTO downtime (siteName, startTime, endTime, classification, severity)"
        " VALUES (:site, :start, :end, 'SCHEDULED', 'OUTAGE')"
    )
    downtimes = [
        {
            "site": f"SITE-{site:03}",
            "start": format_time(moment(day) + timedelta(hours=site % 20)),
            "end": format_time(moment(day) + timedelta(hours=site % 20 + 3, seconds=site)),
        }
        for day in period.days()
        for site in range(0, size.sites, 20)
    ]
    with writing(engine) as connection:
        connection.execute(statement, downtimes)


def moment(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
