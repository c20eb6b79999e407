"""A second implementation of figures and timelines in DuckDB: the rules as SQL over Parquet files.

    python -m tests.oracle.duckdb_report DIRECTORY 2026-11-07 [LAST_DAY] [--archive ROOT]

DIRECTORY contains profile.toml and a Parquet file for each of INPUTS; figure.parquet and
timeline.parquet, of all days and levels, are written there. With --archive the inputs are instead
the files of the newest versions of the days, and of those before them that count, in an archive.

It is written only from the rules (`rule N` is that of the availability document), for results of
the profile's VO with their status as sent; excluded monitoring hosts, sites chosen by group and own
operations are not supported. Groups of sites are in duckdb_groups.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.oracle.duckdb_rules import DAY_S, NAMES, SECONDS, look_back, statements

_EPOCH = date(1970, 1, 1)

_INTEGERS = ("measured_at", "valid_from", "valid_to", "start", "stop", "weight")


def _columns(names: str) -> Mapping[str, Any]:
    return {name: pa.int64() if name in _INTEGERS else pa.string() for name in names.split()}


_ENDPOINT = "site service_flavour host_name"
INPUTS: Mapping[str, Mapping[str, Any]] = {
    "result": _columns("host_name service_flavour metric_name measured_at status"),
    "membership": _columns(f"{_ENDPOINT} vo grid_site production monitored valid_from valid_to"),
    "member": _columns("site group_type group_name weight valid_from valid_to"),
    "downtime": _columns(f"{_ENDPOINT} start stop classification severity"),
    "exclusion": _columns(f"kind {_ENDPOINT} metric_name start stop"),
}
"""Columns of the files; times in epoch seconds, an empty name of a downtime or exclusion is any."""

# The same columns from the files of an archive.
_RESULT = (
    "host_name, service_flavour, metric_name, epoch_ms(measured_at) // 1000 AS measured_at,"
    " ['OK', 'WARNING', 'UNKNOWN', 'CRITICAL'][status + 1] AS status"
)
_MEMBERSHIP = (
    "site, service_flavour, host_name, vo, grid_site, production, monitored,"
    " valid_from_s AS valid_from, valid_to_s AS valid_to"
)
_OF_ENDPOINTS = "WHERE record = 'endpoint'"
_MEMBER = "site, group_type, group_name, weight, valid_from_s AS valid_from, valid_to_s AS valid_to"
_OF_MEMBERS = "WHERE record = 'member'"
_DOWNTIME = (
    "site, service_flavour, host_name, start_s AS start, end_s AS stop, classification, severity"
)
_EXCLUSION = "kind, site, service_flavour, host_name, metric_name, start_s AS start, end_s AS stop"

FIGURE = ("level", "day", *NAMES, *SECONDS, "availability", "reliability")
SEGMENT = ("level", "day", *NAMES, "start", "stop", "status")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("first", type=date.fromisoformat, metavar="DAY")
    parser.add_argument("last", type=date.fromisoformat, nargs="?", metavar="LAST_DAY")
    parser.add_argument("--archive", type=Path, metavar="ROOT")
    args = parser.parse_args(argv)
    compute(args.directory, args.first, args.last or args.first, archive=args.archive)
    return 0


def write_inputs(
    directory: Path, profile: str, **tables: Iterable[Mapping[str, Any]] | pa.Table
) -> None:
    """Write profile.toml and the Parquet files; a table that isn't given is empty."""
    (directory / "profile.toml").write_text(profile, encoding="utf-8")
    for name, columns in INPUTS.items():
        rows = tables.get(name, ())
        if not isinstance(rows, pa.Table):
            rows = pa.Table.from_pylist(list(rows), schema=pa.schema(list(columns.items())))
        pq.write_table(rows, directory / f"{name}.parquet")


def compute(
    directory: Path,
    first: date,
    last: date,
    until: datetime | None = None,
    archive: Path | None = None,
) -> None:
    """Write the figures and timelines of the days; `until` ends a last day that is open."""
    profile = tomllib.loads((directory / "profile.toml").read_text(encoding="utf-8"))
    days = range((first - _EPOCH).days, (last - _EPOCH).days + 1)
    now = None if until is None else int(until.timestamp())
    with duckdb.connect() as database:
        if archive is None:
            for name in INPUTS:
                database.sql(f"CREATE VIEW {name} AS FROM '{directory / name}.parquet'")
        else:
            _view_archive(database, archive, profile, first, last)
        for statement in statements(profile, days, now):
            database.execute(*statement)
        for name in ("figure", "timeline"):
            database.sql(f"COPY {name} TO '{directory / name}.parquet'")


def _view_archive(
    database: Any, root: Path, profile: Mapping[str, Any], first: date, last: date
) -> None:
    """Create the views INPUTS on the files of the archive."""
    files: dict[str, list[str]] = {}
    for number in range(-look_back(profile), (last - first).days + 1):
        manifests = (root / "manifest" / f"day={first + timedelta(days=number)}").glob("v*.json")
        newest = max(manifests, key=lambda path: int(path.stem[1:]))
        for file in json.loads(newest.read_text())["files"]:
            files.setdefault(file["kind"], []).append(str(root / file["name"]))
    vo = profile.get("vo")
    of_vo = "" if vo is None else f"WHERE vo = '{vo}'"
    for view, kind, statement in (
        ("result", "results", f"SELECT {_RESULT} FROM {{}} {of_vo}"),
        ("membership", "topology", f"SELECT DISTINCT {_MEMBERSHIP} FROM {{}} {_OF_ENDPOINTS}"),
        ("member", "topology", f"SELECT DISTINCT {_MEMBER} FROM {{}} {_OF_MEMBERS}"),
        ("downtime", "downtimes", f"SELECT DISTINCT {_DOWNTIME} FROM {{}}"),
        ("exclusion", "exclusions", f"SELECT DISTINCT {_EXCLUSION} FROM {{}}"),
    ):
        rows = statement.format(f"read_parquet({files[kind]})")
        database.sql(f"CREATE VIEW {view} AS {rows}")


def read_figures(directory: Path) -> set[tuple[Any, ...]]:
    """Rows of FIGURE; the day as a date, percentages in whole 100 000ths or None."""
    return _rows(directory / "figure.parquet", FIGURE)


def read_timeline(directory: Path) -> set[tuple[Any, ...]]:
    """Rows of SEGMENT; the day as a date, times in epoch seconds."""
    return _rows(directory / "timeline.parquet", SEGMENT)


def _rows(path: Path, columns: Sequence[str]) -> set[tuple[Any, ...]]:
    table = pq.read_table(path, columns=list(columns))
    at = columns.index("day")
    return {
        (*row[:at], datetime.fromtimestamp(row[at] * DAY_S, UTC).date(), *row[at + 1 :])
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    }


if __name__ == "__main__":
    sys.exit(main())
