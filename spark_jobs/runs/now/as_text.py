"""The sites of a report now, for `sam-report now --report`: as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sam_pipeline.schema.identity.identity import known_identity
from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.program.wording import duration, one_line, plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion, announcement_json
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, METRIC, NAMES
from sam_pipeline.spark_jobs.rules.statuses import OK
from sam_pipeline.spark_jobs.runs.now.folding import SEVERITY, SiteFolded, ThingNow

_MAX_SUMMARY = 80


def folded_sites_lines(
    sites: Sequence[SiteFolded], report: str, at: datetime | None = None
) -> list[str]:
    """The number of sites by status, then a table with a row for each site.

    Args:
        at: the time of the statuses; None if it is now.
    """
    counts = Counter(site.thing.status for site in sites)
    number = ", ".join(f"{counts[status]} {status}" for status in SEVERITY if counts[status])
    rows = []
    for site in sites:
        in_downtime = ""
        if site.downtime_until is not None:
            until = format_time(moment(site.downtime_until))
            in_downtime = (
                f"{site.in_downtime} of {plural(site.endpoints, 'endpoint')}, until {until}"
            )
        rows.append([site.site, site.thing.status, in_downtime, ", ".join(_because(site))])
    head = f"{report}, {_when(at)}: {number or 'no site is expected on that day'}"
    table = text_table(["site", "status", "in downtime", "because"], rows) if rows else []
    return [head, *(["", *table] if rows else [])]


def folded_site_lines(site: SiteFolded, at: datetime | None = None) -> list[str]:
    """A site's functions, services, endpoints and metrics, then its downtimes and exclusions.

    Metrics of an endpoint that is OK are left out.
    """
    lines = [f"{site.site}, {site.profile.name}, {_when(at)}: {site.thing.status}", ""]
    shown = [
        (depth, thing, decides)
        for depth, thing, decides in _tree(site.thing)
        if thing.level != METRIC or thing.code != OK
    ]
    known = any(thing.last and known_identity(thing.last.publisher) for _, thing, _ in shown)
    rows = []
    for depth, thing, decides in shown:
        last = thing.last
        rows.append(
            [
                f"{'  ' * depth}{thing.names[-1]}",
                thing.status,
                "yes" if decides else "",
                "" if thing.since is None else duration(max(0, site.at - thing.since)),
                "" if last is None else f"{duration(max(0, site.at - last.measured))} ago",
                "" if last is None else one_line(last.summary, _MAX_SUMMARY),
                *["" if last is None else known_identity(last.publisher)] * known,
            ]
        )
    columns = ["what", "status", "decides", "for", "measured", "summary"]
    lines += text_table([*columns, *["publisher"] * known], rows)
    if site.downtimes or site.exclusions:
        lines.append("")
    for downtime in site.downtimes:
        kind = f"{downtime.classification}/{downtime.severity}"
        counts = "" if site.counts(downtime) else " (does not count)"
        lines.append(
            f"downtime {downtime.downtime_id or 'without id'}, {kind}{counts},"
            f" {_where_and_until(downtime)}: {one_line(downtime.description)}"
        )
    for exclusion in site.exclusions:
        metric = f" {exclusion.metric_name}" if exclusion.metric_name else ""
        lines.append(
            f"exclusion {exclusion.exclusion_id} ({exclusion.kind}{metric}),"
            f" {_where_and_until(exclusion)}: {one_line(exclusion.reason)}"
        )
    return lines


def folded_site_json(site: SiteFolded) -> dict[str, Any]:
    """A site with all things it is folded from, its downtimes and its exclusions."""
    things = []
    for _, thing, decides in _tree(site.thing):
        document = {
            "level": thing.level,
            **dict(zip(NAMES[thing.level], thing.names, strict=True)),
            "status": thing.status,
            "decides": decides,
        }
        if thing.level == METRIC:
            last = thing.last
            document["since"] = None if thing.since is None else moment(thing.since)
            document["measured_at"] = None if last is None else moment(last.measured)
            document["last_status"] = None if last is None else last.status
            document["summary"] = "" if last is None else last.summary
            document["publisher"] = "" if last is None else last.publisher
        things.append(document)
    return {
        **folded_summary_json(site),
        "things": things,
        "downtimes": list(map(announcement_json, site.downtimes)),
        "exclusions": list(map(announcement_json, site.exclusions)),
    }


def folded_summary_json(site: SiteFolded) -> dict[str, Any]:
    """A site's status, its endpoints in downtime, the functions that decide and their causes."""
    until, causes = site.downtime_until, list(_causes(site))
    return {
        "site": site.site,
        "report": site.profile.name,
        "now": moment(site.at),
        "status": site.thing.status,
        "because": [function.names[-1] for function, _, _ in causes],
        "causes": [
            {
                "function": function.names[-1],
                "host_name": host or None,
                "metric_name": thing.names[-1] if thing.level == METRIC else None,
                "since": None if thing.since is None else moment(thing.since),
            }
            for function, thing, host in causes
        ],
        "endpoints": site.endpoints,
        "endpoints_in_downtime": site.in_downtime,
        "downtime_until": None if until is None else moment(until),
    }


def _because(site: SiteFolded) -> Iterator[str]:
    """`storage (se1 put for 3 h)`: the functions that decide, and the cause of each."""
    if site.thing.code != OK and site.thing.covered:
        yield "the site is excluded"
    for function, thing, host in _causes(site):
        since = "" if thing.since is None else f" for {duration(max(0, site.at - thing.since))}"
        name = f" {thing.names[-1]}" if thing.level == METRIC else ""
        yield f"{function.names[-1]} ({host}{name}{since})"


def _causes(site: SiteFolded) -> Iterator[tuple[ThingNow, ThingNow, str]]:
    """The functions that decide, the first of the things below that each follows from, its host."""
    for function in () if site.thing.code == OK else site.thing.deciding:
        thing, host = function, ""
        while thing.deciding and thing.level != METRIC:
            thing = thing.deciding[0]
            host = thing.names[2] if thing.level == ENDPOINT else host
        yield function, thing, host


def _when(at: datetime | None) -> str:
    return "now" if at is None else f"at {format_time(at)}"


def _tree(
    thing: ThingNow, depth: int = 0, decides: bool = True
) -> Iterator[tuple[int, ThingNow, bool]]:
    """A thing and all below, from the top: depth, thing, whether the site's status follows."""
    yield depth, thing, decides
    deciding = {id(child) for child in thing.deciding}
    for child in thing.children:
        yield from _tree(child, depth + 1, decides and id(child) in deciding)


def _where_and_until(announcement: Downtime | Exclusion) -> str:
    names = (announcement.site, announcement.service_flavour, announcement.host_name)
    where = " ".join(filter(None, names)) or "everywhere"
    return f"{where}, until {format_time(moment(announcement.end))}"
