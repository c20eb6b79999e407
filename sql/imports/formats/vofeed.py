"""Reads VO feeds, in which a VO says which services it uses and how it groups the sites.

<root>
  <vo>atlas</vo>
  <atp_site name="SITE">
    <service hostname="HOST" flavour="SRM" endpoint="URL" production_status="true"/>
    <group name="T2" type="Tier"/>
  </atp_site>
</root>

`endpoint` and `production_status` may be absent. A group whose type ends in `_Site` names the site
as the VO does; another group of that name says that the site is in the group of its type:
`<group name="T2_CH_CERN" type="Tier2s"/>`. The `contact` of a site may be said. Sites without a
name, whose hosts no catalogue knows, are ignored. Nothing else is read.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.classes import SERVICE_ENDPOINT, SITE_CONTACT, SITE_GROUP
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES, FeedRows, Files, LeftOut, rows_of
from sam_pipeline.sql.imports.formats.xml_elements import elements
from sam_pipeline.sql.topology.view_rows import VO_FEED

ROOT = "root"
SITE = "atp_site"

_VO = re.compile(r"[\w.-]{1,100}", re.ASCII)
_OWN_NAME, _OWN_GROUP = "_Site", "_Group"
_IN_PRODUCTION = {"true": "Y", "false": "N", "": ""}

logger = logging.getLogger(__name__)


def read_vo_feed(files: Files) -> FeedRows:
    """The endpoints of the VO, and the groups of its sites.

    Raises:
        BadInput: the file can't be read, or does not name one VO.
    """
    [[path]] = files.values()
    vos: set[str] = set()
    sites: list[tuple[str, Element]] = []
    for where, element in elements(path, ROOT):
        if element.tag == "vo":
            vos.add((element.text or "").strip())
        elif element.tag == SITE:
            sites.append((where, element))
    if len(vos) != 1 or not _VO.fullmatch(vo := vos.pop()):
        raise BadInput(f"{path}: must name one VO in an element <vo>; nothing was changed")
    named = [(where, site) for where, site in sites if site.get("name", "").strip()]
    if len(named) < len(sites):
        unnamed = [site for _, site in sites if not site.get("name", "").strip()]
        groups_said = [
            group.get("name", "") for site in unnamed for group in site.iterfind("group")
        ]
        example = f", such as that of {groups_said[-1]}" if groups_said else ""
        logger.warning("ignoring %s without a name%s", plural(len(unnamed), "site"), example)
    left_out: list[LeftOut] = []
    services = [
        (where, (site, service)) for where, site in named for service in site.iterfind("service")
    ]
    endpoints = rows_of(services, SERVICE_ENDPOINT, lambda item: _service(*item, vo), left_out)
    groups = rows_of(named, SITE_GROUP, _groups, left_out)
    contacts = rows_of(named, SITE_CONTACT, _contact, left_out)
    return FeedRows(
        f"{VO_FEED}:{vo}",
        list(endpoints),
        {ALL_TYPES: list(groups)},
        list(contacts),
        left_out=left_out,
    )


def _service(site: Element, service: Element, vo: str) -> Iterator[Mapping[str, str]]:
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
    said = [(group.get("name", ""), group.get("type", "")) for group in site.iterfind("group")]
    own_names = {name: kind for name, kind in reversed(said) if kind.endswith(_OWN_NAME)}
    for name, kind in said:
        if name in own_names and not kind.endswith(_OWN_NAME):
            name, kind = kind, own_names[name].removesuffix(_OWN_NAME) + _OWN_GROUP
        yield {"siteName": site.get("name", ""), "groupName": name, "groupType": kind}


def _contact(site: Element) -> Iterator[Mapping[str, str]]:
    if contact := site.get("contact", "").strip():
        yield {"siteName": site.get("name", ""), "contact": contact}
