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
    return _present(
        siteName=endpoint.site,
        hostName=endpoint.host,
        serviceFlavour=endpoint.flavour,
        voName=endpoint.vo,
        production=endpoint.production,
        monitored=endpoint.monitored,
        validFrom=wire_time(endpoint.valid_from),
        validTo=wire_time(endpoint.valid_to),
    )


def site_group_record(group: SiteGroup) -> dict[str, str]:
    return _present(
        siteName=group.site,
        groupName=group.group_name,
        groupType=group.group_type,
        weight="" if group.weight is None else str(group.weight),
        validFrom=wire_time(group.valid_from),
        validTo=wire_time(group.valid_to),
    )


def downtime_record(downtime: Downtime) -> dict[str, str]:
    return _present(
        downtimeId=downtime.downtime_id,
        siteName=downtime.site,
        hostName=downtime.host,
        serviceFlavour=downtime.flavour,
        startTime=wire_time(downtime.start),
        endTime=wire_time(downtime.end),
        classification=downtime.classification,
        severity=downtime.severity,
        description=downtime.description,
        timestamp=wire_time(downtime.announced_at),
    )


def result_record(result: Result) -> dict[str, str]:
    return _present(
        hostName=result.host,
        serviceFlavour=result.flavour,
        siteName=result.site,
        metricStatus=result.status,
        metricName=result.metric,
        summaryData=result.summary,
        gatheredAt=result.gathered_at,
        monitoringHost=result.monitoring_host,
        timestamp=wire_time(result.measured_at),
        voName=result.vo,
        voFqan=result.fqan,
        performanceData=result.performance_data,
        detailsData=result.details,
    )


def wlcg_text(record: dict[str, str]) -> str:
    """One record in the wire format, written without the code under test."""
    return "".join(f"{key}: {value}\n" for key, value in record.items()) + "EOT\n"


def wire_time(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _batches(prefix: str, message_class: str, records: Iterator[dict[str, str]]) -> Iterator[Batch]:
    number = 0
    while chunk := tuple(islice(records, MAX_RECORDS)):
        number += 1
        yield Batch(f"{prefix}-{number:03}", message_class, chunk)


def _present(**values: str) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}
