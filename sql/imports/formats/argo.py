"""Reads tables in CSV as argo-connectors reads them: a topology, and downtimes.

SITENAME-SERVICEGROUP, SERVICE_TYPE, URL, Status              serviceEndpoint
SITENAME-SERVICEGROUP, CONTACT_EMAIL                          siteContact
unique_id, url, service_type, start_time, end_time, Severity  downtime, which is SCHEDULED

The host is that of the URL. Other columns are not read. `unique_id` is that of the service, so a
downtime is identified by it and its start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_CONTACT
from sam_pipeline.sql.imports.feed_rows import FeedRows, Files, SiteFacts, contact_of, host_of
from sam_pipeline.sql.imports.formats.documents import table_lines
from sam_pipeline.sql.imports.table import time_in
from sam_pipeline.sql.topology.view_rows import ARGO

SITE, TYPE, URL = "SITENAME-SERVICEGROUP", "SERVICE_TYPE", "URL"
TOPOLOGY_COLUMNS = (SITE, TYPE, URL)
DOWNTIME_COLUMNS = ("unique_id", "url", "service_type", "start_time", "end_time", "Severity")
"""The required columns."""

Line = Mapping[str, str]


def read_argo(files: Files, time_format: str | None = None) -> FeedRows:
    """The rows of the files `endpoints` and `downtimes`, as far as they are given."""
    rows = FeedRows(ARGO)
    if "endpoints" in files:
        lines = list(table_lines(files["endpoints"], TOPOLOGY_COLUMNS, rows.left_out))
        rows.endpoints = rows.read(SERVICE_ENDPOINT, lines, endpoints)
        people: dict[str, set[str]] = defaultdict(set)
        countries: dict[str, set[str]] = defaultdict(set)
        for _, line in lines:
            people[line[SITE]].add(line.get("CONTACT_EMAIL", ""))
            countries[line[SITE]].add(line.get("COUNTRY_NAME", ""))
        contacts = [
            ("", [{"siteName": site, "contact": contact}])
            for site, emails in people.items()
            if site and (contact := contact_of(emails))
        ]
        rows.contacts = rows.read(SITE_CONTACT, contacts, lambda records: records)
        rows.sites = {site: SiteFacts(countries=names) for site, names in countries.items()}
    if "downtimes" in files:
        lines = list(table_lines(files["downtimes"], DOWNTIME_COLUMNS, rows.left_out))
        rows.downtimes = rows.read(DOWNTIME, lines, lambda line: downtimes(line, time_format))
    return rows


def endpoints(line: Line) -> Iterator[Mapping[str, str]]:
    status = line.get("Status", "").lower()
    yield {
        "siteName": line[SITE],
        "hostName": host_of(line[URL]),
        "serviceFlavour": line[TYPE],
        "serviceURI": line[URL],
        "production": ("Y" if status == "production" else "N") if status else "",
    }


def downtimes(line: Line, time_format: str | None) -> Iterator[Mapping[str, str]]:
    try:
        start, end = (time_in(time_format, line[name]) for name in ("start_time", "end_time"))
    except ValueError as error:
        raise RecordRefused("bad-time", str(error)) from None
    yield {
        "downtimeId": f"{line['unique_id']} {start}",
        "hostName": host_of(line["url"]),
        "serviceFlavour": line["service_type"],
        "startTime": start,
        "endTime": end,
        "classification": "SCHEDULED",
        "severity": line["Severity"].upper(),
        "description": line.get("Description", ""),
    }
