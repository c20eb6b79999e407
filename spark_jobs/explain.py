"""`sam-report explain`: a site's day in words, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import Connection

from schema.times import format_time
from spark_jobs.database_inputs import Downtime, Result, downtimes, results
from spark_jobs.days import Period, moment
from spark_jobs.errors import ReportUsage
from spark_jobs.explanation import FINE, Reason, SiteDay, Thing, arithmetic, explain_site
from spark_jobs.figures import rounded
from spark_jobs.levels import ENDPOINT, FUNCTION, NAMES, SERVICE, SITE
from spark_jobs.stored import published_reports, published_runs, timeline

_TITLES = {FUNCTION: "functions", SERVICE: "services", ENDPOINT: "endpoints"}
# Of many results that say the same, the first and the last tell when.
_MAX_RESULTS = 4


@dataclass(frozen=True)
class Question:
    """Which things to explain; None: all of them."""

    site: str
    service_flavour: str | None = None
    host_name: str | None = None

    def asks_for(self, thing: Thing) -> bool:
        named = dict(zip(NAMES[thing.level], thing.names, strict=True))
        flavour, host = named.get("service_flavour"), named.get("host_name")
        return (
            self.service_flavour in (None, flavour)
            or (thing.level in (SITE, FUNCTION) and not self.host_name)
        ) and (self.host_name in (None, host) or thing.level in (SITE, FUNCTION, SERVICE))


def read_site_days(
    connection: Connection, report: str | None, site: str, day: date
) -> list[SiteDay]:
    """The site's day in each report that has it.

    Raises:
        ReportUsage: none has; the words say which sites there are.
    """
    period = Period(day, day)
    reports = published_reports(connection, report, period)
    found = [_site_day(connection, name, site, period) for name in reports]
    days = [each for each in found if each.things]
    if reports and not days:
        raise ReportUsage(
            f"no site {site} on {day}: there are {_sites(connection, reports[0], period)}"
        )
    return days


def as_text(site_day: SiteDay, question: Question) -> str:
    return "\n".join(_lines(site_day, question))


def as_json(site_day: SiteDay, question: Question) -> dict[str, Any]:
    asked = [thing for thing in site_day.things if question.asks_for(thing)]
    return {
        "report": site_day.report,
        "site": site_day.site,
        "day": site_day.day,
        "until": None if site_day.until is None else moment(site_day.until),
        "things": [_thing_json(thing) for thing in asked],
        "downtimes": [_downtime_json(each) for each in site_day.downtimes],
    }


def _site_day(connection: Connection, report: str, site: str, period: Period) -> SiteDay:
    [run] = published_runs(connection, report, period)
    segments = list(timeline(connection, report, period, site=site))
    hosts = {segment.names[2] for segment in segments if segment.level == ENDPOINT}
    found = results(connection, period, run.profile, hosts=hosts)
    return explain_site(report, site, run, segments, found, downtimes(connection, period))


def _sites(connection: Connection, report: str, period: Period) -> str:
    names = {segment.names[0] for segment in timeline(connection, report, period, level=SITE)}
    return ", ".join(sorted(names)) or "none"


def _lines(site_day: SiteDay, question: Question) -> Iterator[str]:
    until = f", until {format_time(moment(site_day.until))}" if site_day.until is not None else ""
    yield f"{site_day.report}, {site_day.day}{until}: {site_day.site}"
    for thing in site_day.of_level(SITE):
        yield from (f"  {line}" for line in arithmetic(thing.seconds))
        yield ""
        yield from _segments(thing)
    for level, title in _TITLES.items():
        asked = [thing for thing in site_day.of_level(level) if question.asks_for(thing)]
        if asked:
            yield ""
            yield title
        for thing in asked:
            yield from _thing(thing)
    others = [each for each in site_day.downtimes if not _used(each, site_day)]
    if others:
        yield ""
        yield "announced, but not of a kind that counts"
        yield from (f"  {_downtime(each)}" for each in others)


def _thing(thing: Thing) -> Iterator[str]:
    figure = rounded(thing.seconds.availability)
    told = "undefined" if figure is None else figure
    yield f"  {' '.join(thing.names[1:])}: availability {told}"
    if thing.level == ENDPOINT:
        for reason in thing.reasons:
            yield f"    {_span(reason.start, reason.end)} {reason.status}"
            yield from (f"      {line}" for line in _because(reason))
    else:
        yield from (f"  {line}" for line in _segments(thing, but=FINE))


def _segments(thing: Thing, but: str | None = None) -> Iterator[str]:
    for segment in thing.segments:
        if segment.status != but:
            yield f"  {_span(segment.start, segment.end)} {segment.status}"


def _because(reason: Reason) -> Iterator[str]:
    yield from (_downtime(each) for each in reason.downtimes)
    for each in reason.evidence:
        yield f"{each.metric_name} {each.status} {_span(each.start, each.end)}"
        if not each.results:
            yield "  no result"
        yield from (f"  {line}" for line in _results(each.results))


def _results(found: Sequence[Result]) -> Iterator[str]:
    left_out = len(found) - _MAX_RESULTS
    shown = [*found[: _MAX_RESULTS - 1], found[-1]] if left_out > 0 else found
    for at, result in enumerate(shown):
        if left_out > 0 and at == _MAX_RESULTS - 1:
            yield f"… {left_out} more"
        text = f" {result.summary}" if result.summary else ""
        when = format_time(moment(result.measured))
        yield f"{when} {result.status}{text} ({result.message_id or 'no message id'})"


def _downtime(downtime: Downtime) -> str:
    of = " ".join(filter(None, (downtime.site, downtime.service_flavour, downtime.host_name)))
    start, end = (format_time(moment(second)) for second in (downtime.start, downtime.end))
    name = f" {downtime.downtime_id}" if downtime.downtime_id else ""
    text = f": {downtime.description}" if downtime.description else ""
    kind = f"{downtime.classification}/{downtime.severity}"
    return f"downtime{name} {kind} of {of}, {start} to {end}{text}"


def _used(downtime: Downtime, site_day: SiteDay) -> bool:
    endpoints = site_day.of_level(ENDPOINT)
    return any(downtime in reason.downtimes for thing in endpoints for reason in thing.reasons)


def _span(start: int, end: int) -> str:
    last = moment(end)
    told = "24:00:00" if end % 86_400 == 0 else f"{last:%H:%M:%S}"
    return f"{moment(start):%H:%M:%S}-{told}"


def _thing_json(thing: Thing) -> dict[str, Any]:
    return {
        "level": thing.level,
        **dict(zip(NAMES[thing.level], thing.names, strict=True)),
        "availability": rounded(thing.seconds.availability),
        "reliability": rounded(thing.seconds.reliability),
        "arithmetic": arithmetic(thing.seconds),
        "segments": [
            {"start": moment(each.start), "end": moment(each.end), "status": each.status}
            for each in thing.segments
        ],
        "reasons": [_reason_json(reason) for reason in thing.reasons],
    }


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        "start": moment(reason.start),
        "end": moment(reason.end),
        "status": reason.status,
        "downtimes": [_downtime_json(each) for each in reason.downtimes],
        "metrics": [
            {
                "metric_name": each.metric_name,
                "start": moment(each.start),
                "end": moment(each.end),
                "status": each.status,
                "results": [_result_json(result) for result in each.results],
            }
            for each in reason.evidence
        ],
    }


def _result_json(result: Result) -> dict[str, Any]:
    return {
        "measured_at": moment(result.measured),
        "status": result.status,
        "summary": result.summary,
        "message_id": result.message_id,
    }


def _downtime_json(downtime: Downtime) -> dict[str, Any]:
    return {
        "downtime_id": downtime.downtime_id,
        "site": downtime.site,
        "service_flavour": downtime.service_flavour,
        "host_name": downtime.host_name,
        "start_time": moment(downtime.start),
        "end_time": moment(downtime.end),
        "classification": downtime.classification,
        "severity": downtime.severity,
        "description": downtime.description,
    }
