"""A world as records with their wire keys, packed into batches with stable names.

A batch is the content of one message: sending it again under its name repeats that message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from tests.worlds.model import Downtime, Endpoint, Result, SiteGroup, World

MAX_RECORDS = 100  # of one message, as `sam-publish send` packs


@dataclass(frozen=True)
class Batch:
    """The records of one message; `name` is its id and the name of its file."""

    name: str
    message_class: str
    records: tuple[dict[str, str], ...]

    def text(self) -> str:
        """The records in the wire format."""
        return "".join(wlcg_text(record) for record in self.records)


def topology_batches(world: World) -> list[Batch]:
    """Batches of endpoints, groups and downtimes."""
    return [
        *_batches("endpoints", "serviceEndpoint", map(endpoint_record, world.endpoints)),
        *_batches("groups", "siteGroup", map(site_group_record, world.site_groups)),
        *_batches("downtimes", "downtime", map(downtime_record, world.downtimes)),
    ]


def result_batches(results: Sequence[Result], prefix: str) -> list[Batch]:
    """Batches of the results, in the given order."""
    return list(_batches(prefix, "metricOutput", map(result_record, results)))


def endpoint_record(endpoint: Endpoint) -> dict[str, str]:
    keys = "siteName=site hostName=host serviceFlavour=flavour voName=vo production=production"
    keys += " monitored=monitored gridSite=grid_site"
    return _record(endpoint, f"{keys} validFrom=valid_from validTo=valid_to")


def site_group_record(group: SiteGroup) -> dict[str, str]:
    keys = "siteName=site groupName=group_name groupType=group_type weight=weight"
    return _record(group, f"{keys} validFrom=valid_from validTo=valid_to")


def downtime_record(downtime: Downtime) -> dict[str, str]:
    keys = "downtimeId=downtime_id siteName=site hostName=host serviceFlavour=flavour"
    keys += " startTime=start endTime=end classification=classification severity=severity"
    return _record(downtime, f"{keys} description=description timestamp=announced_at")


def result_record(result: Result) -> dict[str, str]:
    keys = "hostName=host serviceFlavour=flavour siteName=site metricStatus=status"
    keys += " metricName=metric summaryData=summary gatheredAt=gathered_at"
    keys += " monitoringHost=monitoring_host timestamp=measured_at voName=vo voFqan=fqan"
    return _record(result, f"{keys} performanceData=performance_data detailsData=details")


def _record(row: object, keys: str) -> dict[str, str]:
    """The attributes of the row under their wire keys, as far as they are not empty."""
    record = {}
    for key, _, name in (pair.partition("=") for pair in keys.split()):
        value = getattr(row, name)
        if value not in (None, ""):
            record[key] = wire_time(value) if isinstance(value, datetime) else str(value)
    return record


def wlcg_text(record: dict[str, str]) -> str:
    """One record in the wire format, written without the code under test."""
    return "".join(f"{key}: {value}\n" for key, value in record.items()) + "EOT\n"


def wire_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _batches(prefix: str, message_class: str, records: Iterator[dict[str, str]]) -> Iterator[Batch]:
    number = 0
    while chunk := tuple(islice(records, MAX_RECORDS)):
        number += 1
        yield Batch(f"{prefix}-{number:03}", message_class, chunk)
