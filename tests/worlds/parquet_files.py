"""A world as the Parquet files that tests.duckdb_report reads."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.oracle.duckdb_report import write_inputs
from tests.worlds.model import Downtime, Profile, World
from tests.worlds.profile_file import to_toml


def write_world(directory: Path, world: World, profile: Profile) -> None:
    """Results of the profile's VO, and of each downtime its newest announcement."""
    write_inputs(
        directory,
        to_toml(profile),
        result=[
            {
                "host_name": each.host,
                "service_flavour": each.flavour,
                "metric_name": each.metric,
                "measured_at": _second(each.measured_at),
                "status": each.status,
            }
            for each in world.results
            if profile.vo in (None, each.vo)
        ],
        membership=[
            {
                "site": each.site,
                "service_flavour": each.flavour,
                "host_name": each.host,
                "vo": each.vo,
                "production": each.production,
                "monitored": each.monitored,
                "valid_from": _second(each.valid_from),
                "valid_to": None if each.valid_to is None else _second(each.valid_to),
            }
            for each in world.endpoints
        ],
        downtime=[
            {
                "site": each.site,
                "service_flavour": each.flavour,
                "host_name": each.host,
                "start": _second(each.start),
                "stop": _second(each.end),
                "classification": each.classification,
                "severity": each.severity,
            }
            for each in _newest(world)
        ],
        exclusion=[
            {
                "kind": each.kind,
                "site": each.site,
                "service_flavour": each.flavour,
                "host_name": each.host,
                "metric_name": each.metric,
                "start": _second(each.start),
                "stop": _second(each.end),
            }
            for each in world.exclusions
        ],
    )


def _newest(world: World) -> list[Downtime]:
    in_order = sorted(world.downtimes, key=lambda each: each.announced_at)
    return list({(e.downtime_id, e.site, e.host, e.flavour): e for e in in_order}.values())


def _second(moment: datetime) -> int:
    return int(moment.timestamp())
