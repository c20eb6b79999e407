"""The tables `[[import.feed]]` of sam.toml: where feeds come from."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import TlsFiles, is_loopback
from sam_pipeline.schema.secret_file import credential_file
from sam_pipeline.schema.settings.broker import ProxyKeys, TlsKeys
from sam_pipeline.schema.settings.key import (
    POSITIVE,
    Settings,
    certificate_key,
    config_key,
    duration_key,
    one_of,
)
from sam_pipeline.schema.settings.section import load
from sam_pipeline.sql.imports.feed_rows import FeedRules
from sam_pipeline.sql.topology.view_rows import CRIC, GOCDB, OSG, VO_FEED

KINDS = {
    GOCDB: ("endpoints", "groups", "downtimes"),
    VO_FEED: ("feed",),
    CRIC: ("endpoints", "groups", "downtimes"),
    OSG: ("endpoints", "downtimes"),
}
"""The kinds of feeds, and the parts that can be read alone; a VO feed is one document."""
CERTIFICATE, KEY = "sam-import-certificate", "sam-import-key"
"""The systemd credentials for feeds without a `certificate_file`."""

MIB = 1024 * 1024


def _check_contents(names: tuple[str, ...]) -> str | None:
    unknown = [name for name in names if name not in KINDS[GOCDB]]
    return f"{', '.join(unknown)}: expected {', '.join(KINDS[GOCDB])}" if unknown else None


def problem_of_url(url: str) -> str | None:
    """The problem of the URL of a feed; the message contains no secret."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not a URL (expected https://HOST/PATH)"
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "is not the URL of a server (expected https://HOST/PATH)"
    if "@" in parts.netloc:
        return "must not contain a login: use certificate_file"
    return "must not contain a fragment (#)" if parts.fragment else None


class FeedConfig(FeedRules, TlsKeys, ProxyKeys):
    """One feed and how its server is reached."""

    kind: str = config_key("`gocdb`, `vofeed`, `cric` or `osg`", one_of(*KINDS))
    url: str = config_key(
        "GOCDB: the URL that ends in `/gocdbpi`, and parameters for each request"
        " (`…/gocdbpi?scope=EGI`); CRIC and OSG: the URL of the server; a VO feed: that of the"
        " document",
        problem_of_url,
    )
    contents: tuple[str, ...] = config_key(
        "what to import: `endpoints`, `groups`, `downtimes`; by default all", _check_contents, ()
    )
    site_group: str = config_key(
        'a VO feed: the type of the groups that are its sites, as `"CMS_Site"`; by default the grid'
        " sites are",
        None,
        "",
    )
    certificate_file: Path | None = certificate_key(
        "the client certificate; with one, GOCDB's protected methods are used, and CRIC's downtimes"
        " are read"
    )
    timeout_s: float = duration_key("timeout", "for the whole feed, including all retries", 600.0)
    max_bytes: int = config_key("the limit on the size of the whole feed", POSITIVE, 256 * MIB)

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def can_be_forged(self) -> bool:
        """Whether anyone on the way to the server could change the feed."""
        return self.parts.scheme == "http" and not is_loopback(self.parts.hostname or "")

    @property
    def wanted(self) -> tuple[str, ...]:
        """The contents to import."""
        everything = KINDS[self.kind]
        if self.kind == CRIC and not self.tls_files.certificate_file:
            # CRIC answers this query only to clients with a certificate.
            everything = tuple(name for name in everything if name != "downtimes")
        return self.contents or everything

    @property
    def tls_files(self) -> TlsFiles:
        """The files that the configuration or systemd names."""
        certificate, key = self.certificate_file, self.key_file
        if certificate is None and self.parts.scheme == "https":
            certificate = credential_file(CERTIFICATE, os.environ)
            key = credential_file(KEY, os.environ) if certificate else None
        return TlsFiles(self.ca_file, certificate, key, self.crl_file)

    def __str__(self) -> str:
        return f"{self.kind} {self.url}"

    def problems(self) -> Iterator[str]:
        """Problems of values that are valid by themselves."""
        for name in self.contents:
            if name not in KINDS[self.kind]:
                yield f"contents: {self.kind} has no {name}"
        if self.scope and "scope" in parse_qs(self.parts.query, keep_blank_values=True):
            yield "scope is in the url as well"
        if self.facts and self.kind == GOCDB and "groups" not in self.wanted:
            yield f"{self.facts[0]} needs the list of sites: add groups to contents"
        if self.site_group and self.kind != VO_FEED:
            yield f"site_group: {self.kind} has none"
        if self.key_file and not self.certificate_file:
            yield "key_file without certificate_file"
        if self.certificate_file and self.parts.scheme == "http":
            yield "certificate_file can't be used with http://"


class ImportConfig(Settings):
    """The section `[import]`."""

    SECTION = "import"

    feed: tuple[FeedConfig, ...] = config_key("", default=())

    def problems(self) -> Iterator[str]:
        for number, feed in enumerate(self.feed, 1):
            for problem in feed.problems():
                yield f"feed[{number}] {problem}"
        # A feed closes the rows that it lacks, so a second one of its kind would close the first's.
        kinds = Counter(feed.kind for feed in self.feed if feed.kind != VO_FEED)
        for kind, count in kinds.items():
            if count > 1:
                yield f"feed: {kind} appears {count} times; each would close the other's rows"
        urls = Counter(feed.url for feed in self.feed if feed.kind == VO_FEED)
        for url, count in urls.items():
            if count > 1:
                yield f"feed: {url} appears {count} times"


def load_feeds(args: argparse.Namespace) -> tuple[FeedConfig, ...]:
    """The feeds of sam.toml; raises ConfigError with all problems of the section."""
    return load(ImportConfig, args.config).feed


def feed_at(args: argparse.Namespace, kind: str, url: str) -> FeedConfig:
    """The feed of this kind and URL, as sam.toml describes it, or else without any credentials.

    Raises:
        ConfigError: the URL or the section is invalid.
    """
    if problem := problem_of_url(url):
        raise ConfigError([f"--url {problem}"])
    return next(
        (feed for feed in load_feeds(args) if (feed.kind, feed.url) == (kind, url)),
        FeedConfig(kind=kind, url=url),
    )


def feed_of_files(args: argparse.Namespace, kind: str) -> FeedConfig:
    """How files of a feed are imported: like the only feed of its kind in sam.toml, if any."""
    feeds = [feed for feed in load_feeds(args) if feed.kind == kind]
    return feeds[0] if len(feeds) == 1 else FeedConfig(kind=kind, url="")
