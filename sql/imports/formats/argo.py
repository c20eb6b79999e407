"""Reads tables in CSV as argo-connectors reads them: a topology, and downtimes.

SITENAME-SERVICEGROUP, SERVICE_TYPE, URL, Status              serviceEndpoint
SITENAME-SERVICEGROUP, CONTACT_EMAIL                          siteContact
unique_id, url, service_type, start_time, end_time, Severity  downtime, which is SCHEDULED

The host is that of the URL. Other columns are not read. `unique_id` is that of the service, so a
downtime is identified by it and its start.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_CONTACT
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import (
    FeedRows,
    Files,
    LeftOut,
    SiteFacts,
    contact_of,
    rows_of,
)
from sam_pipeline.sql.imports.formats.whole_file import read_whole
from sam_pipeline.sql.imports.time_format import time_in
from sam_pipeline.sql.topology.view_rows import ARGO, Row

SITE, TYPE, URL = "SITENAME-SERVICEGROUP", "SERVICE_TYPE", "URL"
STATUS, CONTACT, COUNTRY = "Status", "CONTACT_EMAIL", "COUNTRY_NAME"
TOPOLOGY_COLUMNS = (SITE, TYPE, URL)
DOWNTIME_COLUMNS = ("unique_id", "url", "service_type", "start_time", "end_time", "Severity")
"""The columns that must be there."""

LARGEST_BYTES = 16 * 1024 * 1024

Line = Mapping[str, str]


def read_argo(files: Files, time_format: str | None = None) -> FeedRows:
    """The rows of the files `endpoints` and `downtimes`, as far as they are given.

    Raises:
        BadInput: a file can't be read, or is not a table with these columns.
    """
    left_out: list[LeftOut] = []
    endpoints = contacts = sites = None
    downtimes: list[Row] | None = None
    if "endpoints" in files:
        lines = list(_lines(files["endpoints"], TOPOLOGY_COLUMNS, left_out))
        endpoints = list(rows_of(lines, SERVICE_ENDPOINT, _endpoint, left_out))
        people: dict[str, set[str]] = defaultdict(set)
        countries: dict[str, set[str]] = defaultdict(set)
        for _, line in lines:
            people[line[SITE]].add(line.get(CONTACT, ""))
            countries[line[SITE]].add(line.get(COUNTRY, ""))
        named = [("", (site, contact_of(emails))) for site, emails in people.items() if site]
        contacts = list(rows_of(named, SITE_CONTACT, _contact, left_out))
        sites = {site: SiteFacts(countries=names) for site, names in countries.items()}
    if "downtimes" in files:
        lines = list(_lines(files["downtimes"], DOWNTIME_COLUMNS, left_out))
        downtimes = list(
            rows_of(lines, DOWNTIME, lambda line: _downtime(line, time_format), left_out)
        )
    return FeedRows(
        ARGO, endpoints, contacts=contacts, downtimes=downtimes, sites=sites, left_out=left_out
    )


def _endpoint(line: Line) -> Iterator[Mapping[str, str]]:
    status = line.get(STATUS, "").lower()
    yield {
        "siteName": line[SITE],
        "hostName": _host(line[URL]),
        "serviceFlavour": line[TYPE],
        "serviceURI": line[URL],
        "production": ("Y" if status == "production" else "N") if status else "",
    }


def _contact(named: tuple[str, str]) -> Iterator[Mapping[str, str]]:
    site, contact = named
    if contact:
        yield {"siteName": site, "contact": contact}


def _downtime(line: Line, time_format: str | None) -> Iterator[Mapping[str, str]]:
    try:
        start, end = (time_in(time_format, line[name]) for name in ("start_time", "end_time"))
    except ValueError as error:
        raise RecordRefused("bad-time", str(error)) from None
    yield {
        "downtimeId": f"{line['unique_id']} {start}",
        "hostName": _host(line["url"]),
        "serviceFlavour": line["service_type"],
        "startTime": start,
        "endTime": end,
        "classification": "SCHEDULED",
        "severity": line["Severity"].upper(),
        "description": line.get("Description", ""),
    }


def _lines(
    paths: Iterable[Path], required: Collection[str], left_out: list[LeftOut]
) -> Iterator[tuple[str, Line]]:
    """The lines of tables that are not blank, by the names of their columns, with their location.

    Lines with too few or too many values are added to `left_out`.
    """
    for path in paths:
        try:
            text = read_whole(path, LARGEST_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problem = f"is not in UTF-8 (byte {error.start + 1}): export it in UTF-8"
            raise BadInput(f"{path}: {problem}; nothing was changed") from None
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            columns = [name.strip() for name in next(reader)]
            if missing := [name for name in required if name not in columns]:
                problem = f"must name the columns {', '.join(missing)}"
                raise BadInput(f"{path}, line 1: {problem}; nothing was changed")
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                if len(cells) == len(columns):
                    if any(map(str.strip, cells)):
                        yield where, dict(zip(columns, map(str.strip, cells), strict=True))
                elif cells:
                    problem = f"has {len(cells)} values for {len(columns)} columns"
                    left_out.append(LeftOut(where, problem))
        except csv.Error as error:
            where = f"{path}, line {reader.line_num}"
            raise BadInput(f"{where}: not valid CSV: {error}; nothing was changed") from error


def _host(url: str) -> str:
    try:
        return urlsplit(url if "://" in url else f"//{url}").hostname or ""
    except ValueError:
        raise RecordRefused("form", f"URL {url[:80]!r} has no host") from None
