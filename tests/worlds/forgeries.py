"""What a publisher of one site can do to the figures of the small world, if it is not stopped.

The forger has the login or the key of ELDER-HPC, which may send results of its own site.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tests.worlds.model import Downtime, Result, World, midnight
from tests.worlds.records import (
    downtime_record,
    endpoint_record,
    result_record,
    site_group_record,
    wire_time,
)
from tests.worlds.small import host_of

OWN_SITE, OWN_HOSTS, OWN_MONITORING_HOST = "ELDER-HPC", "*.elder.example.org", "nagios.elder"
TRUSTED_MONITORING_HOST = "nagios.example.org"
CLASSES = ("metricOutput", "serviceEndpoint", "siteGroup")
"""What the publisher of a site may send: not its own downtimes."""

_NOW = wire_time(datetime.now(UTC))

METRICS, ENDPOINTS, SITES, GROUPS = "metrics", "endpoints", "sites", "groups"


@dataclass(frozen=True)
class Forgery:
    """A record, the rule that it breaks, and what it changes in the reports."""

    message_class: str
    record: dict[str, str]
    rule: str
    level: str
    changed: tuple[str, ...]
    """The names of what is wrong at this level of a report."""


def forgeries(world: World) -> dict[str, Forgery]:
    """The forgeries by name; together they change different things."""
    true_result = next(
        result
        for result in world.results
        if result.host == host_of("BIRCH-T2", "se01")
        and (result.metric, result.status) == ("org.sam.SRM-Get", "OK")
        and result.measured_at > midnight(world.first_day)
    )
    endpoint = next(row for row in world.endpoints if row.host == host_of("ASTER-T1", "se01"))
    group = next(row for row in world.site_groups if row.site == "DAHLIA-HPC" and row.weight)
    announced = next(row for row in world.downtimes if row.site == "DAHLIA-HPC")
    own = _own_result(world)
    start = midnight(world.first_day) - timedelta(days=180)
    times = (start, start + timedelta(days=365), start)
    long = Downtime("DT-FORGED", *times, OWN_SITE, host_of(OWN_SITE, "se01"), "SRM")
    return {
        "a CRITICAL at the second of a true result, with the host in capitals": Forgery(
            "metricOutput",
            {
                **result_record(replace(true_result, status="CRITICAL", summary="forged")),
                "hostName": true_result.host.upper(),
            },
            "sites",
            METRICS,
            ("BIRCH-T2", true_result.flavour, true_result.host, true_result.metric),
        ),
        "the end of an endpoint of another site": Forgery(
            "serviceEndpoint",
            endpoint_record(replace(endpoint, valid_to=endpoint.valid_from)),
            "sites",
            SITES,
            ("ASTER-T1",),
        ),
        "the weight of another site": Forgery(
            "siteGroup",
            site_group_record(replace(group, weight=10_000)),
            "sites",
            GROUPS,
            (group.group_type, group.group_name),
        ),
        "a long downtime of the own storage": Forgery(
            "downtime",
            downtime_record(long),
            "classes",
            ENDPOINTS,
            (OWN_SITE, "SRM", host_of(OWN_SITE, "se01")),
        ),
        "an announcement of this moment, later than all others": Forgery(
            "downtime",
            {
                **downtime_record(replace(announced, end=announced.start)),
                "timestamp": _NOW,
            },
            "classes",
            SITES,
            ("DAHLIA-HPC",),
        ),
        "a result in the name of a trusted monitoring host": Forgery(
            "metricOutput",
            result_record(replace(own, monitoring_host=TRUSTED_MONITORING_HOST)),
            "monitoring_hosts",
            METRICS,
            (OWN_SITE, own.flavour, own.host, own.metric),
        ),
    }


def permitted(world: World) -> dict[str, str]:
    """A result that the publisher may send, and that changes no figure."""
    own = _own_result(world)
    record = replace(own, metric="org.sam.Own", monitoring_host=OWN_MONITORING_HOST)
    return result_record(record)


def _own_result(world: World) -> Result:
    """A CRITICAL of a compute element of the own site, between two results that are OK."""
    runs = (
        result
        for result in world.results
        if (result.host, result.metric) == (host_of(OWN_SITE, "ce01"), "org.sam.CE-Ping")
        and (result.vo, result.status) == ("ops", "OK")
        and result.measured_at > midnight(world.first_day)
    )
    first = min(runs, key=lambda result: result.measured_at)
    between = first.measured_at + timedelta(seconds=1)
    return replace(first, status="CRITICAL", measured_at=between, summary="forged", details="")
