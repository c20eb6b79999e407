"""The documents of which each kind of feed consists, and the pages of one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import product
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_changes import Window
from sam_pipeline.sql.imports.formats.gocdb import META, ROOT
from sam_pipeline.sql.imports.formats.xml_elements import elements
from sam_pipeline.sql.imports.http.client import JSON, XML
from sam_pipeline.sql.imports.http.feed_config import FeedConfig
from sam_pipeline.sql.topology.view_rows import CRIC, GOCDB, OSG

CURSOR = "next_cursor"
FIRST_CURSOR = "0"

_CRIC_QUERIES = {"endpoints": "service", "groups": "federation", "downtimes": "downtime"}
_OSG_DOCUMENTS = {"endpoints": "rgsummary", "downtimes": "rgdowntime"}
_ASKED = {"certification": "certification_status", "infrastructure": "production_status"}
"""Conditions on sites that only GOCDB itself can check, and its parameters."""
_BEYOND_ANY = 10_000
"""More pages than a GOCDB has: its cursor goes in circles."""


class Document(NamedTuple):
    """A document of a feed: what it contains, its URL, and whether it comes in pages."""

    name: str
    url: str
    content_types: Sequence[str]
    is_paged: bool = False


def documents_of(feed: FeedConfig, window: Window) -> Iterator[Document]:
    """What to fetch; downtimes are those that overlap the window."""
    for name in feed.contents:
        if feed.kind == GOCDB:
            yield from _of_gocdb(feed, name, window)
        elif feed.kind == CRIC:
            path = f"{feed.parts.path.rstrip('/')}/api/core/{_CRIC_QUERIES[name]}/query/"
            query = "&".join(filter(None, ["json", feed.parts.query]))
            yield Document(name, feed.parts._replace(path=path, query=query).geturl(), JSON)
        elif feed.kind == OSG:
            # All downtimes to come, and those that ended in the window.
            days = max((datetime.now(UTC).date() - date.fromisoformat(window.start[:10])).days, 0)
            past = f"downtime_attrs_showpast={days}" if name == "downtimes" else ""
            path = f"{feed.parts.path.rstrip('/')}/{_OSG_DOCUMENTS[name]}/xml"
            query = "&".join(filter(None, [past, feed.parts.query]))
            yield Document(name, feed.parts._replace(path=path, query=query).geturl(), XML)
        else:
            yield Document(name, feed.url, XML)


def answered_by(feed: FeedConfig) -> Collection[str]:
    """The conditions of the filter that the server checks: its answer does not say them."""
    is_list = feed.kind == GOCDB and not _is_protected(feed)
    return [*_ASKED, "scope"] if is_list else []


def _of_gocdb(feed: FeedConfig, name: str, window: Window) -> Iterator[Document]:
    """Methods of GOCDB-PI. Only its protected ones show scopes, and require a certificate."""
    method = {
        "endpoints": "get_service_endpoint",
        "groups": "get_site" if _is_protected(feed) else "get_site_list",
        "downtimes": "get_downtime_nested_services",
    }[name]
    # GOCDB refuses parameters that a method does not have.
    is_paged = method != "get_site_list"
    parameters = [("method", method), *parse_qsl(feed.parts.query, keep_blank_values=True)]
    if feed.scope:
        parameters += [("scope", ",".join(feed.scope)), ("scope_match", "any")]
    if name == "downtimes":
        parameters += [("windowstart", window.start[:10]), ("windowend", window.end[:10])]
    if is_paged:
        parameters.append((CURSOR, FIRST_CURSOR))
    path = feed.parts.path.rstrip("/")
    if not path.endswith(("/public", "/private")):
        path += "/private" if _is_protected(feed) else "/public"
    # A condition has one value, and the list of sites does not say which one a site has.
    choices = [[(name, value) for value in getattr(feed, key)] for key, name in _ASKED.items()]
    for asked in product(*filter(None, choices if method == "get_site_list" else [])):
        query = urlencode([*parameters, *asked])
        url = feed.parts._replace(path=f"{path}/", query=query).geturl()
        yield Document(name, url, XML, is_paged)


def _is_protected(feed: FeedConfig) -> bool:
    return feed.tls_files.certificate_file is not None


def next_page(url: str, path: Path, seen: set[str]) -> str | None:
    """The URL of the page after this one of GOCDB; None after the last.

    Args:
        url: that of this page; only the cursor of the link in it is used, since a GOCDB behind
            another server does not know its own address.
        path: the file with this page.
        seen: the cursors of all pages before, to which that of the next one is added.

    Raises:
        BadInput: the page is incomplete, or does not lead to another one.
    """
    meta, elements_read = None, 0
    for _, element in elements(path, ROOT):
        if element.tag == META:
            meta = element
        else:
            elements_read += 1
    if meta is None:
        if not seen:
            return None  # it does not split this answer
        raise BadInput(f"{path}: {url}: a page without <{META}>; nothing was changed")
    counts = {name: (meta.findtext(name) or "").strip() for name in ("count", "max_page_size")}
    count, max_page_size = (int(n) if n.isdecimal() else None for n in counts.values())
    if count is not None and elements_read < count:
        problem = f"has {elements_read} of {count} elements: it is incomplete"
        raise BadInput(f"{path}: {url}: {problem}; nothing was changed")
    links = [link.get("href", "") for link in meta.iterfind("link[@rel='next']")]
    if not elements_read or (max_page_size is not None and elements_read < max_page_size):
        return None
    [cursor] = parse_qs(urlsplit(next(iter(links), "")).query).get(CURSOR, [""])[-1:]
    if not cursor or cursor in seen or len(seen) > _BEYOND_ANY:
        problem = f"its link to the next page leads to {CURSOR}={cursor[:40]!r}"
        raise BadInput(f"{path}: {url}: {problem}; nothing was changed")
    seen.add(cursor)
    parts = urlsplit(url)
    query = [(key, value) for key, value in parse_qsl(parts.query, True) if key != CURSOR]
    return parts._replace(query=urlencode([*query, (CURSOR, cursor)])).geturl()
