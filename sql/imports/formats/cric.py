"""Reads exports of CRIC, the catalogue of computing resources of WLCG.

query                     objects by name with                          class
api/core/service          rcsite, flavour or type, endpoint or          serviceEndpoint
                          protocols, state, status, is_monitored
api/core/federation       rcsites                                       siteGroup, type `federation`

Nothing else is read. A service is read unless its `state` is other than ACTIVE.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.program.command import IO_ERROR, NO_INPUT, NO_PERMISSION
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.classes import SERVICE_ENDPOINT, SITE_GROUP
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import FeedRows, Files, LeftOut, rows_of
from sam_pipeline.sql.topology.view_rows import CRIC, Row

FEDERATION = "federation"
"""The group type."""

ACTIVE, IN_PRODUCTION = "ACTIVE", "production"

_EXIT_CODES = {PermissionError: NO_PERMISSION, FileNotFoundError: NO_INPUT}

logger = logging.getLogger(__name__)


def read_cric(files: Files) -> FeedRows:
    """The rows of the files `endpoints` and `groups`, as far as they are given.

    Raises:
        BadInput: a file can't be read, or is not a document of CRIC.
    """
    left_out: list[LeftOut] = []
    endpoints = _services(files["endpoints"][0], left_out) if "endpoints" in files else None
    groups = {FEDERATION: _federations(files["groups"][0], left_out)} if "groups" in files else {}
    return FeedRows(CRIC, endpoints, groups, left_out=left_out)


def _services(path: Path, left_out: list[LeftOut]) -> list[Row]:
    """Rows of serviceEndpoint without `validFrom`."""

    def read(named: tuple[str, Any]) -> Iterator[Mapping[str, str]]:
        name, service = named
        fields = _strings(service, "rcsite", "flavour", "type", "endpoint", "state", "status")
        if fields["state"] not in ("", ACTIVE):
            return
        protocols = service.get("protocols") or {}
        if not isinstance(protocols, dict):
            raise RecordRefused("form", "protocols must be an object")
        inner = (_strings(protocol, "endpoint") for protocol in protocols.values())
        urls = [fields["endpoint"], *(protocol["endpoint"] for protocol in inner)]
        hosts = {host: url for url in reversed(urls) if (host := _host(url))}
        if not hosts:
            without_host.append(name)
        for host, url in hosts.items():
            yield {
                "siteName": fields["rcsite"],
                "hostName": host,
                "serviceFlavour": fields["flavour"] or fields["type"],
                "serviceURI": url,
                "production": "Y" if fields["status"] in ("", IN_PRODUCTION) else "N",
                "monitored": "N" if service.get("is_monitored") is False else "Y",
            }

    without_host: list[str] = []
    rows = list(rows_of(_objects(path), SERVICE_ENDPOINT, read, left_out))
    if without_host:
        ignored = plural(len(without_host), "service")
        logger.warning("ignoring %s without an endpoint, such as %s", ignored, without_host[0])
    return rows


def _federations(path: Path, left_out: list[LeftOut]) -> list[Row]:
    """Rows of siteGroup without `validFrom`, one per federation and site."""

    def read(named: tuple[str, Any]) -> Iterator[Mapping[str, str]]:
        name, federation = named
        _strings(federation)
        sites = federation.get("rcsites") or []
        if not isinstance(sites, list) or not all(isinstance(site, str) for site in sites):
            raise RecordRefused("form", "rcsites must be a list of names")
        for site in sites:
            yield {"siteName": site, "groupName": name, "groupType": FEDERATION}

    return list(rows_of(_objects(path), SITE_GROUP, read, left_out))


def _objects(path: Path) -> Iterator[tuple[str, tuple[str, Any]]]:
    """The named objects of a file, each with its location for messages."""
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=_without_repetition)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        code = _EXIT_CODES.get(type(error), IO_ERROR)
        raise BadInput(f"{path}: {reason}; nothing was changed", exit_code=code) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not valid JSON: {error}; nothing was changed") from error
    if not isinstance(document, dict):
        raise BadInput(f"{path}: must be an object of named objects; nothing was changed")
    for name, value in document.items():
        yield f"{path}: {name[:80]}", (name, value)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {repeated[:80]!r} appears twice in one object")
    return document


def _strings(value: Any, *keys: str) -> dict[str, str]:
    """These values of an object, "" for null and absent ones; raises RecordRefused."""
    if not isinstance(value, dict):
        raise RecordRefused("form", "must be an object")
    texts = {key: value.get(key) or "" for key in keys}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise RecordRefused("form", f"{key} must be a string")
    return texts


def _host(endpoint: str) -> str:
    """The host of `https://host:port/path`, `host:port` or `host`."""
    try:
        return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").hostname or ""
    except ValueError:
        raise RecordRefused("form", f"endpoint {endpoint[:80]!r} has no host") from None
