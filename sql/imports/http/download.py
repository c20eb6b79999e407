"""The documents of a feed on disk: those of the import that is running, and of the last one.

`STATE/import-KIND-DIGEST/` contains `lock`, `current/`, the documents of the last import that was
accepted, and `new/`, those of a running one, or of one that was refused, to look at. `index.json`
says of which URL and version a document is. A document that the server has not changed since is
copied from `current/`, and compared with the database like one that was sent.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.deadline import Deadline, within
from sam_pipeline.schema.net.proxy import Proxy, chosen
from sam_pipeline.schema.secret_file import read_secret
from sam_pipeline.sql.errors import FeedUnavailable, ImportRunning, StateUnusable
from sam_pipeline.sql.imports.feed_changes import Window
from sam_pipeline.sql.imports.http.client import FeedClient, Validators
from sam_pipeline.sql.imports.http.documents import Document, answered_by, documents_of, next_page
from sam_pipeline.sql.imports.http.feed_config import SECTION, FeedConfig

INDEX = "index.json"

logger = logging.getLogger(__name__)


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
        StateUnusable: the files can't be written.
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
            known = _index(current)
            download, index = Download(answered=answered_by(feed)), {}

            def fetch() -> None:
                for document in documents_of(feed, window):
                    files = download.files.setdefault(document.name, [])
                    for url, path in _pages(document, new, len(files), get):
                        logger.debug("%s: %s", path, url)
                        files.append(path)

            def get(document: Document, url: str, path: Path) -> None:
                """Fetch one document, or take it from the last import."""
                last = known.get(url)
                version = Validators(last.etag, last.last_modified) if last else Validators()
                fetched = client.fetch(url, path, document.content_types, version)
                download.documents += 1
                if fetched is None and last:
                    shutil.copyfile(current / last.file, path)
                    download.unchanged += 1
                    fetched = version
                index[url] = Version(path.name, _digest(path), *(fetched or version))

            try:
                within(deadline, fetch)
            except TimeoutError:
                advice = "nothing was changed, try again later"
                raise FeedUnavailable(
                    f"{feed.url}: not complete after {feed.timeout_s:g} s (timeout_s); {advice}"
                ) from None
            yield download
            (new / INDEX).write_text(json.dumps(index))
            shutil.rmtree(current, ignore_errors=True)
            new.rename(current)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StateUnusable(f"{error.filename or directory}: {reason}") from error


def _pages(
    document: Document, directory: Path, number: int, get: Callable[[Document, str, Path], None]
) -> Iterator[tuple[str, Path]]:
    """Fetch a document page by page; their URLs and files, which are counted from `number` on."""
    url: str | None = document.url
    seen: set[str] = set()
    while url:
        number += 1
        suffix = document.content_types[0].partition("/")[2]
        path = directory / f"{document.name}-{number}.{suffix}"
        get(document, url, path)
        yield url, path
        url = next_page(url, path, seen) if document.is_paged else None


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
            server, feed.proxy, SECTION, lambda: read_secret(file) if file else None, environ
        )
    except ValueError as error:
        raise ConfigError([str(error)]) from None
