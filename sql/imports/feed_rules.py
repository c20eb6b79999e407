"""What is taken from a feed: which sites, under which flavours, and how much may be left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.classes import DOWNTIME, SITE_GROUP
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import FeedRows, SiteFacts
from sam_pipeline.sql.imports.flavours import flavour_names
from sam_pipeline.sql.topology.view_rows import Row, key_of

MAX_LISTED = 20
"""How many odd elements an error lists."""
UNLISTED = "not in the list of sites"


@dataclass(frozen=True)
class SiteFilter:
    """The conditions that a site must meet, without regard to case; an empty one is always met.

    `sites` are patterns such as `UKI-*`.
    """

    sites: Collection[str] = ()
    certification: Collection[str] = ()
    infrastructure: Collection[str] = ()
    scope: Collection[str] = ()
    countries: Collection[str] = ()

    @property
    def facts(self) -> Sequence[str]:
        """The conditions on what a feed says about its sites."""
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


@dataclass(frozen=True)
class FeedRules:
    """What is taken from one feed.

    With `keep_going`, odd elements are left out, unless they are more than both limits allow.
    """

    flavours: Mapping[str, str] = field(default_factory=dict)
    filter: SiteFilter = SiteFilter()
    keep_going: bool = False
    max_left_out: int = 20
    max_left_out_percent: float = 5.0


def taken(rows: FeedRows, rules: FeedRules, answered: Collection[str] = ()) -> FeedRows:
    """The rows to compare with the stored ones: of the right sites, with our flavours, one per key.

    `answered` are the conditions of the filter that the server has checked.

    Raises:
        BadInput: the feed has too many odd elements or two versions of a downtime, or does not say
            what the filter asks for; nothing was changed.
    """
    _refuse_left_out(rows, rules)
    _refuse_unfilterable(rows, rules.filter, answered)
    names = flavour_names(rules.flavours)
    listed = rows.sites or {}
    filtered: dict[str, set[str]] = defaultdict(set)

    def accepted(rows_of_a_kind: Iterable[Row]) -> Iterable[Row]:
        for row in rows_of_a_kind:
            site, flavour = row.get("siteName"), row.get("serviceFlavour")
            if site and (unmet := rules.filter.unmet(site, listed.get(site), answered)):
                filtered[unmet].add(site)
            elif flavour:
                yield {**row, "serviceFlavour": names.get(flavour.lower(), flavour)}
            else:
                yield row

    endpoints, contacts, downtimes = rows.endpoints, rows.contacts, rows.downtimes
    group_key = [key for key in SITE_GROUP.natural_key if key != "validFrom"]
    return replace(
        rows,
        endpoints=None if endpoints is None else _best_endpoints(accepted(endpoints)),
        groups={
            group_type: list({key_of(row, group_key): row for row in accepted(groups)}.values())
            for group_type, groups in rows.groups.items()
        },
        contacts=(
            None
            if contacts is None
            else list({row["siteName"]: row for row in accepted(contacts)}.values())
        ),
        downtimes=None if downtimes is None else _one_version(accepted(downtimes)),
        filtered=filtered,
    )


def _refuse_left_out(rows: FeedRows, rules: FeedRules) -> None:
    """Raise BadInput if there are odd elements, or with `keep_going` too many of them."""
    odd = rows.left_out
    groups = sum(map(len, rows.groups.values()))
    good = groups + sum(len(r or ()) for r in (rows.endpoints, rows.contacts, rows.downtimes))
    limit = max(rules.max_left_out, (good + len(odd)) * rules.max_left_out_percent / 100)
    if not odd or (rules.keep_going and len(odd) <= limit):
        return
    more = len(odd) - MAX_LISTED
    advice = "fix the export, or leave them out with keep_going"
    if rules.keep_going:
        limits = f"max_left_out {rules.max_left_out}, {rules.max_left_out_percent:g} %"
        advice = f"{plural(len(odd), 'element')} of {good + len(odd)} are too many ({limits})"
    raise BadInput(
        *map(str, odd[:MAX_LISTED]),
        *([f"… and {more} more"] if more > 0 else []),
        f"nothing was changed: {advice}",
    )


def _refuse_unfilterable(rows: FeedRows, wanted: SiteFilter, answered: Collection[str]) -> None:
    """Raise BadInput if a condition could only exclude every site, for lack of facts."""
    if wanted.facts and rows.sites is None:
        raise BadInput(
            f"the filter ({', '.join(wanted.facts)}) needs the list of sites of the feed: import"
            " its groups as well; nothing was changed"
        )
    for name in wanted.facts:
        listed = (rows.sites or {}).values()
        if listed and name not in answered and all(getattr(f, name) is None for f in listed):
            raise BadInput(
                f"the filter {name} can't be applied: the list of sites does not say it;"
                " nothing was changed"
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
