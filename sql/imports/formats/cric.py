"""Reads exports of CRIC, the catalogue of computing resources of WLCG.

query             objects by name with                                    class
core/service      rcsite, flavour or type, endpoint, state, status,       serviceEndpoint
                  is_monitored, in_report; or protocols with their own
core/federation   rcsites                                                 siteGroup (federation)
core/downtime     times, classification, severity, affected services      downtime

A service of a storage system has protocols, each of which is an endpoint; values that a protocol
lacks are those of its service. Downtimes come as objects by name, by site and name, or in lists.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import FeedRows, Files, SiteFacts, entered_at, host_of
from sam_pipeline.sql.imports.formats.documents import read_json
from sam_pipeline.sql.loading.catalogue import ANNOUNCED_AT
from sam_pipeline.sql.topology.view_rows import CRIC, Row

FEDERATION = "federation"
"""The group type."""

ACTIVE, IN_PRODUCTION = "ACTIVE", "production"

Named = tuple[str, Any]
"""A JSON value and its name."""

logger = logging.getLogger(__name__)


def read_cric(files: Files) -> FeedRows:
    """The rows of the files `endpoints`, `groups` and `downtimes`, as far as they are given."""
    rows = FeedRows(CRIC)
    if "endpoints" in files:
        rows.endpoints, rows.sites = _services(rows, files["endpoints"])
    if "groups" in files:
        found = rows.read(SITE_GROUP, _objects(files["groups"]), federations)
        rows.groups = {FEDERATION: found}
    if "downtimes" in files:
        rows.downtimes = rows.read(DOWNTIME, _downtime_objects(files["downtimes"]), downtimes)
    return rows


def _services(rows: FeedRows, paths: Iterable[Path]) -> tuple[list[Row], Mapping[str, SiteFacts]]:
    """Rows of serviceEndpoint without `validFrom`, and the countries of their sites."""

    def read(named: Named) -> Iterator[Mapping[str, str]]:
        name, service = named
        facts = _texts(service, "rcsite", "rcsite_state", "state", "country", "country_code")
        if not {facts["rcsite_state"], facts["state"]} <= {"", ACTIVE}:
            return
        site = facts["rcsite"]
        if not site:
            ignored["without a site"].append(name)
            return
        sites[site] = SiteFacts(countries=(facts["country"], facts["country_code"]))
        protocols = service.get("protocols") or {}
        if not isinstance(protocols, dict):
            raise RecordRefused("form", "protocols must be an object")
        for door in protocols.values() or [service]:
            _texts(door)
            own = {key: value for key, value in door.items() if value not in (None, "")}
            endpoint = {**service, "endpoint": None, **own}
            fields = _texts(endpoint, "endpoint", "flavour", "type", "state", "status")
            if fields["state"] not in ("", ACTIVE):
                continue
            host = host_of(fields["endpoint"])
            if not host:
                ignored["without an endpoint"].append(name)
                continue
            is_reported = _flag(endpoint, "in_report") and fields["status"] in ("", IN_PRODUCTION)
            yield {
                "siteName": site,
                "hostName": host,
                "serviceFlavour": fields["flavour"] or fields["type"],
                "serviceURI": fields["endpoint"],
                "production": "Y" if is_reported else "N",
                "monitored": "Y" if _flag(endpoint, "is_monitored") else "N",
            }

    ignored: dict[str, list[str]] = defaultdict(list)
    sites: dict[str, SiteFacts] = {}
    endpoints = rows.read(SERVICE_ENDPOINT, _objects(paths), read)
    for lack, names in ignored.items():
        logger.warning("ignoring %s %s, such as %s", plural(len(names), "service"), lack, names[0])
    return endpoints, sites


def federations(named: Named) -> Iterator[Mapping[str, str]]:
    name, federation = named
    _texts(federation)
    sites = federation.get("rcsites") or []
    if not isinstance(sites, list) or not all(isinstance(site, str) for site in sites):
        raise RecordRefused("form", "rcsites must be a list of names")
    for site in sites:
        yield {"siteName": site, "groupName": name, "groupType": FEDERATION}


def downtimes(entry: tuple[str, Named]) -> Iterator[Mapping[str, str]]:
    """A row for each affected service."""
    site, (name, downtime) = entry
    fields = _texts(
        downtime,
        *("rc_site", "rcsite", "start_time", "end_time", "create_time"),
        *("classification", "severity", "description"),
    )
    identity = downtime.get("id") or name or fields["start_time"]
    for service in _affected(downtime):
        yield {
            "downtimeId": str(identity),
            "siteName": fields["rc_site"] or fields["rcsite"] or site,
            "startTime": fields["start_time"],
            "endTime": fields["end_time"],
            "classification": fields["classification"].upper(),
            "severity": fields["severity"].upper(),
            "description": fields["description"],
            ANNOUNCED_AT: entered_at(fields["create_time"]),
            **service,
        }


def _affected(downtime: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """Host and flavour of each affected service, as far as they are stated; else the whole site."""
    services = downtime.get("affected_services") or downtime.get("services") or [{}]
    if isinstance(services, str):
        services = services.split(",")
    if not isinstance(services, list):
        raise RecordRefused("form", "the affected services must be a list")
    for service in services:
        if isinstance(service, str):
            yield {"serviceFlavour": service}
        else:
            fields = _texts(service, "endpoint", "flavour", "type")
            yield {
                "hostName": host_of(fields["endpoint"]),
                "serviceFlavour": fields["flavour"] or fields["type"],
            }


def _downtime_objects(paths: Iterable[Path]) -> Iterator[tuple[str, tuple[str, Named]]]:
    """The downtimes of files, in any of their forms, with their location and their site or ""."""
    for path in paths:
        document = read_json(path)
        for name, value in document.items() if isinstance(document, dict) else [("", document)]:
            _refuse_error(path, name, value)
            where = f"{path}: {name[:80]}" if name else f"{path}"
            if isinstance(value, list):
                for number, downtime in enumerate(value, 1):
                    yield f"{where}, entry {number}", (name, ("", downtime))
            elif isinstance(value, dict) and "start_time" not in value:
                for key, downtime in value.items():
                    yield f"{where}: {key[:80]}", (name, (key, downtime))
            else:
                yield where, ("", (name, value))


def _objects(paths: Iterable[Path]) -> Iterator[tuple[str, Named]]:
    """The named objects of files, each with its location for messages."""
    for path in paths:
        document = read_json(path)
        if not isinstance(document, dict):
            raise BadInput(f"{path}: must be an object of named objects; nothing was changed")
        for name, value in document.items():
            _refuse_error(path, name, value)
            yield f"{path}: {name[:80]}", (name, value)


def _refuse_error(path: Path, name: str, value: Any) -> None:
    if name == "error" and isinstance(value, str):
        raise BadInput(f"{path}: CRIC answered with an error: {value[:200]}; nothing was changed")


def _texts(value: Any, *keys: str) -> dict[str, str]:
    """These values of an object, "" for null and absent ones; raises RecordRefused."""
    if not isinstance(value, dict):
        raise RecordRefused("form", "must be an object")
    texts = {key: value.get(key) or "" for key in keys}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise RecordRefused("form", f"{key} must be a string")
    return texts


def _flag(value: Mapping[str, Any], key: str) -> bool:
    """A flag, which is true if it is absent."""
    flag = value.get(key)
    if flag is not None and not isinstance(flag, bool):
        raise RecordRefused("flag", f"{key} must be true or false")
    return flag is not False
