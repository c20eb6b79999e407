"""A world as the Parquet files that tests.oracle.duckdb_report reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from tests.oracle.duckdb_report import INPUTS, write_inputs
from tests.worlds.model import Profile, World
from tests.worlds.profile_file import to_toml

_ATTRIBUTES = {
    "host_name": "host",
    "service_flavour": "flavour",
    "metric_name": "metric",
    "stop": "end",
}
"""The attributes of rows that have another name than the column."""


def write_world(directory: Path, world: World, profile: Profile) -> None:
    """Write the results of the profile's VO, and the newest announcement of each downtime."""
    in_order = sorted(world.downtimes, key=lambda downtime: downtime.announced_at)
    newest = {(d.downtime_id, d.site, d.host, d.flavour): d for d in in_order}
    tables: dict[str, Iterable[object]] = {
        "result": (result for result in world.results if profile.vo in (None, result.vo)),
        "membership": world.endpoints,
        "member": world.site_groups,
        "downtime": newest.values(),
        "exclusion": world.exclusions,
    }
    rows = {name: [_row(row, INPUTS[name]) for row in table] for name, table in tables.items()}
    write_inputs(directory, to_toml(profile), **rows)


def _row(row: object, columns: Iterable[str]) -> dict[str, object]:
    values = {column: getattr(row, _ATTRIBUTES.get(column, column)) for column in columns}
    return {
        column: int(value.timestamp()) if isinstance(value, datetime) else value
        for column, value in values.items()
    }
