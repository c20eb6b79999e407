"""The current status of every metric, and the expected instances that are silent, without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.identity.identity import known_identity
from sam_pipeline.schema.program import command
from sam_pipeline.schema.program.wording import did_you_mean_or_list, duration, one_line
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import Announced, GroupMember, Membership, members
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, moment
from sam_pipeline.spark_jobs.runs.now.folding import read_topology
from sam_pipeline.spark_jobs.runs.published import second_of

# Where results never expire: a report looks back no further.
SILENT_AFTER_S = 2 * DAY_S

_Instance = tuple[str, str, str, str]
"""site, flavour, host, metric"""

# The worst first.
_SEVERITY = ("CRITICAL", "UNKNOWN", "WARNING", "OK")
_MAX_SUMMARY = 80

_COLUMNS = "site, service_flavour, host_name, metric_name, vo, status, since, measured_at"
# Selected by host: by site, the database would compute every status first.
_OF_HOSTS = f"SELECT {_COLUMNS}, summary, publisher FROM current_status WHERE host_name IN :hosts"
_OF_ALL = f"SELECT {_COLUMNS}, '', '' FROM current_status"
_NO_PROFILE = (
    "the expected instances are unknown: no profile in [report] of sam.toml, and nothing is"
    " published"
)


class Status(NamedTuple):
    """The newest status of an endpoint's metric for one VO; `site` is "" outside the topology.

    `publisher` is the identity that sent its newest result.
    """

    site: str
    service_flavour: str
    host_name: str
    metric_name: str
    vo: str
    status: str
    since: int
    measured: int
    summary: str
    publisher: str


@dataclass(frozen=True)
class Silent:
    """An instance that `reports` expect, and whose newest status `last` is missing or expired."""

    site: str
    service_flavour: str
    host_name: str
    metric_name: str
    reports: Sequence[str]
    last: Status | None


@dataclass(frozen=True)
class SiteNow:
    """A site at the time `at` (epoch s), the worst statuses first.

    The last status of a silent instance is among the `statuses`, but not counted as one.
    """

    site: str
    at: int
    statuses: Sequence[Status]
    silent: Sequence[Silent]

    @cached_property
    def counts(self) -> Mapping[str, int]:
        silent = {silent.last for silent in self.silent}
        return Counter(status.status for status in self.statuses if status not in silent)


def of_report(profiles: Sequence[Profile], name: str | None) -> Sequence[Profile]:
    """All profiles, or only that of the report `name`.

    Raises:
        ReportUsage: no profile has that name.
    """
    chosen = [profile for profile in profiles if name in (None, profile.name)]
    if name is not None and not chosen:
        hint = did_you_mean_or_list(name, [profile.name for profile in profiles])
        raise ReportUsage(f"no report {name}: {hint}")
    return chosen


def read_sites(
    connection: Connection, profiles: Sequence[Profile], now: int, site: str | None = None
) -> list[SiteNow]:
    """All sites, the worst first, or only one; only then results have summaries and publishers.

    Raises:
        ReportUsage: the site was never in the topology.
    """
    day = moment(now).date()
    topology = read_topology(connection, Period(day, day), site)
    hosts = sorted({membership.host_name for membership in topology})
    if site is None:
        rows: Iterable[Any] = connection.execute(text(_OF_ALL))
    else:
        statement = text(_OF_HOSTS).bindparams(bindparam("hosts", expanding=True))
        rows = connection.execute(statement, {"hosts": hosts}) if hosts else ()
    statuses: dict[str, list[Status]] = defaultdict(list)
    for row in rows:
        times, texts = map(second_of, row[6:8]), (value or "" for value in row[8:])
        statuses[row[0]].append(Status(*row[:6], *times, *texts))
    here: dict[str, list[Membership]] = defaultdict(list)
    for membership in topology:
        here[membership.site].append(membership)
    of_groups: dict[str, list[GroupMember]] = defaultdict(list)
    for member in members(connection, day):
        of_groups[member.site].append(member)
    sites = [
        _site_now(name, now, statuses[name], announced, profiles)
        for name in ([site] if site is not None else sorted({*statuses, *here}))
        for announced in [Announced(here[name], (), (), of_groups[name])]
    ]

    def worst_first(of: SiteNow) -> tuple[object, ...]:
        critical, *others = (-of.counts.get(name, 0) for name in _SEVERITY[:-1])
        return (critical, -len(of.silent), *others, of.site)

    return sorted(sites, key=worst_first)


def site_lines(now: SiteNow, profiles: Sequence[Profile]) -> list[str]:
    """A site's statuses as a table, then the silent instances."""
    counts = [f"{now.counts[name]} {name}" for name in _SEVERITY if now.counts.get(name)]
    if now.silent:
        counts.append(f"{len(now.silent)} silent")
    lines = [f"{now.site}, now: {', '.join(counts) or 'no results yet'}"]
    if now.statuses:
        columns = ["status", "for", "measured", "flavour", "host", "metric", "vo", "summary"]
        known = any(known_identity(status.publisher) for status in now.statuses)
        rows: list[list[object]] = [
            [
                status.status,
                duration(max(0, now.at - status.since)),
                f"{duration(max(0, now.at - status.measured))} ago",
                status.service_flavour,
                status.host_name,
                status.metric_name,
                status.vo,
                one_line(status.summary, _MAX_SUMMARY),
                *[known_identity(status.publisher)] * known,
            ]
            for status in now.statuses
        ]
        lines += ["", *command.text_table([*columns, *["publisher"] * known], rows)]
    if now.silent:
        lines += ["", "silent: expected, but without a valid result"]
    for silent in now.silent:
        last = "no result yet"
        if silent.last is not None:
            age = duration(max(0, now.at - silent.last.measured))
            last = f"last {silent.last.status} {age} ago"
        lines.append(
            f"  {silent.service_flavour} {silent.host_name} {silent.metric_name}: {last}"
            f" (expected by {', '.join(silent.reports)})"
        )
    if not profiles:
        lines += ["", _NO_PROFILE]
    return lines


def sites_lines(sites: Sequence[SiteNow], profiles: Sequence[Profile]) -> list[str]:
    """A table with a row for each site."""
    rows = [
        [
            site.site or "(no site)",
            *(site.counts.get(name, 0) for name in _SEVERITY),
            len(site.silent),
        ]
        for site in sites
    ]
    table = ["no results, and no expected instances"]
    if rows:
        table = command.text_table(["site", *_SEVERITY, "silent"], rows)
    return table if profiles else [*table, "", _NO_PROFILE]


def site_json(now: SiteNow) -> dict[str, Any]:
    """A site's counts, statuses and silent instances."""
    return {
        **summary_json(now),
        "statuses": [
            {
                **dict(zip(Status._fields[1:6], status[1:6], strict=True)),
                "since": moment(status.since),
                "measured_at": moment(status.measured),
                "summary": status.summary,
                "publisher": status.publisher,
            }
            for status in now.statuses
        ],
        "silent_instances": [
            {
                "service_flavour": silent.service_flavour,
                "host_name": silent.host_name,
                "metric_name": silent.metric_name,
                "reports": list(silent.reports),
                "measured_at": None if silent.last is None else moment(silent.last.measured),
            }
            for silent in now.silent
        ],
    }


def summary_json(now: SiteNow) -> dict[str, Any]:
    """The number of a site's instances in each status, and of those that are silent."""
    return {
        "site": now.site,
        "now": moment(now.at),
        **{name.lower(): now.counts.get(name, 0) for name in _SEVERITY},
        "silent": len(now.silent),
    }


def _site_now(
    site: str,
    now: int,
    statuses: Sequence[Status],
    announced: Announced,
    profiles: Sequence[Profile],
) -> SiteNow:
    statuses_of: dict[tuple[str, ...], list[Status]] = defaultdict(list)
    for status in statuses:
        statuses_of[status[:4]].append(status)
    silent: dict[_Instance, tuple[list[str], Status | None]] = {}
    for profile in profiles:
        for endpoint in expect(moment(now).date(), announced, profile, now).endpoints:
            for metric in profile.metrics_of(endpoint.service_flavour):
                names = (*endpoint, metric)
                # Only results of the profile's VO count (availability rule 2).
                matching = [s for s in statuses_of.get(names, ()) if profile.vo in (None, s.vo)]
                last = max(matching, key=lambda status: status.measured, default=None)
                valid_s = profile.validity(metric) or SILENT_AFTER_S
                if last is None or last.measured + valid_s <= now:
                    reports, known = silent.get(names, ([], None))
                    silent[names] = ([*reports, profile.name], known or last)
    return SiteNow(
        site,
        now,
        sorted(statuses, key=lambda status: (_SEVERITY.index(status.status), status[1:5])),
        [Silent(*names, *silent[names]) for names in sorted(silent)],
    )
