"""An archive of generated days, written without a database: as fast as Parquet files are written.

The days have the sites, endpoints and metrics of report_days.py. The first day is only that before
the period: its results are those that the period begins with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_number, day_start
from sam_pipeline.sql.archive.layout import (
    ENDPOINT,
    ROWS_PER_FILE,
    ROWS_PER_GROUP,
    SCHEMAS,
    SORTED_BY,
)
from sam_pipeline.sql.archive.manifest import (
    DOWNTIMES,
    EXCLUSIONS,
    RESULTS,
    TOPOLOGY,
    DatabaseState,
    DataFile,
    Manifest,
    data_name,
)
from sam_pipeline.sql.archive.store import LocalStore
from sam_pipeline.sql.archive.writing.files import PARQUET
from tests.benchmarks.report_days import VO, Size, endpoints, instances, profile_text, statuses

PROCESSES = 2
NOBODY = DatabaseState("generated", 1, 1)


@dataclass(frozen=True)
class GeneratedDays:
    """An archive, and the profile of its days beside it."""

    root: Path
    period: Period
    size: Size

    @property
    def profile_file(self) -> Path:
        return self.root.parent / "profile.toml"


def generate(root: Path, size: Size, last_day: date) -> GeneratedDays:
    """Write `size.days` days up to the last one, and the day before them."""
    period = Period(last_day - timedelta(days=size.days - 1), last_day)
    root.mkdir(parents=True)
    archive = GeneratedDays(root, period, size)
    archive.profile_file.write_text(profile_text(size))
    days = [period.first - timedelta(days=1), *period.days()]
    with ProcessPoolExecutor(PROCESSES) as pool:
        for _ in pool.map(partial(_write_day, root, size), days):
            pass
    return archive


def _write_day(root: Path, size: Size, day: date) -> None:
    store = LocalStore(root)
    tables = {
        TOPOLOGY: [_topology(size, day)],
        DOWNTIMES: [_downtimes(size, day)],
        EXCLUSIONS: [SCHEMAS[EXCLUSIONS].empty_table()],
        RESULTS: _results(size, day),
    }
    files = []
    with store.workspace() as work:
        for kind, of_kind in tables.items():
            for number, table in enumerate(of_kind):
                name = data_name(kind, day, 1, number if kind == RESULTS else None)
                path = work / "file.parquet"
                pq.write_table(table, path, row_group_size=ROWS_PER_GROUP, **PARQUET)
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                files.append(DataFile(kind, name, len(table), path.stat().st_size, digest))
                store.put(path, name)
    made_at = datetime.now(UTC).isoformat()
    manifest = Manifest(day, 1, "0001", "generated", made_at, "generated", NOBODY, files, {})
    store.create(manifest.name, manifest.as_json())


def _results(size: Size, day: date) -> Iterable[pa.Table]:
    """The results of a day in parts, one for each file."""
    chance = np.random.default_rng(day_number(day))
    names = _names(size)
    interval = DAY_S // size.results
    offsets = chance.integers(0, interval, size.instances)
    of_times = np.stack(list(statuses(chance, size.instances, size.results)), axis=1)
    per_file = ROWS_PER_FILE // size.results
    for low, high in pairwise([*range(0, size.instances, per_file), size.instances]):
        number = np.repeat(np.arange(low, high), size.results)
        second = (
            day_start(day) + (np.arange(size.results) * interval + offsets[low:high, None]).ravel()
        )
        took = pc.cast(pa.array(second % 400), pa.string())
        result_id = number + np.tile(np.arange(size.results), high - low) * size.instances
        times = pa.array(second).cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("ms", "UTC"))
        columns: dict[str, Any] = {
            **{name: _encoded(names[name], number) for name in names.column_names},
            "measured_at": times,
            "received_at": times,
            "status": pa.array(of_times[low:high].ravel()),
            "summary": pc.binary_join_element_wise("job finished in ", took, " s", ""),
            "performance_data": pc.binary_join_element_wise("time=", took, "s;400;600;0", ""),
            "message_id": pc.utf8_lpad(pc.cast(pa.array(result_id // 100), pa.string()), 32, "0"),
            "result_id": pa.array(result_id),
            "publisher": _constant("key:probes", len(number)),
        }
        schema = SCHEMAS[RESULTS]
        yield pa.table(
            [columns.get(field.name, _nothing(field, len(number))) for field in schema], schema
        )


def _names(size: Size) -> pa.Table:
    """The names of all instances, in the order of the files."""
    rows = [
        {
            "host_name": host,
            "service_flavour": flavour,
            "metric_name": metric,
            "vo": VO,
            "fqan": "",
            "monitoring_host": f"nagios{number % 3}.example.org",
            "gathered_at": "wn1.example.org",
            "site_hint": site,
        }
        for number, (site, flavour, host, metric) in enumerate(instances(size))
    ]
    table = pa.Table.from_pylist(rows)
    return table.sort_by([(name, "ascending") for name in SORTED_BY if name != "measured_at"])


def _encoded(names: pa.ChunkedArray, number: Any) -> pa.DictionaryArray:
    """The names of instances by their numbers, with a dictionary of those that occur."""
    low, high = int(number[0]), int(number[-1]) + 1
    encoded = names.slice(low, high - low).combine_chunks().dictionary_encode()
    places = encoded.indices.to_numpy()[number - low]
    return pa.DictionaryArray.from_arrays(pa.array(places), encoded.dictionary)


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _nothing(field: pa.Field, count: int) -> Any:
    return pa.nulls(count, field.type) if field.nullable else _constant("", count)


def _topology(size: Size, day: date) -> pa.Table:
    since = day_start(day) - 400 * DAY_S
    return _table(
        TOPOLOGY,
        [
            {
                "record": ENDPOINT,
                "site": site,
                "host_name": host,
                "service_flavour": flavour,
                "vo": "",
                "valid_from": datetime.fromtimestamp(since, UTC),
                "valid_from_s": since,
            }
            for site, flavour, host in endpoints(size)
        ],
    )


def _downtimes(size: Size, day: date) -> pa.Table:
    """A downtime of some hours for every twentieth site."""
    rows = []
    for site in range(0, size.sites, 20):
        start = day_start(day) + site % 20 * 3600
        end = start + 3 * 3600 + site
        rows.append(
            {
                "downtime_id": f"{day}-{site}",
                "site": f"SITE-{site:03}",
                "host_name": "",
                "service_flavour": "",
                "start_time": datetime.fromtimestamp(start, UTC),
                "end_time": datetime.fromtimestamp(end, UTC),
                "start_s": start,
                "end_s": end,
                "classification": "SCHEDULED",
                "severity": "OUTAGE",
            }
        )
    return _table(DOWNTIMES, rows)


def _table(kind: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMAS[kind])
