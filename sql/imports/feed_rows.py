"""The rows of a feed, normalised like those of messages, and which of them are taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.classes import DOWNTIME, SITE_GROUP, MessageClass
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.settings.key import Settings, config_key
from sam_pipeline.schema.times import format_time, utc
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.topology.view_rows import Row, key_of

T = TypeVar("T")

Files = Mapping[str, Sequence[Path]]
"""The files of a feed by what they contain."""

ALL_TYPES = ""
"""Instead of a group type: the feed has all of its groups, whatever their type."""

DEFAULT_FLAVOURS: Mapping[str, str] = {
    "ARC-CE": "ARC-CE",
    "org.nordugrid.arex": "ARC-CE",
    "CREAM-CE": "CREAM-CE",
    "org.glite.ce.CREAM": "CREAM-CE",
    "GRIDFTP": "GRIDFTP",
    "globus-GRIDFTP": "GRIDFTP",
    "HTCONDOR-CE": "HTCONDOR-CE",
    "org.opensciencegrid.htcondorce": "HTCONDOR-CE",
    "perfSONAR": "perfSONAR",
    "Squid": "Squid",
    "org.squid-cache.Squid": "Squid",
    "SRM": "SRM",
    "SRMv1": "SRM",
    "SRMv2": "SRM",
    "SRMv2.disk": "SRM",
    "WEBDAV": "WEBDAV",
    "WebDAV.disk": "WEBDAV",
    "XROOTD": "XROOTD",
    "eu.egi.readonly.xrootd": "XROOTD",
    "XRootD component": "XROOTD",
    "XRootD origin server": "XROOTD",
    "XRootD.Redirector": "XROOTD",
}
"""The flavour for the names that GOCDB, CRIC, OSG and the VOs give a service. Tape services
(`SRM.nearline`, `webdav.tape`) keep their names: the disks may work while the tapes do not."""

MAX_LISTED = 20
"""How many invalid elements an error lists."""
MAX_LEFT_OUT, MAX_LEFT_OUT_PERCENT = 20, 5
"""A feed with more invalid elements than both is refused: it probably has another format."""
UNLISTED = "not in the list of sites"
LONGEST_CONTACT = 255

# Rows need a time to be valid; this one is removed afterwards, and that of the snapshot set later.
_PLACEHOLDER = datetime(1970, 1, 1, tzinfo=UTC)


class LeftOut(NamedTuple):
    """An invalid element of a feed, which became no row: its location, and the reason."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class SiteFacts(NamedTuple):
    """What a feed states about a site; None for what it does not state."""

    certification: Collection[str] | None = None
    infrastructure: Collection[str] | None = None
    scope: Collection[str] | None = None
    countries: Collection[str] | None = None
    """The name and the code of its country."""


@dataclass
class FeedRows:
    """The rows of a feed, as its files have them; `groups` by group type. None or {} if not read.

    `feed` is its name; `sites` are the facts about the sites that it lists. Rows may have the same
    key. `filtered` are the sites of which no rows are left, by the condition that they do not meet.
    """

    feed: str
    endpoints: Sequence[Row] | None = None
    groups: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    contacts: Sequence[Row] | None = None
    downtimes: Sequence[Row] | None = None
    sites: Mapping[str, SiteFacts] | None = None
    left_out: list[LeftOut] = field(default_factory=list)
    filtered: Mapping[str, Collection[str]] = field(default_factory=dict)

    def read(
        self,
        message_class: MessageClass,
        items: Iterable[tuple[str, T]],
        records_of: Callable[[T], Iterable[Mapping[str, str]]],
    ) -> list[Row]:
        """The rows, without `validFrom`, of the records of each item; items have a location.

        Invalid records are left out.
        """
        rows: list[Row] = []
        for where, item in items:
            try:
                for fields in records_of(item):
                    try:
                        complete = {**fields, "validFrom": format_time(_PLACEHOLDER)}
                        for row in normalise(complete, message_class.name, {}, _PLACEHOLDER):
                            del row["validFrom"]
                            rows.append(row)
                    except RecordRefused as error:
                        self.left_out.append(LeftOut(where, error.text))
            except RecordRefused as error:
                self.left_out.append(LeftOut(where, error.text))
        return rows


def contact_of(people: Iterable[str]) -> str:
    """The contact of a site: its people in alphabetical order, as far as there is room."""
    contact = ""
    for person in sorted(set(filter(None, people))):
        longer = f"{contact}, {person}" if contact else person
        contact = longer if len(longer) <= LONGEST_CONTACT else contact
    return contact


def host_of(url: str) -> str:
    """The host of `https://host:port/path`, `host:port` or `host`; raises RecordRefused."""
    try:
        return urlsplit(url if "://" in url else f"//{url}").hostname or ""
    except ValueError:
        raise RecordRefused("form", f"URL {url[:80]!r} has no host") from None


def entered_at(time: str, read: Callable[[str], str] = utc) -> str:
    """When a downtime was entered; "" if that is unknown."""
    try:
        return read(time)
    except (RecordRefused, ValueError):
        return ""


def _check_flavours(flavours: Mapping[str, str]) -> str | None:
    empty = [name for name, flavour in flavours.items() if not (name.strip() and flavour.strip())]
    return f"{empty[0]!r}: expected a name and a flavour" if empty else None


class FeedRules(Settings):
    """Which elements of a feed are taken, and under which flavours.

    The conditions that a site must meet ignore case; an empty one is always met. With `keep_going`,
    invalid elements are left out, unless they are too many.
    """

    flavours: dict[str, str] = config_key(
        "names of services in the feed, and the flavours that they get, beside the default ones:"
        ' `{ "globus-GRIDFTP" = "SRM" }`',
        _check_flavours,
        {},
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
        "leave out invalid elements, and list them, instead of refusing the whole feed", None, False
    )

    @property
    def facts(self) -> Sequence[str]:
        """The conditions on the facts that a feed states about its sites."""
        return [name for name in SiteFacts._fields if getattr(self, name)]

    def unmet(self, site: str, facts: SiteFacts | None, answered: Collection[str]) -> str | None:
        """The first condition that a site does not meet; the server has checked `answered`."""
        if self.sites and not any(fnmatchcase(site.lower(), name.lower()) for name in self.sites):
            return "sites"
        if self.facts and facts is None:
            return UNLISTED
        for name in self.facts:
            said = getattr(facts, name)
            wanted = {value.lower() for value in getattr(self, name)}
            if not (said is None and name in answered) and wanted.isdisjoint(
                value.lower() for value in said or ()
            ):
                return name
        return None


def taken(rows: FeedRows, rules: FeedRules, answered: Collection[str] = ()) -> FeedRows:
    """The rows to compare with the stored ones: of the right sites, with our flavours, one per key.

    `answered` are the conditions of the filter that the server has checked.

    Raises:
        BadInput: the feed has too many invalid elements or two versions of a downtime, or lacks the
            facts that the filter needs; nothing was changed.
    """
    _refuse_left_out(rows, rules)
    listed = rows.sites or {}
    if rules.facts and rows.sites is None:
        raise BadInput(
            f"the filter ({', '.join(rules.facts)}) needs the list of sites of the feed: import"
            " its groups as well; nothing was changed"
        )
    for name in rules.facts:
        is_stated = any(getattr(facts, name) is not None for facts in listed.values())
        if listed and name not in answered and not is_stated:
            raise BadInput(
                f"the filter {name} can't be applied: the list of sites does not state it;"
                " nothing was changed"
            )
    names = {name.lower(): new for name, new in {**DEFAULT_FLAVOURS, **rules.flavours}.items()}
    filtered: dict[str, set[str]] = defaultdict(set)

    def accepted(rows_of_a_kind: Iterable[Row]) -> Iterator[Row]:
        for row in rows_of_a_kind:
            site, flavour = row.get("siteName"), row.get("serviceFlavour")
            if site and (unmet := rules.unmet(site, listed.get(site), answered)):
                filtered[unmet].add(site)
            elif flavour:
                yield {**row, "serviceFlavour": names.get(flavour.lower(), flavour)}
            else:
                yield row

    def last_of_each(rows_of_a_kind: Iterable[Row], *key: str) -> list[Row]:
        return list({key_of(row, key): row for row in accepted(rows_of_a_kind)}.values())

    endpoints, contacts, downtimes = rows.endpoints, rows.contacts, rows.downtimes
    group_key = [key for key in SITE_GROUP.natural_key if key != "validFrom"]
    return replace(
        rows,
        endpoints=None if endpoints is None else _best_endpoints(accepted(endpoints)),
        groups={kind: last_of_each(groups, *group_key) for kind, groups in rows.groups.items()},
        contacts=None if contacts is None else last_of_each(contacts, "siteName"),
        downtimes=None if downtimes is None else _one_version(accepted(downtimes)),
        filtered=filtered,
    )


def _refuse_left_out(rows: FeedRows, rules: FeedRules) -> None:
    """Raise BadInput if there are invalid elements, or with `keep_going` too many of them."""
    invalid = rows.left_out
    kinds = (rows.endpoints, rows.contacts, rows.downtimes, *rows.groups.values())
    total = sum(len(of_kind or ()) for of_kind in kinds) + len(invalid)
    limit = max(MAX_LEFT_OUT, total * MAX_LEFT_OUT_PERCENT / 100)
    if not invalid or (rules.keep_going and len(invalid) <= limit):
        return
    more = len(invalid) - MAX_LISTED
    advice = "fix the export, or leave them out with keep_going"
    if rules.keep_going:
        limits = f"at most {MAX_LEFT_OUT}, or {MAX_LEFT_OUT_PERCENT} %"
        advice = f"{plural(len(invalid), 'element')} of {total} are too many ({limits})"
    raise BadInput(
        *map(str, invalid[:MAX_LISTED]),
        *([f"… and {more} more"] if more > 0 else []),
        f"nothing was changed: {advice}",
    )


def _best_endpoints(rows: Iterable[Row]) -> list[Row]:
    """One row per site, host, flavour and VO: preferably one in production and monitored."""

    def rank(row: Row) -> tuple[object, ...]:
        production, monitored = (row.get(key, "Y") for key in ("production", "monitored"))
        return production == monitored == "Y", production, monitored, row.get("serviceURI", "")

    best: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = key_of(row, ("siteName", "hostName", "serviceFlavour", "voName"))
        best[key] = max(best.get(key, row), row, key=rank)
    return list(best.values())


def _one_version(rows: Iterable[Row]) -> list[Row]:
    """One row per downtime, site, host and flavour."""
    downtimes: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = key_of(row, DOWNTIME.natural_key)
        if downtimes.setdefault(key, row) != row:
            raise BadInput(
                f"downtime {row.get('downtimeId', '')}: the export has two versions, perhaps"
                " because it changed while its pages were fetched; fetch them again (nothing was"
                " changed)"
            )
    return list(downtimes.values())
