"""A world as the Parquet files that tests.oracle.duckdb_report reads."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.oracle.duckdb_report import write_inputs
from tests.worlds.model import Downtime, Profile, World
from tests.worlds.profile_file import to_toml


def write_world(directory: Path, world: World, profile: Profile) -> None:
    """Write the results of the profile's VO, and the newest announcement of each downtime."""
    write_inputs(
        directory,
        to_toml(profile),
        result=[
            {
                "host_name": result.host,
                "service_flavour": result.flavour,
                "metric_name": result.metric,
                "measured_at": _second(result.measured_at),
                "status": result.status,
            }
            for result in world.results
            if profile.vo in (None, result.vo)
        ],
        membership=[
            {
                "site": endpoint.site,
                "service_flavour": endpoint.flavour,
                "host_name": endpoint.host,
                "vo": endpoint.vo,
                "production": endpoint.production,
                "monitored": endpoint.monitored,
                "valid_from": _second(endpoint.valid_from),
                "valid_to": None if endpoint.valid_to is None else _second(endpoint.valid_to),
            }
            for endpoint in world.endpoints
        ],
        downtime=[
            {
                "site": downtime.site,
                "service_flavour": downtime.flavour,
                "host_name": downtime.host,
                "start": _second(downtime.start),
                "stop": _second(downtime.end),
                "classification": downtime.classification,
                "severity": downtime.severity,
            }
            for downtime in _newest(world)
        ],
        exclusion=[
            {
                "kind": exclusion.kind,
                "site": exclusion.site,
                "service_flavour": exclusion.flavour,
                "host_name": exclusion.host,
                "metric_name": exclusion.metric,
                "start": _second(exclusion.start),
                "stop": _second(exclusion.end),
            }
            for exclusion in world.exclusions
        ],
    )


def _newest(world: World) -> list[Downtime]:
    in_order = sorted(world.downtimes, key=lambda downtime: downtime.announced_at)
    return list({(d.downtime_id, d.site, d.host, d.flavour): d for d in in_order}.values())


def _second(moment: datetime) -> int:
    return int(moment.timestamp())
