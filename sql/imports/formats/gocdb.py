"""Reads GOCDB exports into rows for the class views.

The files are responses of GOCDB's programmatic interface (GOCDB-PI):

method                         element            class
get_service_endpoint           SERVICE_ENDPOINT   serviceEndpoint
get_site, get_site_list        SITE               siteGroup, by NGI and (get_site only) by scope tag
get_site                       SITE               siteContact
get_downtime                   DOWNTIME           downtime, one element per service
get_downtime_nested_services   DOWNTIME           downtime, with its SERVICES inside
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import (
    DOWNTIME,
    SERVICE_ENDPOINT,
    SITE_CONTACT,
    SITE_GROUP,
)
from sam_pipeline.schema.times import utc
from sam_pipeline.sql.imports.feed_rows import FeedRows, Files, LeftOut, SiteFacts, rows_of
from sam_pipeline.sql.imports.formats.xml_elements import elements
from sam_pipeline.sql.loading.catalogue import ANNOUNCED_AT
from sam_pipeline.sql.topology.view_rows import GOCDB, Row

ROOT = "results"
META = "meta"
"""The element of a paged response that links to the other pages."""

NGI = "NGI"
SCOPE = "scope"
"""The group types."""

_FLAGS = {"Y": "Y", "YES": "Y", "TRUE": "Y", "1": "Y", "N": "N", "NO": "N", "FALSE": "N", "0": "N"}
_TO_THE_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d", re.ASCII)

logger = logging.getLogger(__name__)


def read_gocdb(files: Files) -> FeedRows:
    """The rows of the files `endpoints`, `groups` and `downtimes`, as far as they are given.

    Raises:
        BadInput: a file can't be read, or is not a document of GOCDB.
    """
    left_out: list[LeftOut] = []
    endpoints = downtimes = contacts = sites = None
    groups: Mapping[str, list[Row]] = {}
    if "endpoints" in files:
        endpoints = _endpoints(files["endpoints"], left_out)
    if "groups" in files:
        sites, groups, contacts = _sites(files["groups"], left_out)
    if "downtimes" in files:
        downtimes = _downtimes(files["downtimes"], left_out)
    return FeedRows(GOCDB, endpoints, groups, contacts, downtimes, sites, left_out)


def _endpoints(paths: Iterable[Path], left_out: list[LeftOut]) -> list[Row]:
    """Rows of serviceEndpoint without `validFrom`, one per service."""

    def read(element: Element) -> Iterator[Mapping[str, str]]:
        # A service has one URL, or one for each of its endpoints, in any order.
        urls = sorted(url.text or "" for url in element.iterfind("ENDPOINTS/ENDPOINT/URL"))
        yield {
            "siteName": _text(element, "SITENAME"),
            "hostName": _text(element, "HOSTNAME"),
            "serviceFlavour": _text(element, "SERVICE_TYPE"),
            "serviceURI": _text(element, "URL") or next(filter(str.strip, urls), ""),
            "production": _flag(element, "IN_PRODUCTION"),
            "monitored": _flag(element, "NODE_MONITORED"),
        }

    items = _elements(paths, "SERVICE_ENDPOINT", left_out)
    return list(rows_of(items, SERVICE_ENDPOINT, read, left_out))


def _sites(
    paths: Iterable[Path], left_out: list[LeftOut]
) -> tuple[dict[str, SiteFacts], dict[str, list[Row]], list[Row] | None]:
    """Facts about the sites, their groups by type, and their contacts.

    `get_site_list` has neither scope tags nor contacts: then that type is missing, and the contacts
    are None.
    """
    items = []
    for where, element in _elements(paths, "SITE", left_out):
        site = element.get("NAME") or _text(element, "SHORT_NAME")
        if site:
            items.append((where, (site, element)))
        else:
            left_out.append(LeftOut(where, "has no NAME"))
    is_complete = any(len(element) for _, (_, element) in items)

    def ngis(named: tuple[str, Element]) -> Iterator[Mapping[str, str]]:
        site, element = named
        if ngi := element.get("ROC") or _text(element, "ROC"):
            yield {"siteName": site, "groupName": ngi, "groupType": NGI}
        else:
            logger.warning("site %s has no NGI (ROC)", site)

    def scopes(named: tuple[str, Element]) -> Iterator[Mapping[str, str]]:
        site, element = named
        for scope in _scopes(element):
            yield {"siteName": site, "groupName": scope, "groupType": SCOPE}

    def contact(named: tuple[str, Element]) -> Iterator[Mapping[str, str]]:
        site, element = named
        channels = (_text(element, "CONTACT_EMAIL"), _text(element, "CONTACT_TEL"))
        if text := ", ".join(filter(None, channels)):
            yield {"siteName": site, "contact": text}

    groups = {NGI: list(rows_of(items, SITE_GROUP, ngis, left_out))}
    contacts = None
    if is_complete:
        groups[SCOPE] = list(rows_of(items, SITE_GROUP, scopes, left_out))
        contacts = list(rows_of(items, SITE_CONTACT, contact, left_out))
    return {site: _facts(element) for _, (site, element) in items}, groups, contacts


def _facts(site: Element) -> SiteFacts:
    certification = _text(site, "CERTIFICATION_STATUS")
    infrastructure = _text(site, "PRODUCTION_INFRASTRUCTURE")
    names = ("COUNTRY", "COUNTRY_CODE")
    countries = filter(None, (site.get(name) or _text(site, name) for name in names))
    return SiteFacts(
        [certification] if certification else None,
        [infrastructure] if infrastructure else None,
        _scopes(site) if site.find("SCOPES") is not None else None,
        [*countries] or None,
    )


def _scopes(site: Element) -> list[str]:
    return [text for scope in site.iterfind("SCOPES/SCOPE") if (text := (scope.text or "").strip())]


def _downtimes(paths: Iterable[Path], left_out: list[LeftOut]) -> list[Row]:
    """Rows of downtime without `timestamp`, one per service."""

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

    items = _elements(paths, "DOWNTIME", left_out)
    return list(rows_of(items, DOWNTIME, read, left_out))


def _elements(
    paths: Iterable[Path], tag: str, left_out: list[LeftOut]
) -> Iterator[tuple[str, Element]]:
    """The elements with their locations; others are left out."""
    for path in paths:
        for where, element in elements(path, ROOT):
            key = element.get("PRIMARY_KEY") or element.get("NAME")
            located = f"{where}: {element.tag[:40]} {key[:80]}" if key else where
            if element.tag == tag:
                yield located, element
            elif element.tag != META:
                left_out.append(LeftOut(located, f"is <{element.tag[:40]}>, not <{tag}>"))


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
