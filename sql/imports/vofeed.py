"""Reads VO feeds, in which a VO says which services it uses and how it groups the sites.

<root>
  <vo>atlas</vo>
  <atp_site name="SITE">
    <service hostname="HOST" flavour="SRM" endpoint="URL" production_status="true"/>
    <group name="T2" type="Tier"/>
  </atp_site>
</root>

`endpoint` and `production_status` may be absent. Nothing else is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import SERVICE_ENDPOINT, SITE_GROUP
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import (
    ALL_TYPES,
    FeedRows,
    best_endpoints,
    refuse_invalid,
    rows_of,
)
from sam_pipeline.sql.imports.xml_elements import elements
from sam_pipeline.sql.topology.view_rows import VO_FEED, key_of

ROOT = "root"
SITE = "atp_site"

_VO = re.compile(r"[\w.-]{1,100}", re.ASCII)
_IN_PRODUCTION = {"true": "Y", "false": "N", "": ""}


class VoFeed(NamedTuple):
    """The rows of the feed of one VO, which is the only one whose rows it may close."""

    vo: str
    rows: FeedRows

    @property
    def name(self) -> str:
        return f"{VO_FEED}:{self.vo}"


def read_vo_feed(path: Path) -> VoFeed:
    """The endpoints of the VO, and the groups of its sites.

    Raises:
        BadInput: the file can't be read, does not name one VO, or has invalid elements.
    """
    vos: set[str] = set()
    sites: list[tuple[str, Element]] = []
    for where, element in elements(path, ROOT):
        if element.tag == "vo":
            vos.add((element.text or "").strip())
        elif element.tag == SITE:
            sites.append((where, element))
    if len(vos) != 1 or not _VO.fullmatch(vo := vos.pop()):
        raise BadInput(f"{path}: must name one VO in an element <vo>; nothing was changed")
    problems: list[str] = []
    services = rows_of(sites, SERVICE_ENDPOINT, lambda site: _services(site, vo), problems)
    endpoints = best_endpoints(services)
    groups = {
        key_of(row, ("siteName", "groupName", "groupType")): row
        for row in rows_of(sites, SITE_GROUP, _groups, problems)
    }
    refuse_invalid(problems)
    return VoFeed(vo, FeedRows(endpoints, {ALL_TYPES: list(groups.values())}))


def _services(site: Element, vo: str) -> Iterator[Mapping[str, str]]:
    for service in site.iterfind("service"):
        status = service.get("production_status", "").strip().lower()
        if status not in _IN_PRODUCTION:
            raise RecordRefused("flag", f"production_status must be true or false, not {status!r}")
        yield {
            "siteName": site.get("name", ""),
            "hostName": service.get("hostname", ""),
            "serviceFlavour": service.get("flavour", ""),
            "serviceURI": service.get("endpoint", ""),
            "voName": vo,
            "production": _IN_PRODUCTION[status],
        }


def _groups(site: Element) -> Iterator[Mapping[str, str]]:
    for group in site.iterfind("group"):
        yield {
            "siteName": site.get("name", ""),
            "groupName": group.get("name", ""),
            "groupType": group.get("type", ""),
        }
