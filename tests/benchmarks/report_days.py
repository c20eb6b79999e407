"""Days of results in a private database and in Parquet files, the same rows in both.

Of each metric instance 97 of 100 results are OK; the others come in runs of four on average. The
rows are copied into the tables below the views. Only the day before the first one is loaded through
the view, with one result of each instance, which creates all names.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from sqlalchemy import Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.staging import SentRow
from tests.benchmarks.load import SETTINGS, database, through
from tests.oracle.duckdb_report import INPUTS, write_inputs

# A partition created in the same transaction is filled without WAL: half the time and disk.
FILL_SETTINGS = {
    **SETTINGS,
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
}
SHARE_OK = 0.97
RUN_LENGTH = 4  # of results that are not OK, on average
STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")
FLAVOURS = ("CE", "ARC-CE", "SRM", "XROOTD")
REPORT = "benchmark"
VO = "ops"
PUBLISHER = "login:benchmark"
_COLUMNS = (
    "result_id, measured_at, instance_id, gatherer_id, source_id, status, summary,"
    " performance_data, message_id"
)
_KEYS = """
SELECT n.host_name, n.service_flavour, n.metric_name, k.instance_id, k.source_id
FROM result_source AS k JOIN metric_instance_name AS n USING (instance_id)
ORDER BY k.instance_id
"""
_COUNTERS = """
SELECT r.result_id, g.gatherer_id
FROM report_newest_result AS r, gatherer AS g WHERE g.gathered_at = 'wn1.example.org'
"""
_PARTITION = "CREATE TABLE {name} (LIKE metric_result INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
_ATTACH = """
ALTER TABLE metric_result ATTACH PARTITION {name}
FOR VALUES FROM (:day) TO (:next)
"""
_COUNT_ON = """
SELECT setval('metric_result_result_id_seq', :rows + result_id) FROM report_newest_result
"""
_MAKE_OTHERS = "SELECT make_partitions(ARRAY[CAST(:day AS date)])"
_MARK = """
INSERT INTO changed_day (day) VALUES (:day) ON CONFLICT (day) DO UPDATE SET change_no = NULL
"""


@dataclass(frozen=True)
class Size:
    """The size of the days.

    `endpoints` are those of a site, `metrics` those of an endpoint, `results` those of a metric
    instance on a day.
    """

    sites: int
    endpoints: int
    metrics: int
    results: int
    days: int = 1
    whole_day_before: bool = False

    @property
    def instances(self) -> int:
        return self.sites * self.endpoints * self.metrics

    @property
    def rows_a_day(self) -> int:
        return self.instances * self.results

    def __str__(self) -> str:
        return (
            f"{self.days} day(s) of {self.rows_a_day} results: {self.sites} sites x"
            f" {self.endpoints} endpoints x {self.metrics} metrics x {self.results}"
        )


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
    chance = np.random.default_rng(7)
    with database(url) as (engine, view):
        first = list(_first_results(chance, size, period.first - timedelta(days=1)))
        through(engine, view)(first)
        _add_topology(engine, size, period)
        fold_all(engine)
        keys = _keys(engine)
        results = [_as_parquet(_of_door(first))]
        before = [period.first - timedelta(days=1)] if size.whole_day_before else []
        for day in (*before, *period.days()):
            for rows in _fill_day(engine, chance, size, keys, day):
                if parquet:
                    results.append(_as_parquet(rows))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
            connection.execute(text("CHECKPOINT"))
        if parquet:
            _export(engine, directory, size, results)
        else:
            (directory / "profile.toml").write_text(profile_text(size))
    return Days(engine, url, directory, period, size)


def profile_text(size: Size) -> str:
    """A profile with every metric, in which either flavour of compute element is enough."""
    flavours = "\n".join(
        f"[flavours.{flavour}]\nmetrics = {[_metric(flavour, n) for n in range(size.metrics)]}"
        for flavour in FLAVOURS[: size.endpoints]
    )
    return f"""
name = "{REPORT}"
validity_s = "off"
vo = "{VO}"
{flavours}
[functions.compute]
flavours = {list(FLAVOURS[:2][: size.endpoints])}
{_storage(size)}
"""


def _storage(size: Size) -> str:
    flavours = FLAVOURS[2 : size.endpoints]
    return f"[functions.storage]\nflavours = {list(flavours)}" if flavours else ""


def statuses(chance: np.random.Generator, instances: int, results: int) -> Iterator[Any]:
    """The status numbers of all instances, for one time after the other."""
    ends = 1 / RUN_LENGTH
    begins = ends * (1 - SHARE_OK) / SHARE_OK
    bad = chance.random(instances) >= SHARE_OK
    kind = chance.integers(1, len(STATUSES), instances, dtype=np.int8)
    for _ in range(results):
        yield np.where(bad, kind, 0).astype(np.int8)
        turns = chance.random(instances) < np.where(bad, ends, begins)
        kind = np.where(turns & ~bad, chance.integers(1, len(STATUSES), instances), kind)
        bad ^= turns


def _first_results(chance: np.random.Generator, size: Size, day: date) -> Iterator[SentRow]:
    """One result of each instance, in the last hour of the day."""
    status_numbers = next(statuses(chance, size.instances, 1))
    named = zip(instances(size), status_numbers, strict=True)
    for number, ((site, flavour, host, metric), status) in enumerate(named):
        row = {
            "hostname": host,
            "serviceflavour": flavour,
            "sitename": site,
            "metricname": metric,
            "metricstatus": STATUSES[status],
            "timestamp": format_time(_moment(day) + timedelta(hours=23, seconds=number % 3600)),
            "gatheredat": "wn1.example.org",
            "monitoringhost": "nagios.example.org",
            "voname": VO,
            "summarydata": f"job finished in {number % 400} s",
        }
        yield row, f"{number // 100:032x}", PUBLISHER


def instances(size: Size) -> Iterator[tuple[str, str, str, str]]:
    """Site, flavour, host and metric."""
    for site, flavour, host in endpoints(size):
        for number in range(size.metrics):
            yield site, flavour, host, _metric(flavour, number)


def endpoints(size: Size) -> Iterator[tuple[str, str, str]]:
    for site in range(size.sites):
        for number in range(size.endpoints):
            flavour = FLAVOURS[number % len(FLAVOURS)]
            yield f"SITE-{site:03}", flavour, f"h{number:02}.site-{site:03}.example.org"


def _metric(flavour: str, number: int) -> str:
    return f"org.sam.{flavour}-Check{number}"


def _add_topology(engine: Engine, size: Size, period: Period) -> None:
    """Add endpoints, and for every twentieth site a downtime of some hours on each day."""
    view = Catalogue(engine).find("serviceEndpoint")
    assert view is not None
    since = format_time(_moment(period.first) - timedelta(days=400))
    named = {"validfrom": since}
    rows = [
        (
            {"sitename": site, "serviceflavour": flavour, "hostname": host, **named},
            "topology",
            PUBLISHER,
        )
        for site, flavour, host in endpoints(size)
    ]
    through(engine, view)(rows)
    statement = text(
        "INSERT INTO downtime (siteName, startTime, endTime, classification, severity)"
        " VALUES (:site, :start, :end, 'SCHEDULED', 'OUTAGE')"
    )
    downtimes = [
        {
            "site": f"SITE-{site:03}",
            "start": format_time(_moment(day) + timedelta(hours=site % 20)),
            "end": format_time(_moment(day) + timedelta(hours=site % 20 + 3, seconds=site)),
        }
        for day in period.days()
        for site in range(0, size.sites, 20)
    ]
    with writing(engine) as connection:
        connection.execute(statement, downtimes)


def _keys(engine: Engine) -> pa.Table:
    """The names of all instances, and the ids by which a result refers to them."""
    with reading(engine) as connection:
        rows = connection.execute(text(_KEYS)).all()
    names = ("host_name", "service_flavour", "metric_name", "instance_id", "source_id")
    columns = dict(zip(names, map(pa.array, zip(*rows, strict=True)), strict=True))
    for name in names[:3]:
        columns[name] = columns[name].dictionary_encode()
    return pa.table(columns)


def _fill_day(
    engine: Engine, chance: np.random.Generator, size: Size, keys: pa.Table, day: date
) -> Iterator[pa.Table]:
    """Store a day in one transaction, in order of time, and yield its rows.

    The partition gets its index after it was filled, which takes half the time.
    """
    interval = DAY_S // size.results
    # Each instance is measured at a second of its own within the interval.
    offsets = np.sort(chance.integers(0, interval, size.instances))
    shuffled = keys.take(chance.permutation(size.instances))
    partition = f"metric_result_{day:%Y%m%d}"
    with writing(engine) as connection:
        before, gatherer = connection.execute(text(_COUNTERS)).one()
        connection.execute(text(_PARTITION.format(name=partition)))
        cursor = connection.connection.cursor()
        for number, status in enumerate(statuses(chance, size.instances, size.results)):
            seconds = day_start(day) + number * interval + offsets
            first_id = before + 1 + number * size.instances
            body = _copy_text(shuffled, seconds, status, first_id, gatherer)
            cursor.copy_expert(f"COPY {partition} ({_COLUMNS}) FROM STDIN (FORMAT csv)", body)
            yield _rows(shuffled, seconds, status)
        times = {"day": day, "next": day + timedelta(days=1), "rows": size.rows_a_day}
        for statement in (_ATTACH.format(name=partition), _COUNT_ON, _MAKE_OTHERS, _MARK):
            connection.execute(text(statement), times)


def _copy_text(
    keys: pa.Table, seconds: Any, status: Any, first_id: int, gatherer: int
) -> io.BytesIO:
    number = pa.array(first_id + np.arange(len(status)))
    took = pc.cast(pa.array(seconds % 400), pa.string())
    rows = pa.table(
        {
            "result_id": number,
            "measured_at": pa.array(seconds).cast(pa.timestamp("s", tz="UTC")),
            "instance_id": keys["instance_id"],
            "gatherer_id": pa.repeat(gatherer, len(status)),
            "source_id": keys["source_id"],
            "status": pa.array(status),
            "summary": pc.binary_join_element_wise("job finished in ", took, " s", ""),
            "performance_data": pc.binary_join_element_wise("time=", took, "s;400;600;0", ""),
            "message_id": pc.utf8_lpad(pc.cast(pc.divide(number, 100), pa.string()), 32, "0"),
        }
    )
    body = io.BytesIO()
    csv.write_csv(rows, body, csv.WriteOptions(include_header=False))
    body.seek(0)
    return body


def _rows(keys: pa.Table, seconds: Any, status: Any) -> pa.Table:
    names = pa.DictionaryArray.from_arrays(pa.array(status), pa.array(STATUSES))
    table = keys.select(["host_name", "service_flavour", "metric_name"])
    return table.append_column("measured_at", pa.array(seconds)).append_column("status", names)


def _of_door(rows: list[SentRow]) -> pa.Table:
    names = ("hostname", "serviceflavour", "metricname", "timestamp", "metricstatus")
    columns = {name: pa.array([row[name] for row, _, _ in rows]) for name in names}
    moments = pc.strptime(columns["timestamp"], "%Y-%m-%dT%H:%M:%SZ", "s").cast(pa.int64())
    return pa.table({**columns, "timestamp": moments})


def _as_parquet(rows: pa.Table) -> pa.Table:
    texts = pa.dictionary(pa.int32(), pa.string())
    types = [pa.int64() if name == "measured_at" else texts for name in INPUTS["result"]]
    columns = [
        column.cast(type)
        if pa.types.is_dictionary(column.type) or type == pa.int64()
        else column.dictionary_encode()
        for column, type in zip(rows.columns, types, strict=True)
    ]
    return pa.table(columns, names=list(INPUTS["result"]))


def _export(engine: Engine, directory: Path, size: Size, results: list[pa.Table]) -> None:
    with reading(engine) as connection:
        memberships = connection.execute(
            text(
                "SELECT site, service_flavour, host_name, vo, production, monitored,"
                " valid_from_s AS valid_from, valid_to_s AS valid_to FROM report_topology"
            )
        )
        downtimes = connection.execute(
            text(
                "SELECT site, service_flavour, host_name, start_s AS start, end_s AS stop,"
                " classification, severity FROM report_downtime"
            )
        )
        write_inputs(
            directory,
            profile_text(size),
            result=pa.concat_tables(results).unify_dictionaries(),
            membership=[dict(row) for row in memberships.mappings()],
            downtime=[dict(row) for row in downtimes.mappings()],
        )


def _moment(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
