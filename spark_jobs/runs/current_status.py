"""The newest status of everything, and which expected instances are silent. Without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import date
from typing import Any

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.program import command
from sam_pipeline.schema.program.wording import did_you_mean_or_list, duration, one_line
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import Membership, memberships
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.file import recorded_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, moment
from sam_pipeline.spark_jobs.runs.published import second_of

# Where results are believed until the next one, silence is what a report no longer looks back to.
SILENT_AFTER_S = 2 * DAY_S

_Instance = tuple[str, str, str, str]
"""site, flavour, host, metric"""

# What is worst comes first.
HARM = ("CRITICAL", "UNKNOWN", "WARNING", "OK")
_MAX_SUMMARY = 80

_COLUMNS = "site, service_flavour, host_name, metric_name, vo, status, since, measured_at"
# By the hosts: else the database would build the status of everything to find a site's.
_OF_HOSTS = f"SELECT {_COLUMNS}, summary FROM current_status WHERE host_name IN :hosts"
_OF_ALL = f"SELECT {_COLUMNS}, '' FROM current_status"
_NEWEST_PROFILES = (
    "SELECT r.report, r.profile FROM report_run AS r"
    " JOIN (SELECT report, max(day) AS day FROM report_run WHERE state = 'published'"
    " GROUP BY report) AS n ON n.report = r.report AND n.day = r.day"
    " WHERE r.state = 'published' ORDER BY r.report"
)


@dataclass(frozen=True)
class Status:
    """The newest status of a metric of an endpoint, as one VO sees it; no site: in no topology."""

    site: str
    service_flavour: str
    host_name: str
    metric_name: str
    vo: str
    status: str
    since: int
    measured: int
    summary: str


@dataclass(frozen=True)
class Silent:
    """An expected instance without a status, or with one too old to be believed.

    `reports` are those that expect it, `last` is its newest status.
    """

    site: str
    service_flavour: str
    host_name: str
    metric_name: str
    reports: Sequence[str]
    last: Status | None


@dataclass(frozen=True)
class SiteNow:
    """One site at the moment `at`; the worst statuses come first."""

    site: str
    at: int
    statuses: Sequence[Status]
    silent: Sequence[Silent]
    counts: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", Counter(each.status for each in self.statuses))


def published_profiles(connection: Connection) -> list[Profile]:
    """The profile of each report's newest published day."""
    found = connection.execute(text(_NEWEST_PROFILES))
    return [recorded_profile(row[1]) for row in found]


def of_report(profiles: Sequence[Profile], name: str | None) -> Sequence[Profile]:
    """All profiles, or the one of a report.

    Raises:
        ReportUsage: none has that name.
    """
    chosen = [each for each in profiles if name in (None, each.name)]
    if name is not None and not chosen:
        near = did_you_mean_or_list(name, [each.name for each in profiles])
        raise ReportUsage(f"no report {name}: {near}")
    return chosen


def read_site(connection: Connection, site: str, profiles: Sequence[Profile], now: int) -> SiteNow:
    """A site's statuses and silences.

    Raises:
        ReportUsage: the topology has never heard of it.
    """
    topology = memberships(connection, _today(now), site)
    if not topology:
        _require_site(connection, site)
    hosts = sorted({each.host_name for each in topology})
    statement = text(_OF_HOSTS).bindparams(bindparam("hosts", expanding=True))
    found = connection.execute(statement, {"hosts": hosts}) if hosts else ()
    statuses = [each for each in map(_status, found) if each.site == site]
    return _site_now(site, now, statuses, topology, profiles)


def read_sites(connection: Connection, profiles: Sequence[Profile], now: int) -> list[SiteNow]:
    """All sites, without their summaries; those with the most harm come first."""
    by_site: dict[str, list[Status]] = {}
    for each in map(_status, connection.execute(text(_OF_ALL))):
        by_site.setdefault(each.site, []).append(each)
    topology: dict[str, list[Membership]] = {}
    for membership in memberships(connection, _today(now)):
        topology.setdefault(membership.site, []).append(membership)
    sites = [
        _site_now(site, now, by_site.get(site, []), topology.get(site, []), profiles)
        for site in sorted({*by_site, *topology})
    ]
    return sorted(sites, key=_by_harm)


def site_text(now: SiteNow, profiles: Sequence[Profile]) -> str:
    """The site as a table, then the silent ones."""
    return "\n".join(_site_lines(now, profiles))


def sites_text(sites: Sequence[SiteNow], profiles: Sequence[Profile]) -> str:
    """A line for each site."""
    rows = [
        [each.site or "(no site)", *(each.counts.get(name, 0) for name in HARM), len(each.silent)]
        for each in sites
    ]
    table = command.text_table(["site", *HARM, "silent"], rows)
    return table if profiles else f"{table}\n\n{_NO_PROFILE}"


def site_json(now: SiteNow) -> dict[str, Any]:
    """Everything of a site."""
    return {
        **summary_json(now),
        "statuses": [_status_json(each) for each in now.statuses],
        "silent_instances": [
            {
                "service_flavour": each.service_flavour,
                "host_name": each.host_name,
                "metric_name": each.metric_name,
                "reports": list(each.reports),
                "measured_at": None if each.last is None else moment(each.last.measured),
            }
            for each in now.silent
        ],
    }


def summary_json(now: SiteNow) -> dict[str, Any]:
    """How many statuses of each kind a site has."""
    return {
        "site": now.site,
        "now": moment(now.at),
        **{name.lower(): now.counts.get(name, 0) for name in HARM},
        "silent": len(now.silent),
    }


_NO_PROFILE = (
    "which instances are expected is not known: no profile in [report] of sam.toml, and nothing"
    " is published"
)


def _today(now: int) -> Period:
    day = moment(now).date()
    return Period(day, day)


def _require_site(connection: Connection, site: str) -> None:
    known = connection.scalars(text("SELECT DISTINCT site FROM report_topology")).all()
    if site not in known:
        raise ReportUsage(f"no site {site}: {did_you_mean_or_list(site, known)}")


def _status(row: Any) -> Status:
    site, flavour, host, metric, vo, status, since, measured, summary = row
    times = second_of(since), second_of(measured)
    return Status(site, flavour, host, metric, vo, status, *times, summary or "")


def _site_now(
    site: str,
    now: int,
    statuses: Sequence[Status],
    topology: Sequence[Membership],
    profiles: Sequence[Profile],
) -> SiteNow:
    ordered = sorted(statuses, key=lambda each: (HARM.index(each.status), astuple(each)[1:5]))
    return SiteNow(site, now, ordered, list(_silent(statuses, topology, profiles, now)))


def _silent(
    statuses: Iterable[Status],
    topology: Sequence[Membership],
    profiles: Sequence[Profile],
    now: int,
) -> Iterator[Silent]:
    by_names: dict[_Instance, list[Status]] = {}
    for each in statuses:
        names = (each.site, each.service_flavour, each.host_name, each.metric_name)
        by_names.setdefault(names, []).append(each)
    found: dict[_Instance, tuple[list[str], Status | None]] = {}
    for profile in profiles:
        for names in _expected(topology, profile, moment(now).date(), now):
            last = _newest(by_names.get(names, ()), profile)
            believed = profile.validity(names[3]) or SILENT_AFTER_S
            if last is None or last.measured + believed <= now:
                reports, seen = found.get(names, ([], None))
                found[names] = ([*reports, profile.name], seen or last)
    for names, (reports, last) in sorted(found.items(), key=lambda item: item[0]):
        yield Silent(*names, reports=reports, last=last)


def _expected(
    topology: Sequence[Membership], profile: Profile, day: date, now: int
) -> Iterator[_Instance]:
    for each in expect(day, topology, (), (), profile, now).endpoints:
        for metric in profile.metrics_of(each.service_flavour):
            yield each.site, each.service_flavour, each.host_name, metric


def _newest(statuses: Iterable[Status], profile: Profile) -> Status | None:
    """Of those that count in the profile (availability rule 2)."""
    own = [each for each in statuses if profile.vo in (None, each.vo)]
    return max(own, key=lambda each: each.measured, default=None)


def _by_harm(now: SiteNow) -> tuple[object, ...]:
    bad = [-now.counts.get(name, 0) for name in HARM[:-1]]
    return (bad[0], -len(now.silent), *bad[1:], now.site)


def _site_lines(now: SiteNow, profiles: Sequence[Profile]) -> Iterator[str]:
    counts = [f"{now.counts[name]} {name}" for name in HARM if now.counts.get(name)]
    silent = [f"{len(now.silent)} silent"] if now.silent else []
    yield f"{now.site}, now: {', '.join([*counts, *silent]) or 'nothing was ever measured'}"
    if now.statuses:
        yield ""
        yield command.text_table(
            ["status", "for", "measured", "flavour", "host", "metric", "vo", "summary"],
            [_cells(each, now.at) for each in now.statuses],
        )
    if now.silent:
        yield ""
        yield "silent: expected, and without a result that is believed"
        yield from (f"  {_silent_words(each, now.at)}" for each in now.silent)
    if not profiles:
        yield ""
        yield _NO_PROFILE


def _cells(status: Status, at: int) -> list[object]:
    return [
        status.status,
        duration(max(0, at - status.since)),
        f"{duration(max(0, at - status.measured))} ago",
        status.service_flavour,
        status.host_name,
        status.metric_name,
        status.vo,
        one_line(status.summary, _MAX_SUMMARY),
    ]


def _silent_words(silent: Silent, at: int) -> str:
    names = f"{silent.service_flavour} {silent.host_name} {silent.metric_name}"
    expected = f"(expected by {', '.join(silent.reports)})"
    if silent.last is None:
        return f"{names}: no result at all {expected}"
    age = duration(max(0, at - silent.last.measured))
    return f"{names}: last {silent.last.status} {age} ago {expected}"


def _status_json(status: Status) -> dict[str, Any]:
    return {
        "service_flavour": status.service_flavour,
        "host_name": status.host_name,
        "metric_name": status.metric_name,
        "vo": status.vo,
        "status": status.status,
        "since": moment(status.since),
        "measured_at": moment(status.measured),
        "summary": status.summary,
    }
