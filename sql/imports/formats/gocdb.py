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
from sam_pipeline.sql.imports.feed_rows import (
    FeedRows,
    Files,
    LeftOut,
    SiteFacts,
    entered_at,
)
from sam_pipeline.sql.imports.formats.documents import elements, text_of
from sam_pipeline.sql.loading.catalogue import ANNOUNCED_AT
from sam_pipeline.sql.topology.view_rows import GOCDB

ROOT = "results"
META = "meta"
"""The element of a paged response that links to the other pages."""

NGI = "NGI"
SCOPE = "scope"
"""The group types."""

_FLAGS = {"Y": "Y", "YES": "Y", "TRUE": "Y", "1": "Y", "N": "N", "NO": "N", "FALSE": "N", "0": "N"}
_TO_THE_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d", re.ASCII)

Named = tuple[str, Element]
"""The name of a site and its element."""

logger = logging.getLogger(__name__)


def read_gocdb(files: Files) -> FeedRows:
    """The rows of the files `endpoints`, `groups` and `downtimes`, as far as they are given."""
    rows = FeedRows(GOCDB)
    if paths := files.get("endpoints"):
        found = _elements(paths, "SERVICE_ENDPOINT", rows.left_out)
        rows.endpoints = rows.read(SERVICE_ENDPOINT, found, endpoints)
    if paths := files.get("groups"):
        sites = []
        for where, element in _elements(paths, "SITE", rows.left_out):
            if site := element.get("NAME") or text_of(element, "SHORT_NAME"):
                sites.append((where, (site, element)))
            else:
                rows.left_out.append(LeftOut(where, "has no NAME"))
        rows.sites = {site: _facts(element) for _, (site, element) in sites}
        rows.groups = {NGI: rows.read(SITE_GROUP, sites, ngis)}
        if any(len(element) for _, (_, element) in sites):
            # get_site_list has neither scope tags nor contacts.
            rows.groups |= {SCOPE: rows.read(SITE_GROUP, sites, scope_groups)}
            rows.contacts = rows.read(SITE_CONTACT, sites, contacts)
    if paths := files.get("downtimes"):
        found = _elements(paths, "DOWNTIME", rows.left_out)
        rows.downtimes = rows.read(DOWNTIME, found, downtimes)
    return rows


def endpoints(element: Element) -> Iterator[Mapping[str, str]]:
    # A service has one URL, or one for each of its endpoints, in any order.
    urls = sorted(url.text or "" for url in element.iterfind("ENDPOINTS/ENDPOINT/URL"))
    yield {
        "siteName": text_of(element, "SITENAME"),
        "hostName": text_of(element, "HOSTNAME"),
        "serviceFlavour": text_of(element, "SERVICE_TYPE"),
        "serviceURI": text_of(element, "URL") or next(filter(str.strip, urls), ""),
        "production": _flag(element, "IN_PRODUCTION"),
        "monitored": _flag(element, "NODE_MONITORED"),
    }


def ngis(named: Named) -> Iterator[Mapping[str, str]]:
    site, element = named
    if ngi := element.get("ROC") or text_of(element, "ROC"):
        yield {"siteName": site, "groupName": ngi, "groupType": NGI}
    else:
        logger.warning("site %s has no NGI (ROC)", site)


def scope_groups(named: Named) -> Iterator[Mapping[str, str]]:
    site, element = named
    for scope in _scopes(element):
        yield {"siteName": site, "groupName": scope, "groupType": SCOPE}


def contacts(named: Named) -> Iterator[Mapping[str, str]]:
    site, element = named
    channels = (text_of(element, "CONTACT_EMAIL"), text_of(element, "CONTACT_TEL"))
    if text := ", ".join(filter(None, channels)):
        yield {"siteName": site, "contact": text}


def _facts(site: Element) -> SiteFacts:
    certification = text_of(site, "CERTIFICATION_STATUS")
    infrastructure = text_of(site, "PRODUCTION_INFRASTRUCTURE")
    names = ("COUNTRY", "COUNTRY_CODE")
    countries = filter(None, (site.get(name) or text_of(site, name) for name in names))
    return SiteFacts(
        [certification] if certification else None,
        [infrastructure] if infrastructure else None,
        _scopes(site) if site.find("SCOPES") is not None else None,
        [*countries] or None,
    )


def _scopes(site: Element) -> list[str]:
    return [text for scope in site.iterfind("SCOPES/SCOPE") if (text := (scope.text or "").strip())]


def downtimes(element: Element) -> Iterator[Mapping[str, str]]:
    """A row for each service."""
    downtime_id = element.get("PRIMARY_KEY") or text_of(element, "PRIMARY_KEY")
    if not downtime_id:
        raise RecordRefused("missing", "has no PRIMARY_KEY")
    common = {
        "downtimeId": downtime_id,
        "startTime": _time(element, "START_DATE"),
        "endTime": _time(element, "END_DATE"),
        "classification": element.get("CLASSIFICATION") or text_of(element, "CLASSIFICATION"),
        "severity": text_of(element, "SEVERITY"),
        "description": text_of(element, "DESCRIPTION"),
        ANNOUNCED_AT: entered_at(_time(element, "INSERT_DATE")),
    }
    nested = element.find("SERVICES")
    services = [element] if nested is None else nested.findall("SERVICE")
    if not services:
        logger.warning("ignoring downtime %s, which has no services", downtime_id)
    for service in services:
        yield {
            **common,
            "siteName": text_of(service, "HOSTED_BY"),
            "hostName": text_of(service, "HOSTNAME"),
            "serviceFlavour": text_of(service, "SERVICE_TYPE"),
        }


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
    formatted = text_of(element, f"FORMATED_{name}")
    if _TO_THE_MINUTE.fullmatch(formatted):
        formatted += ":00Z"
    return text_of(element, name) or formatted


def _flag(element: Element, name: str) -> str:
    value = text_of(element, name)
    if value and value.upper() not in _FLAGS:
        raise RecordRefused("flag", f"{name} must be Y or N, not {value[:40]!r}")
    return _FLAGS[value.upper()] if value else ""
