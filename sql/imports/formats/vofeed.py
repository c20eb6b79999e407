"""Reads VO feeds, in which a VO lists the services that it uses and its groups of sites.

<root>
  <vo>atlas</vo>
  <atp_site name="SITE">
    <service hostname="HOST" flavour="SRM" endpoint="URL" production_status="true"/>
    <group name="T2" type="Tier"/>
  </atp_site>
</root>

`endpoint` and `production_status` may be absent. A group whose type ends in `_Site` names the site
as the VO does; another group of that name puts the site into the group of its type:
`<group name="T2_CH_CERN" type="Tier2s"/>`. A site may have a `contact`. Sites without a
name, whose hosts no catalogue knows, are ignored. Nothing else is read. Where the groups of one
type are the sites of the VO, SITE is the grid site of their endpoints.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.program.wording import did_you_mean_or_list, plural
from sam_pipeline.schema.records.classes import SERVICE_ENDPOINT, SITE_CONTACT, SITE_GROUP
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES, FeedRows, Files
from sam_pipeline.sql.imports.formats.documents import elements
from sam_pipeline.sql.topology.view_rows import VO_FEED

ROOT = "root"
SITE = "atp_site"

_VO = re.compile(r"[\w.-]{1,100}", re.ASCII)
_OWN_NAME, _OWN_GROUP = "_Site", "_Group"
_IN_PRODUCTION = {"true": "Y", "false": "N", "": ""}

logger = logging.getLogger(__name__)


def read_vo_feed(files: Files, site_group: str = "") -> FeedRows:
    """The endpoints of the VO, the groups of its sites, and their contacts.

    Args:
        site_group: the type of the groups that are the sites of the VO, if it has its own.
    Raises:
        BadInput: the file can't be read, or does not name one VO, or has no group of the type.
    """
    [[path]] = files.values()
    vos: set[str] = set()
    elements_of_sites: list[tuple[str, Element]] = []
    for where, element in elements(path, ROOT):
        if element.tag == "vo":
            vos.add((element.text or "").strip())
        elif element.tag == SITE:
            elements_of_sites.append((where, element))
    if len(vos) != 1 or not _VO.fullmatch(vo := vos.pop()):
        raise BadInput(f"{path}: must name one VO in an element <vo>; nothing was changed")
    types = {kind for _, site in elements_of_sites for _, kind in _groups_of(site)}
    if site_group and site_group not in types:
        hint = did_you_mean_or_list(site_group, types)
        raise BadInput(f"{path}: no group has the type {site_group}: {hint}; nothing was changed")
    sites: list[tuple[str, tuple[str, Element]]] = []
    unnamed: list[Element] = []
    for where, site in elements_of_sites:
        # The sites of the VO at a grid site; without any, the grid site itself.
        own = [name for name, kind in _groups_of(site) if site_group and kind == site_group]
        names = [name for name in own or [site.get("name", "")] if name.strip()]
        sites += [(where, (name, site)) for name in names]
        unnamed += [] if names else [site]
    if unnamed:
        names = [name for site in unnamed for name, _ in _groups_of(site)]
        example = f", such as that of {names[-1]}" if names else ""
        logger.warning("ignoring %s without a name%s", plural(len(unnamed), "site"), example)
    services = [
        (where, (name, site, service))
        for where, (name, site) in sites
        for service in site.iterfind("service")
    ]
    rows = FeedRows(f"{VO_FEED}:{vo}")
    rows.endpoints = rows.read(SERVICE_ENDPOINT, services, lambda item: endpoints(*item, vo))
    found = rows.read(SITE_GROUP, sites, lambda item: groups(*item, site_group))
    rows.groups = {ALL_TYPES: found}
    rows.contacts = rows.read(SITE_CONTACT, sites, lambda item: contacts(*item))
    return rows


def _groups_of(site: Element) -> list[tuple[str, str]]:
    """The names and types of the groups of a site."""
    return [(group.get("name", ""), group.get("type", "")) for group in site.iterfind("group")]


def endpoints(name: str, site: Element, service: Element, vo: str) -> Iterator[Mapping[str, str]]:
    status = service.get("production_status", "").strip().lower()
    if status not in _IN_PRODUCTION:
        raise RecordRefused("flag", f"production_status must be true or false, not {status!r}")
    grid_site = site.get("name", "")
    yield {
        "siteName": name,
        "gridSite": grid_site if grid_site != name else "",
        "hostName": service.get("hostname", ""),
        "serviceFlavour": service.get("flavour", ""),
        "serviceURI": service.get("endpoint", ""),
        "voName": vo,
        "production": _IN_PRODUCTION[status],
    }


def groups(name: str, site: Element, site_group: str) -> Iterator[Mapping[str, str]]:
    own_types = {site_group} if site_group else set()
    named = _groups_of(site)
    own_names = {
        group: kind
        for group, kind in reversed(named)
        if kind in own_types or kind.endswith(_OWN_NAME)
    }
    for group, kind in named:
        if kind in own_types:
            continue
        if group in own_names and not kind.endswith(_OWN_NAME):
            if own_names[group] in own_types and group != name:
                continue  # it is about another site of the VO at this grid site
            group, kind = kind, own_names[group].removesuffix(_OWN_NAME) + _OWN_GROUP
        yield {"siteName": name, "groupName": group, "groupType": kind}


def contacts(name: str, site: Element) -> Iterator[Mapping[str, str]]:
    if contact := site.get("contact", "").strip():
        yield {"siteName": name, "contact": contact}
