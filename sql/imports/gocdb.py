"""What an export of GOCDB says, as rows of the class views.

The files are answers of GOCDB's programmatic interface (GOCDB-PI):

method                         element            class
get_service_endpoint           SERVICE_ENDPOINT   serviceEndpoint
get_site, get_site_list        SITE               siteGroup: its NGI; get_site: its scope tags too
get_downtime                   DOWNTIME           downtime, an element for each service
get_downtime_nested_services   DOWNTIME           downtime, with its SERVICES inside
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP, MessageClass
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.xml_elements import elements
from sam_pipeline.sql.topology.view_rows import Row, key_of

ROOT = "results"
META = "meta"
"""In a paged answer: links to the other pages."""

NGI = "NGI"
SCOPE = "scope"
"""The group types."""

PROBLEMS_SHOWN = 20

_FLAGS = {"Y": "Y", "YES": "Y", "TRUE": "Y", "1": "Y", "N": "N", "NO": "N", "FALSE": "N", "0": "N"}
_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d", re.ASCII)

# A part of every valid row that an export does not know: when it was taken.
_ANY_TIME = "1970-01-01T00:00:00Z"
_NOW = datetime.fromtimestamp(0, UTC)

logger = logging.getLogger(__name__)


def read_endpoints(paths: Iterable[Path]) -> list[Row]:
    """Rows of serviceEndpoint, without `validFrom`: one for each site, host and flavour.

    Of several services that share these, as GOCDB allows, the one counts that is in production and
    monitored.

    Raises:
        BadInput: with every bad element, not only the first; or a file can't be read.
    """
    best: dict[tuple[str, ...], Row] = {}
    for row in _rows(paths, "SERVICE_ENDPOINT", SERVICE_ENDPOINT, _endpoint):
        key = key_of(row, ("siteName", "hostName", "serviceFlavour"))
        best[key] = max(best.get(key, row), row, key=_wanted)
    return list(best.values())


def read_groups(paths: Iterable[Path]) -> dict[str, list[Row]]:
    """Rows of siteGroup, without `validFrom`, by group type; `scope` only if tags are spoken of.

    Raises:
        as read_endpoints
    """
    found: dict[str, dict[tuple[str, ...], Row]] = {NGI: {}}

    def read(site: Element) -> Iterator[Mapping[str, str]]:
        if site.find("SCOPES") is not None:
            found.setdefault(SCOPE, {})
        return _memberships(site)

    for row in _rows(paths, "SITE", SITE_GROUP, read):
        found[row["groupType"]][key_of(row, ("siteName", "groupName"))] = row
    return {group_type: list(rows.values()) for group_type, rows in found.items()}


def read_downtimes(paths: Iterable[Path]) -> list[Row]:
    """Rows of downtime, without `timestamp`: one for each downtime, site, host and flavour.

    Raises:
        as read_endpoints
    """
    found: dict[tuple[str, ...], Row] = {}
    for row in _rows(paths, "DOWNTIME", DOWNTIME, _downtimes):
        key = key_of(row, DOWNTIME.natural_key)
        if found.setdefault(key, row) != row:
            raise BadInput(
                f"downtime {row['downtimeId']}: the export tells two versions of it, as pages do"
                " that were fetched while it was changed: fetch them again; nothing was changed"
            )
    return list(found.values())


def _rows(
    paths: Iterable[Path],
    tag: str,
    message_class: MessageClass,
    read: Callable[[Element], Iterable[Mapping[str, str]]],
) -> Iterator[Row]:
    """The rows of all elements; at the end, all that was bad."""
    problems: list[str] = []
    for path in paths:
        for where, element in elements(path, ROOT):
            if element.tag == META:
                continue
            try:
                if element.tag != tag:
                    raise RecordRefused("element", f"is <{element.tag[:40]}>, not <{tag}>")
                for fields in read(element):
                    yield from _normalised(fields, message_class)
            except RecordRefused as error:
                problems.append(f"{where}: {_name(element)}{error.text}")
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        raise BadInput(
            "\n".join(problems[:PROBLEMS_SHOWN])
            + (f"\n… and {more} more" if more > 0 else "")
            + "\nnothing was changed: mend the export, or take these elements out of it"
        )


def _normalised(fields: Mapping[str, str], message_class: MessageClass) -> Iterator[Row]:
    """As a message with these fields would be; so host names, times and texts are one."""
    complete = {**fields, "validFrom": _ANY_TIME}
    for row in normalise(complete, message_class.name, {}, _NOW):
        del row["validFrom"]
        if message_class is DOWNTIME and row["endTime"] < row["startTime"]:
            raise RecordRefused("end", f"ends {row['endTime']}, before it begins")
        yield row


def _endpoint(element: Element) -> Iterator[Mapping[str, str]]:
    yield {
        "siteName": _text(element, "SITENAME"),
        "hostName": _text(element, "HOSTNAME"),
        "serviceFlavour": _text(element, "SERVICE_TYPE"),
        "serviceURI": _text(element, "URL"),
        "production": _flag(element, "IN_PRODUCTION"),
        "monitored": _flag(element, "NODE_MONITORED"),
    }


def _wanted(row: Row) -> tuple[object, ...]:
    production, monitored = (row.get(key, "Y") for key in ("production", "monitored"))
    return production == monitored == "Y", production, monitored, row.get("serviceURI", "")


def _memberships(element: Element) -> Iterator[Mapping[str, str]]:
    site = element.get("NAME") or _text(element, "SHORT_NAME")
    ngi = element.get("ROC") or _text(element, "ROC")
    if not site:
        raise RecordRefused("missing", "has no NAME")
    if ngi:
        yield {"siteName": site, "groupName": ngi, "groupType": NGI}
    else:
        logger.warning("site %s: belongs to no NGI (ROC)", site)
    for scope in element.iterfind("SCOPES/SCOPE"):
        if scope.text and scope.text.strip():
            yield {"siteName": site, "groupName": scope.text, "groupType": SCOPE}


def _downtimes(element: Element) -> Iterator[Mapping[str, str]]:
    downtime_id = element.get("PRIMARY_KEY") or _text(element, "PRIMARY_KEY")
    if not downtime_id:
        raise RecordRefused("missing", "has no PRIMARY_KEY")
    common = {
        "downtimeId": downtime_id,
        "startTime": _time(element, "START_DATE"),
        "endTime": _time(element, "END_DATE"),
        "classification": element.get("CLASSIFICATION") or _text(element, "CLASSIFICATION"),
        "severity": _text(element, "SEVERITY"),
        "description": _text(element, "DESCRIPTION"),
    }
    nested = element.find("SERVICES")
    services = [element] if nested is None else nested.findall("SERVICE")
    if not services:
        logger.warning("downtime %s: names no service, so it counts for none", downtime_id)
    for service in services:
        yield {
            **common,
            "siteName": _text(service, "HOSTED_BY"),
            "hostName": _text(service, "HOSTNAME"),
            "serviceFlavour": _text(service, "SERVICE_TYPE"),
        }


def _time(element: Element, name: str) -> str:
    """Epoch seconds; without them the same moment for people, which is UTC and has no seconds."""
    formatted = _text(element, f"FORMATED_{name}")
    return _text(element, name) or (
        f"{formatted}:00Z" if _MINUTE.fullmatch(formatted) else formatted
    )


def _flag(element: Element, name: str) -> str:
    word = _text(element, name)
    if word and word.upper() not in _FLAGS:
        raise RecordRefused("flag", f"{name} {word[:40]!r} is neither Y nor N")
    return _FLAGS[word.upper()] if word else ""


def _text(element: Element, name: str) -> str:
    return (element.findtext(name) or "").strip()


def _name(element: Element) -> str:
    name = element.get("PRIMARY_KEY") or element.get("NAME")
    return f"{element.tag[:40]} {name[:80]}: " if name else ""
