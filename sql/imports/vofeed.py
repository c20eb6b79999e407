"""Reads VO feeds, in which a VO says which services it uses and how it groups the sites.

<root>
  <vo>atlas</vo>
  <atp_site name="SITE">
    <service hostname="HOST" flavour="SRM" endpoint="URL" production_status="true"/>
    <group name="T2" type="Tier"/>
  </atp_site>
</root>

`endpoint` and `production_status` may be absent. Nothing else is read. A VO that has sites of its
own names them in groups of a certain type; then these are the sites, and SITE is the grid site of
their endpoints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.program.wording import did_you_mean_or_list
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


def read_vo_feed(path: Path, site_group: str = "") -> VoFeed:
    """The endpoints of the VO, and the groups of its sites.

    Args:
        site_group: the type of the groups that are the sites of the VO, if it has its own.
    Raises:
        BadInput: the file can't be read, does not name one VO, has invalid elements, or no group
            of the type.
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
    types = {group.get("type", "") for _, site in sites for group in site.iterfind("group")}
    if site_group and site_group not in types:
        hint = did_you_mean_or_list(site_group, types)
        raise BadInput(f"{path}: no group has the type {site_group}: {hint}; nothing was changed")
    problems: list[str] = []

    def services_of(site: Element) -> Iterator[Mapping[str, str]]:
        return _services(site, _sites_of(site, site_group), vo)

    def groups_of(site: Element) -> Iterator[Mapping[str, str]]:
        return _groups(site, _sites_of(site, site_group), site_group)

    services = rows_of(sites, SERVICE_ENDPOINT, services_of, problems)
    endpoints = best_endpoints(services)
    groups = {
        key_of(row, ("siteName", "groupName", "groupType")): row
        for row in rows_of(sites, SITE_GROUP, groups_of, problems)
    }
    refuse_invalid(problems)
    return VoFeed(vo, FeedRows(endpoints, {ALL_TYPES: list(groups.values())}))


def _sites_of(site: Element, site_group: str) -> list[str]:
    """The sites of the VO at a grid site; without any, the grid site itself."""
    groups = site.iterfind("group") if site_group else ()
    names = [group.get("name", "") for group in groups if group.get("type") == site_group]
    return names or [site.get("name", "")]


def _services(site: Element, names: Sequence[str], vo: str) -> Iterator[Mapping[str, str]]:
    grid_site = site.get("name", "")
    for name, service in product(names, site.iterfind("service")):
        status = service.get("production_status", "").strip().lower()
        if status not in _IN_PRODUCTION:
            raise RecordRefused("flag", f"production_status must be true or false, not {status!r}")
        yield {
            "siteName": name,
            "gridSite": grid_site if grid_site != name else "",
            "hostName": service.get("hostname", ""),
            "serviceFlavour": service.get("flavour", ""),
            "serviceURI": service.get("endpoint", ""),
            "voName": vo,
            "production": _IN_PRODUCTION[status],
        }


def _groups(site: Element, names: Sequence[str], site_group: str) -> Iterator[Mapping[str, str]]:
    for name, group in product(names, site.iterfind("group")):
        if not site_group or group.get("type") != site_group:
            yield {
                "siteName": name,
                "groupName": group.get("name", ""),
                "groupType": group.get("type", ""),
            }
