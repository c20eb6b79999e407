"""The tables `[[import.feed]]` of sam.toml: where feeds come from."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, urlsplit

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import is_loopback
from sam_pipeline.schema.net.proxy import problem_of_proxy
from sam_pipeline.schema.net.target import TlsFiles
from sam_pipeline.schema.secret_file import credential_file
from sam_pipeline.schema.settings.key import (
    POSITIVE,
    Settings,
    certificate_key,
    config_key,
    expected,
    one_of,
    path_key,
    private_key,
    revocation_key,
    secret_key,
)
from sam_pipeline.schema.settings.section import examine, load
from sam_pipeline.schema.settings.show import Part
from sam_pipeline.sql.imports.feed_rows import FeedRules, SiteFilter
from sam_pipeline.sql.topology.view_rows import CRIC, GOCDB, OSG, VO_FEED

SECTION = "import"
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
NOT_NEGATIVE = expected("0 or more", lambda number: number >= 0)


def _check_read(names: tuple[str, ...]) -> str | None:
    unknown = [name for name in names if name not in KINDS[GOCDB]]
    return f"{', '.join(unknown)}: expected {', '.join(KINDS[GOCDB])}" if unknown else None


def _check_flavours(flavours: dict[str, str]) -> str | None:
    empty = [name for name, flavour in flavours.items() if not (name.strip() and flavour.strip())]
    return f"{empty[0]!r}: expected a name and a flavour" if empty else None


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


class FeedConfig(Settings):
    """One feed and how its server is reached."""

    kind: str = config_key("`gocdb`, `vofeed`, `cric` or `osg`", one_of(*KINDS))
    url: str = config_key(
        "GOCDB: the URL that ends in `/gocdbpi`, and parameters for each request"
        " (`…/gocdbpi?scope=EGI`); CRIC and OSG: the URL of the server; a VO feed: that of the"
        " document",
        problem_of_url,
    )
    read: tuple[str, ...] = config_key(
        "what to read: `endpoints`, `groups`, `downtimes`; by default everything", _check_read, ()
    )
    site_group: str = config_key(
        'a VO feed: the type of the groups that are its sites, as `"CMS_Site"`; by default the grid'
        " sites are",
        None,
        "",
    )
    ca_file: Path | None = path_key(
        "certificate authorities, a file or a directory, instead of those of the system"
    )
    crl_file: Path | None = revocation_key()
    certificate_file: Path | None = certificate_key(
        "the client certificate; with one, GOCDB's protected methods are used, and CRIC's downtimes"
        " are read"
    )
    key_file: Path | None = private_key()
    proxy: str | None = config_key(
        "`http://[USER@]HOST:PORT`, or `none`; by default that of the environment",
        problem_of_proxy,
        None,
    )
    proxy_password_file: Path | None = secret_key("the password for the proxy")
    flavours: dict[str, str] = config_key(
        "names of services in the feed, and the flavours that they get, beside the default ones:"
        ' `{ "globus-GRIDFTP" = "SRM" }`',
        _check_flavours,
        default={},
    )
    sites: tuple[str, ...] = config_key("only these sites: names, or patterns as `UKI-*`", None, ())
    certification: tuple[str, ...] = config_key(
        "only sites with one of these statuses, such as `Certified`", None, ()
    )
    infrastructure: tuple[str, ...] = config_key(
        "only sites of one of these infrastructures, such as `Production`", None, ()
    )
    scope: tuple[str, ...] = config_key("only sites with one of these scope tags", None, ())
    countries: tuple[str, ...] = config_key(
        "only sites of these countries: names or codes", None, ()
    )
    keep_going: bool = config_key(
        "leave out odd elements, and list them, instead of refusing the whole feed", None, False
    )
    max_left_out: int = config_key(
        "refuse the feed if more elements than this, and more than `max_left_out_percent`, are odd",
        NOT_NEGATIVE,
        FeedRules.max_left_out,
    )
    max_left_out_percent: float = config_key(
        "see `max_left_out`", NOT_NEGATIVE, FeedRules.max_left_out_percent
    )
    timeout_s: float = config_key("for the whole feed, including all retries", POSITIVE, 600.0)
    max_bytes: int = config_key("the limit on the size of the whole feed", POSITIVE, 256 * MIB)

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def rules(self) -> FeedRules:
        """What is taken from the feed."""
        conditions = SiteFilter(
            self.sites, self.certification, self.infrastructure, self.scope, self.countries
        )
        return FeedRules(
            self.flavours,
            conditions,
            self.keep_going,
            self.max_left_out,
            self.max_left_out_percent,
        )

    @property
    def can_be_forged(self) -> bool:
        """Whether anyone on the way to the server could change the feed."""
        return self.parts.scheme == "http" and not is_loopback(self.parts.hostname or "")

    @property
    def contents(self) -> tuple[str, ...]:
        """What to read."""
        everything = KINDS[self.kind]
        if self.kind == CRIC and not self.tls_files.certificate_file:
            # CRIC answers this query only if it knows who asks.
            everything = tuple(name for name in everything if name != "downtimes")
        return self.read or everything

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
        """What is wrong with values that are valid by themselves."""
        for name in self.read:
            if name not in KINDS[self.kind]:
                yield f"read: {self.kind} has no {name}"
        if self.scope and "scope" in parse_qs(self.parts.query, keep_blank_values=True):
            yield "scope is in the url as well"
        if self.rules.filter.facts and self.kind == GOCDB and "groups" not in self.contents:
            yield f"{self.rules.filter.facts[0]} needs the list of sites: add groups to read"
        if self.site_group and self.kind != VO_FEED:
            yield f"site_group: {self.kind} has none"
        if self.key_file and not self.certificate_file:
            yield "key_file without certificate_file"
        if self.certificate_file and self.parts.scheme == "http":
            yield "certificate_file can't be used with http://"


class ImportConfig(Settings):
    """The section `[import]`."""

    feed: tuple[FeedConfig, ...] = config_key("", default=())


def load_feeds(args: argparse.Namespace) -> tuple[FeedConfig, ...]:
    """The feeds of sam.toml.

    Raises:
        ConfigError: all problems of the section at once.
    """
    feeds = load(ImportConfig, SECTION, args.config, os.environ).feed
    problems = list(_problems(feeds))
    if problems:
        raise ConfigError(problems)
    return feeds


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


def import_part(args: argparse.Namespace) -> Part:
    """The section for `config`."""
    findings = examine(ImportConfig, SECTION, args.config, os.environ)
    if not findings.bad and None not in (feeds := findings.values.get("feed", ())):
        findings.problems += _problems(feeds)
    return Part(SECTION, ImportConfig, findings)


def _problems(feeds: tuple[FeedConfig, ...]) -> Iterator[str]:
    for number, feed in enumerate(feeds, 1):
        for problem in feed.problems():
            yield f"[{SECTION}] feed[{number}] {problem}"
    # A feed closes the rows that it lacks, so a second one of its kind would close the first's.
    kinds = Counter(feed.kind for feed in feeds if feed.kind != VO_FEED)
    for kind, count in kinds.items():
        if count > 1:
            problem = f"{kind} appears {count} times; each would close the other's rows"
            yield f"[{SECTION}] feed: {problem}"
    urls = Counter(feed.url for feed in feeds if feed.kind == VO_FEED)
    for url, count in urls.items():
        if count > 1:
            yield f"[{SECTION}] feed: {url} appears {count} times"
