"""Downloads the documents of which a feed consists, and keeps those of the last import.

`STATE/import-KIND-DIGEST/` contains `lock`, `current/`, the documents of the last import that was
accepted, and `new/`, those of a running one, or of one that was refused, to look at. `index.json`
has the URL and version of each document. A document that the server has not changed since is
copied from `current/`, and compared with the database like one that was sent.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Broker, Proxy, chosen
from sam_pipeline.schema.net.deadline import Deadline, within
from sam_pipeline.schema.program.moments import utc_today
from sam_pipeline.schema.secret_file import read_secret
from sam_pipeline.sql.errors import BadInput, CannotCreate, FeedUnavailable, ImportRunning
from sam_pipeline.sql.imports.client import JSON, XML, FeedClient, Validators
from sam_pipeline.sql.imports.feed_changes import Window
from sam_pipeline.sql.imports.feed_config import FeedConfig
from sam_pipeline.sql.imports.formats.documents import elements
from sam_pipeline.sql.imports.formats.gocdb import META, ROOT
from sam_pipeline.sql.topology.view_rows import CRIC, GOCDB, OSG

INDEX = "index.json"
CURSOR = "next_cursor"
FIRST_CURSOR = "0"

_PATHS = {
    CRIC: {
        "endpoints": "api/core/service/query/",
        "groups": "api/core/federation/query/",
        "downtimes": "api/core/downtime/query/",
    },
    OSG: {"endpoints": "rgsummary/xml", "downtimes": "rgdowntime/xml"},
}
_ASKED = {"certification": "certification_status", "infrastructure": "production_status"}
"""Conditions on sites that only GOCDB itself can check, and its parameters for them."""
_BEYOND_ANY = 10_000
"""More pages than a GOCDB has: its cursor goes in circles."""

logger = logging.getLogger(__name__)


class Document(NamedTuple):
    """A document of a feed: what it contains, its URL, and whether it comes in pages."""

    name: str
    url: str
    content_types: Sequence[str]
    is_paged: bool = False


class Version(NamedTuple):
    """A document of the last import: its file, and what identifies its contents."""

    file: str
    digest: str
    etag: str
    last_modified: str


@dataclass
class Download:
    """The files of a feed, by what they contain, and how many of them the server had changed.

    The server has checked the conditions of the filter that it `answered`.
    """

    files: dict[str, list[Path]] = field(default_factory=dict)
    documents: int = 0
    unchanged: int = 0
    answered: Collection[str] = ()


@contextmanager
def downloaded(
    feed: FeedConfig, window: Window, state: Path, environ: Mapping[str, str]
) -> Iterator[Download]:
    """The complete feed; at the end of the block, unless it raises, it becomes the last import.

    Raises:
        ImportRunning: another process is importing this feed.
        FeedUnavailable: something is missing, and will be there later.
        BadInput: the server sent something else.
        ConfigError: the feed or its proxy can't be used.
        CannotCreate: the files can't be written.
    """
    digest = hashlib.sha256(feed.url.encode()).hexdigest()[:12]
    directory = state / f"import-{feed.kind}-{digest}"
    try:
        with _locked(directory, feed):
            new, current = directory / "new", directory / "current"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            deadline = Deadline.after(feed.timeout_s)
            client = FeedClient(feed, _proxy(feed, environ), deadline)
            known, index = _index(current), {}
            download = Download(answered=answered_by(feed))

            def fetch() -> None:
                for document in documents_of(feed, window):
                    files = download.files.setdefault(document.name, [])
                    suffix = document.content_types[0].partition("/")[2]
                    url: str | None = document.url
                    seen: set[str] = set()
                    while url:
                        path = new / f"{document.name}-{len(files) + 1}.{suffix}"
                        last = known.get(url)
                        version = Validators(*last[2:]) if last else Validators()
                        fetched = client.fetch(url, path, document.content_types, version)
                        logger.debug("%s: %s", path, url)
                        if fetched is None and last:
                            shutil.copyfile(current / last.file, path)
                            download.unchanged += 1
                        index[url] = Version(path.name, _digest(path), *(fetched or version))
                        download.documents += 1
                        files.append(path)
                        url = next_page(url, path, seen) if document.is_paged else None

            try:
                within(deadline, fetch)
            except TimeoutError:
                advice = "nothing was changed, try again later"
                raise FeedUnavailable(
                    f"{feed.url}: not complete after {feed.timeout_s:g} s (timeout); {advice}"
                ) from None
            yield download
            (new / INDEX).write_text(json.dumps(index))
            shutil.rmtree(current, ignore_errors=True)
            new.rename(current)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CannotCreate(f"{error.filename or directory}: {reason}") from error


def _index(directory: Path) -> dict[str, Version]:
    """The documents of the last import whose files are intact, by URL."""
    try:
        index = json.loads((directory / INDEX).read_text())
        versions = {url: Version(*version) for url, version in index.items()}
        return {
            url: version
            for url, version in versions.items()
            if _digest(directory / version.file) == version.digest
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        logger.warning("can't use the last import in %s: fetching everything: %s", directory, error)
        return {}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(directory: Path, feed: FeedConfig) -> Iterator[None]:
    """Hold the lock of a feed inside the block; it covers processes with this state directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = f"process {file.read(20).strip()}, {file.name}"
            problem = f"another import of {feed.url} is running ({holder})"
            raise ImportRunning(f"{problem}; nothing was changed") from None
        with suppress(OSError):  # a full disk: the lock holds without the number in it
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield


def _proxy(feed: FeedConfig, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy for a feed, chosen as for a broker with that address."""
    scheme = "sam+https" if feed.parts.scheme == "https" else "sam+http"
    port = feed.parts.port or (443 if feed.parts.scheme == "https" else 80)
    server = Broker(scheme, feed.parts.hostname or "", port)
    file = feed.proxy_password_file
    try:
        return chosen(
            server, feed.proxy, "import", lambda: read_secret(file) if file else None, environ
        )
    except ValueError as error:
        raise ConfigError([str(error)]) from None


def documents_of(feed: FeedConfig, window: Window) -> Iterator[Document]:
    """The documents to fetch; downtimes are those that overlap the window."""
    for name in feed.wanted:
        if feed.kind == GOCDB:
            yield from _of_gocdb(feed, name, window)
            continue
        url, own = feed.parts, "json" if feed.kind == CRIC else ""
        if feed.kind == OSG and name == "downtimes":
            # All downtimes to come, and those that ended in the window.
            days = (utc_today() - date.fromisoformat(window.start[:10])).days
            own = f"downtime_attrs_showpast={max(days, 0)}"
        if paths := _PATHS.get(feed.kind):
            query = "&".join(filter(None, [own, url.query]))
            url = url._replace(path=f"{url.path.rstrip('/')}/{paths[name]}", query=query)
        yield Document(name, url.geturl(), JSON if feed.kind == CRIC else XML)


def answered_by(feed: FeedConfig) -> Collection[str]:
    """The conditions of the filter that the server checks, as its answer does not state them."""
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
    # A condition has one value, and the list of sites does not state which one a site has.
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
