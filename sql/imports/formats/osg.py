"""Reads the topology of OSG: the documents of its server, and downtimes of its repository.

document                 element or entry    class
rgsummary/xml            ResourceGroup       siteGroup (OSG_Facility, OSG_Site), siteContact
                         Resource            serviceEndpoint, one per service
rgdowntime/xml           Downtime            downtime, one per service
GROUP_downtime.yaml      an entry            downtime, one per service

A resource group is a site. Resources that are not active, or disabled, are not read. The file
GROUP.yaml beside GROUP_downtime.yaml has the hosts of its resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import (
    DOWNTIME,
    SERVICE_ENDPOINT,
    SITE_CONTACT,
    SITE_GROUP,
)
from sam_pipeline.schema.times import utc
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import FeedRows, Files, SiteFacts, contact_of, entered_at
from sam_pipeline.sql.imports.formats.documents import REPEATED, elements, read_yaml, text_of
from sam_pipeline.sql.loading.catalogue import ANNOUNCED_AT
from sam_pipeline.sql.topology.view_rows import OSG

SUMMARY = "ResourceSummary"
DOWNTIMES, PERIODS = "Downtimes", ("PastDowntimes", "CurrentDowntimes", "FutureDowntimes")
FACILITY, SITE = "OSG_Facility", "OSG_Site"
"""The group types."""

SEVERITIES = {
    "outage": "OUTAGE",
    "severe": "OUTAGE",
    "intermittent outage": "WARNING",
    "no significant outage expected": "WARNING",
}
"""The severity of GOCDB for each of OSG's: with a severe downtime, most of a service is down."""

FLAVOURS = {"CE": "HTCONDOR-CE"}
"""Names that say more in OSG than elsewhere: its computing elements are HTCondor-CEs."""

_ADMINISTRATOR = "Administrative Contact"
_PRODUCTION = "OSG Production Resource"
_TRUE, _FALSE = "true", "false"

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME = re.compile(
    r"([A-Z][a-z]{2}) {1,2}(\d{1,2}), (\d{4}) (\d{1,2}):(\d\d)(?: ([AP]M))?(?: (UTC|[+-]\d{4}))?",
    re.ASCII,
)


def read_osg(files: Files) -> FeedRows:
    """The rows of the files `endpoints` and `downtimes`, as far as they are given."""
    rows = FeedRows(OSG)
    if "endpoints" in files:
        resource_groups = [
            located
            for path in files["endpoints"]
            for located in elements(path, SUMMARY)
            if text_of(located.element, "Disable").lower() != _TRUE
        ]
        rows.endpoints = rows.read(SERVICE_ENDPOINT, resource_groups, endpoints)
        found = rows.read(SITE_GROUP, resource_groups, groups)
        rows.groups = {
            kind: [row for row in found if row["groupType"] == kind] for kind in (FACILITY, SITE)
        }
        rows.contacts = rows.read(SITE_CONTACT, resource_groups, contacts)
        rows.sites = {
            text_of(element, "GroupName"): SiteFacts(
                infrastructure=["Production" if _in_production(element) else "Test"],
                countries=[text_of(element, "Site/Country")],
            )
            for _, element in resource_groups
        }
    if "downtimes" in files:
        rows.downtimes = []
        for path in files["downtimes"]:
            if path.suffix in (".yaml", ".yml"):
                rows.downtimes += rows.read(DOWNTIME, _entries(path), downtimes_of_entry)
            else:
                items = elements(path, DOWNTIMES, PERIODS)
                rows.downtimes += rows.read(DOWNTIME, items, downtimes_of_element)
    return rows


def endpoints(group: Element) -> Iterator[Mapping[str, str]]:
    """An endpoint for each service of an active resource."""
    for resource in _resources(group):
        wlcg_monitoring = text_of(resource, "WLCGInformation/InteropMonitoring").lower()
        for service in resource.iterfind("Services/Service"):
            is_silent = _FALSE in (wlcg_monitoring, text_of(service, "Details/Monitored").lower())
            yield {
                "siteName": text_of(group, "GroupName"),
                "hostName": text_of(resource, "FQDN"),
                "serviceFlavour": FLAVOURS.get(name := text_of(service, "Name"), name),
                "serviceURI": text_of(service, "Details/uri_override")
                or text_of(service, "Details/endpoint"),
                "production": "Y" if _in_production(group) else "N",
                "monitored": "N" if is_silent else "Y",
            }


def groups(group: Element) -> Iterator[Mapping[str, str]]:
    for group_type, name in (
        (FACILITY, text_of(group, "Facility/Name")),
        (SITE, text_of(group, "Site/Name")),
    ):
        if name:
            site = text_of(group, "GroupName")
            yield {"siteName": site, "groupName": name, "groupType": group_type}


def contacts(group: Element) -> Iterator[Mapping[str, str]]:
    """The administrators of the resources."""
    named = [
        " ".join(filter(None, [text_of(contact, "Name"), text_of(contact, "Email")]))
        for resource in _resources(group)
        for people in resource.iterfind("ContactLists/ContactList")
        if text_of(people, "ContactType") == _ADMINISTRATOR
        for contact in people.iterfind("Contacts/Contact")
    ]
    if contact := contact_of(named):
        yield {"siteName": text_of(group, "GroupName"), "contact": contact}


def _resources(group: Element) -> Iterator[Element]:
    for resource in group.iterfind("Resources/Resource"):
        is_active = text_of(resource, "Active").lower() != _FALSE
        if is_active and text_of(resource, "Disable").lower() != _TRUE:
            yield resource


def _in_production(group: Element) -> bool:
    flag = text_of(group, "Production").lower()
    return flag == _TRUE if flag else text_of(group, "GridType") == _PRODUCTION


def downtimes_of_element(downtime: Element) -> Iterator[Mapping[str, str]]:
    if downtime.tag != "Downtime":
        raise RecordRefused("element", f"is <{downtime.tag[:40]}>, not <Downtime>")
    fields = {child.tag: (child.text or "").strip() for child in downtime}
    services = [text_of(service, "Name") for service in downtime.iterfind("Services/Service")]
    site = text_of(downtime, "ResourceGroup/GroupName")
    yield from _downtime_rows(fields, site, fields.get("ResourceFQDN", ""), services)


def downtimes_of_entry(entry: tuple[str, Mapping[str, str], Any]) -> Iterator[Mapping[str, str]]:
    site, hosts, fields = entry
    if not isinstance(fields, dict):
        raise RecordRefused("form", "must have keys and values, such as `ID: 1`")
    if REPEATED in fields:
        raise RecordRefused("form", f"the key {fields[REPEATED][:40]} appears twice")
    resource, services = fields.get("ResourceName"), fields.get("Services")
    if not isinstance(resource, str):
        raise RecordRefused("missing", "has no ResourceName")
    if resource not in hosts:
        raise RecordRefused("resource", f"{site}.yaml has no host for the resource {resource!r}")
    if not isinstance(services, list) or not all(isinstance(name, str) for name in services):
        raise RecordRefused("form", "Services must be a list of names")
    texts = {key: value for key, value in fields.items() if isinstance(value, str)}
    yield from _downtime_rows(texts, site, hosts[resource], services)


def _downtime_rows(
    fields: Mapping[str, str], site: str, host: str, services: Sequence[str]
) -> Iterator[Mapping[str, str]]:
    """A row for each service that is down."""
    if not fields.get("ID"):
        raise RecordRefused("missing", "has no ID")
    severity = fields.get("Severity", "")
    if severity.lower() not in SEVERITIES:
        known = ", ".join(name.capitalize() for name in SEVERITIES)
        raise RecordRefused("severity", f"Severity must be one of {known}, not {severity[:40]!r}")
    if not services:
        raise RecordRefused("missing", "names no services")
    ours, description = SEVERITIES[severity.lower()], fields.get("Description", "")
    if severity.upper() != ours:
        description = f"{severity}: {description}"
    for service in services:
        yield {
            "downtimeId": fields["ID"],
            "siteName": site,
            "hostName": host,
            "serviceFlavour": FLAVOURS.get(service, service),
            "startTime": osg_time(fields.get("StartTime", "")),
            "endTime": osg_time(fields.get("EndTime", "")),
            "classification": fields.get("Class", "").upper(),
            "severity": ours,
            "description": description,
            ANNOUNCED_AT: entered_at(fields.get("CreatedTime", ""), osg_time),
        }


def osg_time(text: str) -> str:
    """`Mar 28, 2017 22:00 -0500`, or in UTC `… 22:00 PM UTC`, `… 10:00 PM UTC`, `… 22:00`.

    Raises:
        RecordRefused: the text has another form.
    """
    match = _TIME.fullmatch(text)
    if match is None or match[1] not in _MONTHS:
        expected = "expected `Mar 28, 2017 22:00 -0500`, or UTC"
        raise RecordRefused("bad-time", f"{text[:40]!r} is not a time of OSG ({expected})")
    _, day, year, hour, minute, half, zone = match.groups()
    hours = int(hour)
    if half == "PM" and hours < 12:
        hours += 12
    elif half == "AM" and hours == 12:
        hours = 0
    month = _MONTHS.index(match[1]) + 1
    offset = zone if zone and zone != "UTC" else "Z"
    try:
        return utc(f"{year}-{month:02}-{int(day):02}T{hours:02}:{minute}:00{offset}")
    except ValueError as error:
        raise RecordRefused("bad-time", f"{text[:40]!r}: {error}") from None


def _entries(path: Path) -> Iterator[tuple[str, tuple[str, Mapping[str, str], Any]]]:
    """The downtimes of a resource group, with its name and the hosts of its resources."""
    site = path.stem.removesuffix("_downtime")
    beside = path.with_name(f"{site}{path.suffix}")
    if site == path.stem or not beside.exists():
        raise BadInput(
            f"{path}: must be named GROUP_downtime.yaml, with GROUP.yaml beside it, which has the"
            " hosts of its resources; nothing was changed"
        )
    group, _ = read_yaml(beside)
    resources = group.get("Resources") if isinstance(group, dict) else None
    hosts = {
        name: resource["FQDN"]
        for name, resource in (resources.items() if isinstance(resources, dict) else ())
        if isinstance(resource, dict) and isinstance(resource.get("FQDN"), str)
    }
    entries, lines = read_yaml(path)
    if not isinstance(entries, list):
        raise BadInput(f"{path}: must be a list of downtimes; nothing was changed")
    for entry, line in zip(entries, lines, strict=True):
        yield f"{path}, line {line}", (site, hosts, entry)
