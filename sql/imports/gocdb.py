"""Reads GOCDB exports into rows for the class views.

The files are responses of GOCDB's programmatic interface (GOCDB-PI):

method                         element            class
get_service_endpoint           SERVICE_ENDPOINT   serviceEndpoint
get_site, get_site_list        SITE               siteGroup, by NGI and (get_site only) by scope tag
get_downtime                   DOWNTIME           downtime, one element per service
get_downtime_nested_services   DOWNTIME           downtime, with its SERVICES inside
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP, MessageClass
from sam_pipeline.schema.records.normalise import utc
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import best_endpoints, refuse_invalid, rows_of
from sam_pipeline.sql.imports.xml_elements import elements
from sam_pipeline.sql.loading.catalogue import ANNOUNCED_AT
from sam_pipeline.sql.topology.view_rows import Row, key_of

ROOT = "results"
META = "meta"
"""The element of a paged response that links to the other pages."""

NGI = "NGI"
SCOPE = "scope"
"""The group types."""

_FLAGS = {"Y": "Y", "YES": "Y", "TRUE": "Y", "1": "Y", "N": "N", "NO": "N", "FALSE": "N", "0": "N"}
_TO_THE_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d", re.ASCII)

logger = logging.getLogger(__name__)


def read_endpoints(paths: Iterable[Path]) -> list[Row]:
    """Rows of serviceEndpoint without `validFrom`, one per site, host and flavour.

    Of several services with the same three values, one in production and monitored is preferred.

    Raises:
        BadInput: a file can't be read, or has invalid elements, which the message lists.
    """

    def read(element: Element) -> Iterator[Mapping[str, str]]:
        yield {
            "siteName": _text(element, "SITENAME"),
            "hostName": _text(element, "HOSTNAME"),
            "serviceFlavour": _text(element, "SERVICE_TYPE"),
            "serviceURI": _text(element, "URL"),
            "production": _flag(element, "IN_PRODUCTION"),
            "monitored": _flag(element, "NODE_MONITORED"),
        }

    return best_endpoints(_rows(paths, "SERVICE_ENDPOINT", SERVICE_ENDPOINT, read))


def read_groups(paths: Iterable[Path]) -> dict[str, list[Row]]:
    """Rows of siteGroup without `validFrom`, by group type; `scope` only if the export has scopes.

    Raises BadInput like `read_endpoints`.
    """
    groups: dict[str, dict[tuple[str, ...], Row]] = {NGI: {}}

    def read(element: Element) -> Iterator[Mapping[str, str]]:
        if element.find("SCOPES") is not None:
            groups.setdefault(SCOPE, {})
        site = element.get("NAME") or _text(element, "SHORT_NAME")
        ngi = element.get("ROC") or _text(element, "ROC")
        if not site:
            raise RecordRefused("missing", "has no NAME")
        if ngi:
            yield {"siteName": site, "groupName": ngi, "groupType": NGI}
        else:
            logger.warning("site %s has no NGI (ROC)", site)
        for scope in element.iterfind("SCOPES/SCOPE"):
            if scope.text and scope.text.strip():
                yield {"siteName": site, "groupName": scope.text, "groupType": SCOPE}

    for row in _rows(paths, "SITE", SITE_GROUP, read):
        groups[row["groupType"]][key_of(row, ("siteName", "groupName"))] = row
    return {group_type: list(rows.values()) for group_type, rows in groups.items()}


def read_downtimes(paths: Iterable[Path]) -> list[Row]:
    """Rows of downtime without `timestamp`, one per downtime, site, host and flavour.

    Raises BadInput like `read_endpoints`, and if two rows of one downtime differ.
    """

    def read(element: Element) -> Iterator[Mapping[str, str]]:
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
            ANNOUNCED_AT: _entered(element),
        }
        nested = element.find("SERVICES")
        services = [element] if nested is None else nested.findall("SERVICE")
        if not services:
            logger.warning("ignoring downtime %s, which has no services", downtime_id)
        for service in services:
            yield {
                **common,
                "siteName": _text(service, "HOSTED_BY"),
                "hostName": _text(service, "HOSTNAME"),
                "serviceFlavour": _text(service, "SERVICE_TYPE"),
            }

    downtimes: dict[tuple[str, ...], Row] = {}
    for row in _rows(paths, "DOWNTIME", DOWNTIME, read):
        key = key_of(row, DOWNTIME.natural_key)
        if downtimes.setdefault(key, row) != row:
            raise BadInput(
                f"downtime {row['downtimeId']}: the export has two versions, because it changed"
                " while the pages were fetched; fetch them again (nothing was imported)"
            )
    return list(downtimes.values())


def _rows(
    paths: Iterable[Path],
    tag: str,
    message_class: MessageClass,
    read: Callable[[Element], Iterable[Mapping[str, str]]],
) -> Iterator[Row]:
    """The rows that `read` yields for each element.

    Invalid elements are collected, and raised as one BadInput after the last row.
    """

    def read_tag(element: Element) -> Iterable[Mapping[str, str]]:
        if element.tag != tag:
            raise RecordRefused("element", f"is <{element.tag[:40]}>, not <{tag}>")
        return read(element)

    def located() -> Iterator[tuple[str, Element]]:
        for path in paths:
            for where, element in elements(path, ROOT):
                key = element.get("PRIMARY_KEY") or element.get("NAME")
                subject = f": {element.tag[:40]} {key[:80]}" if key else ""
                if element.tag != META:
                    yield f"{where}{subject}", element

    problems: list[str] = []
    yield from rows_of(located(), message_class, read_tag, problems)
    refuse_invalid(problems)


def _time(element: Element, name: str) -> str:
    """The time in epoch seconds, or else the formatted one, which is in UTC without seconds."""
    formatted = _text(element, f"FORMATED_{name}")
    if _TO_THE_MINUTE.fullmatch(formatted):
        formatted += ":00Z"
    return _text(element, name) or formatted


def _entered(element: Element) -> str:
    """When a downtime was entered; "" if that is unknown."""
    try:
        return utc(_time(element, "INSERT_DATE"))
    except ValueError:
        return ""


def _flag(element: Element, name: str) -> str:
    value = _text(element, name)
    if value and value.upper() not in _FLAGS:
        raise RecordRefused("flag", f"{name} must be Y or N, not {value[:40]!r}")
    return _FLAGS[value.upper()] if value else ""


def _text(element: Element, name: str) -> str:
    return (element.findtext(name) or "").strip()
