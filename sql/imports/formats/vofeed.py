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
from xml.etree.ElementTree import Element

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import SERVICE_ENDPOINT, SITE_GROUP
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES, FeedRows, Files, LeftOut, rows_of
from sam_pipeline.sql.imports.formats.xml_elements import elements
from sam_pipeline.sql.topology.view_rows import VO_FEED

ROOT = "root"
SITE = "atp_site"

_VO = re.compile(r"[\w.-]{1,100}", re.ASCII)
_IN_PRODUCTION = {"true": "Y", "false": "N", "": ""}


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
    left_out: list[LeftOut] = []
    endpoints = list(rows_of(sites, SERVICE_ENDPOINT, lambda site: _services(site, vo), left_out))
    groups = list(rows_of(sites, SITE_GROUP, _groups, left_out))
    return FeedRows(f"{VO_FEED}:{vo}", endpoints, {ALL_TYPES: groups}, left_out=left_out)


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
