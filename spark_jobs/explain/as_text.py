"""What made a site's figures on a day, in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection

from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.explain.causes import Cause, causes
from sam_pipeline.spark_jobs.explain.evidence import Evidence
from sam_pipeline.spark_jobs.explain.explanation import (
    Reason,
    SiteDay,
    Thing,
    arithmetic,
    explain_site,
    failures,
)
from sam_pipeline.spark_jobs.explain.phrases import (
    cause_words,
    downtime_words,
    exclusion_words,
    ignored_words,
    missing_words,
    result_words,
    span_words,
    time_words,
)
from sam_pipeline.spark_jobs.explain.results import read_results
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, SERVICE, SITE
from sam_pipeline.spark_jobs.runs.published import (
    Names,
    Segment,
    published_reports,
    published_runs,
    timeline,
)

_TITLES = {FUNCTION: "functions", SERVICE: "services", ENDPOINT: "endpoints"}
# Of many that say the same, the first and the last tell when.
_MAX_RESULTS = 4
_MAX_NAMES = 6


@dataclass(frozen=True)
class Question:
    """Which things to explain; None: all of them."""

    site: str
    service_flavour: str | None = None
    host_name: str | None = None

    def asks_for(self, names: Names) -> bool:
        """Whether it is about this endpoint."""
        _, flavour, host = names
        return self.service_flavour in (None, flavour) and self.host_name in (None, host)

    def things(self, site_day: SiteDay) -> list[Thing]:
        """The endpoints that are asked for, and whatever they are part of."""
        endpoints = [t for t in site_day.of_level(ENDPOINT) if self.asks_for(t.names)]
        flavours = {thing.names[1] for thing in endpoints}
        functions = {name for each in flavours for name in site_day.profile.functions_of(each)}
        return [
            *site_day.of_level(SITE),
            *(each for each in site_day.of_level(FUNCTION) if each.names[1] in functions),
            *(each for each in site_day.of_level(SERVICE) if each.names[1] in flavours),
            *endpoints,
        ]


def read_site_days(
    connection: Connection, report: str | None, question: Question, day: date
) -> list[SiteDay]:
    """The site's day in each report that has what is asked for.

    Raises:
        ReportUsage: none has; the words say what there is.
    """
    period = Period(day, day)
    reports = published_reports(connection, report, period)
    found = [_site_day(connection, name, question, period) for name in reports]
    days = [each for each in found if each.things]
    if reports and not days:
        sites = {
            segment.names[0]
            for name in reports
            for segment in timeline(connection, name, period, level=SITE)
        }
        raise ReportUsage(
            f"no site {question.site} on {day}: {did_you_mean_or_list(question.site, sites)}"
        )
    asked = [
        each
        for each in days
        if any(question.asks_for(thing.names) for thing in each.of_level(ENDPOINT))
    ]
    if days and not asked:
        raise ReportUsage(_no_endpoint(question, days[0]))
    return asked


def explain_command(
    report: str,
    site: str,
    day: date,
    service_flavour: str | None = None,
    host_name: str | None = None,
) -> str:
    """The command line that explains a site's day, as one types it into a shell."""
    return " ".join(command_words(report, site, day, service_flavour, host_name))


def command_words(
    report: str, site: str, day: date, service_flavour: str | None, host_name: str | None
) -> list[str]:
    """The same, word by word: an option and its value are one."""
    options = {
        "--report": report,
        "--day": day.isoformat(),
        "--site": site,
        "--flavour": service_flavour,
        "--host": host_name,
    }
    return [
        "sam-report explain",
        *(
            # A value that begins with - would be an option.
            f"{option}{'=' if value.startswith('-') else ' '}{shlex.quote(value)}"
            for option, value in options.items()
            if value is not None
        ),
    ]


def as_text(site_day: SiteDay, question: Question) -> str:
    return "\n".join(_lines(site_day, question))


def site_causes(site_day: SiteDay, question: Question) -> list[Cause]:
    """The failures that are asked for, by cause."""
    return causes(failures(question.things(site_day)))


def causes_text(site_day: SiteDay, question: Question) -> str:
    """A line for each cause, the worst first."""
    found = site_causes(site_day, question)
    total = sum(each.count for each in found)
    heading = f"{_about(site_day)}: {_number(total, 'failure')}, {_number(len(found), 'cause')}"
    return "\n".join([heading, *(f"  {cause_words(each)}" for each in found)])


def _site_day(connection: Connection, report: str, question: Question, period: Period) -> SiteDay:
    [run] = published_runs(connection, report, period)
    segments = list(timeline(connection, report, period, site=question.site))
    hosts = {
        each.names[2]
        for each in segments
        if each.level == ENDPOINT and question.asks_for(each.names)
    }
    found = read_results(connection, run, hosts)
    return explain_site(report, question.site, run, segments, found, run.downtimes, run.exclusions)


def _no_endpoint(question: Question, site_day: SiteDay) -> str:
    endpoints = [thing.names[1:] for thing in site_day.of_level(ENDPOINT)]
    wanted = " ".join(filter(None, (question.service_flavour, question.host_name)))
    if question.service_flavour is not None and question.host_name is None:
        near = did_you_mean_or_list(question.service_flavour, {flavour for flavour, _ in endpoints})
    elif question.host_name is not None and question.service_flavour is None:
        near = did_you_mean_or_list(question.host_name, {host for _, host in endpoints})
    else:
        near = did_you_mean_or_list(wanted, {" ".join(each) for each in endpoints})
    return f"no endpoint {wanted} at {site_day.site} on {site_day.day}: {near}"


def _lines(site_day: SiteDay, question: Question) -> Iterator[str]:
    yield _about(site_day)
    for thing in site_day.of_level(SITE):
        yield from (f"  {line}" for line in arithmetic(thing.seconds))
        yield ""
        yield f"  status ({thing.operation} of its functions)"
        for segment in thing.segments:
            yield f"  {span_words(segment.start, segment.end)} {segment.status}"
            for reason in thing.reasons:
                if reason.start == segment.start:
                    yield from (f"    {line}" for line in _because(reason, site_day))
    asked = question.things(site_day)
    for level, title in _TITLES.items():
        things = [each for each in asked if each.level == level]
        if things:
            yield ""
            yield title
        for thing in things:
            yield from (f"  {line}" for line in _thing(thing, site_day))
    yield from _titled("downtimes", _downtime_lines(site_day))
    yield from _titled("exclusions", [exclusion_words(each) for each in site_day.exclusions])
    yield from _titled(
        "results that don't count, as their monitoring host is excluded",
        list(_some([ignored_words(each) for each in site_day.ignored])),
    )


def _titled(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield title
        yield from (f"  {line}" for line in lines)


def _downtime_lines(site_day: SiteDay) -> list[str]:
    return [
        f"{downtime_words(each)} ({'counts' if site_day.counts(each) else 'does not count'})"
        for each in site_day.downtimes
    ]


def _thing(thing: Thing, site_day: SiteDay) -> Iterator[str]:
    yield f"{' '.join(thing.names[1:])} ({thing.operation} of {_children_title(thing.level)})"
    yield from (f"  {line}" for line in arithmetic(thing.seconds))
    for reason in thing.reasons:
        yield f"  {span_words(reason.start, reason.end)} {reason.status}"
        because = _endpoint_because(reason) if thing.level == ENDPOINT else None
        yield from (f"    {line}" for line in because or _because(reason, site_day))


def _children_title(level: str) -> str:
    return {FUNCTION: "its services", SERVICE: "its endpoints", ENDPOINT: "its metrics"}[level]


def _because(reason: Reason, site_day: SiteDay) -> Iterator[str]:
    """What made a segment of a site, function or service."""
    yield from (exclusion_words(each) for each in reason.exclusions)
    for segment in reason.deciding:
        start, end = max(segment.start, reason.start), min(segment.end, reason.end)
        whole = (start, end) == (reason.start, reason.end)
        time = "" if whole else f" {span_words(start, end)}"
        below = _below(segment, start, end, site_day)
        told = f": {below}" if below else ""
        yield f"because {segment.level} {_name(segment)} is {segment.status}{time}{told}"


def way_down(reason: Reason, site_day: SiteDay) -> str:
    """What a segment follows from, down to endpoints and metrics, on one line."""
    told = [exclusion_words(each) for each in reason.exclusions]
    told += _deciding(reason.deciding, reason.start, reason.end, site_day)
    return ", ".join(told)


def _deciding(
    segments: Iterable[Segment], start: int, end: int, site_day: SiteDay
) -> Iterator[str]:
    """Each thing once, with what is below it."""
    found = {
        (each.level, each.names): each for each in segments if each.start < end and each.end > start
    }
    for each in list(found.values())[:_MAX_NAMES]:
        below = _below(each, max(start, each.start), min(end, each.end), site_day)
        yield f"{each.level} {_name(each)}{f': {below}' if below else ''}"
    if len(found) > _MAX_NAMES:
        yield f"{len(found) - _MAX_NAMES} more"


def _below(segment: Segment, start: int, end: int, site_day: SiteDay) -> str:
    """What made a segment of a child in [start, end)."""
    thing = site_day.thing_of.get((segment.level, segment.names))
    reasons = [
        each for each in (thing.reasons if thing else ()) if each.start < end and each.end > start
    ]
    downtime = ["in downtime"] if any(each.downtimes for each in reasons) else []
    deciding = [segment for each in reasons for segment in each.deciding]
    return ", ".join([*downtime, *_deciding(deciding, start, end, site_day)])


def _name(segment: Segment) -> str:
    return segment.names[-1]


def _endpoint_because(reason: Reason) -> Iterator[str]:
    yield from (downtime_words(each) for each in reason.downtimes)
    for each in reason.evidence:
        besides = "" if each.decides else "besides, "
        yield f"{besides}{each.metric_name} {each.status} {span_words(each.start, each.end)}"
        yield from (f"  {line}" for line in _evidence(each))


def _evidence(evidence: Evidence) -> Iterator[str]:
    if evidence.status == "MISSING":
        yield missing_words(evidence)
    yield from (exclusion_words(each) for each in evidence.exclusions)
    yield from _some([result_words(each) for each in evidence.results])
    yield from _some([ignored_words(each) for each in evidence.ignored])


def _some(lines: Sequence[str]) -> Iterator[str]:
    """The first lines and the last."""
    left_out = len(lines) - _MAX_RESULTS
    if left_out <= 0:
        yield from lines
    else:
        yield from lines[: _MAX_RESULTS - 1]
        yield f"… {left_out} more"
        yield lines[-1]


def _about(site_day: SiteDay) -> str:
    until = f", until {time_words(site_day.until)}" if site_day.until is not None else ""
    return f"{site_day.report}, {site_day.day}{until}: {site_day.site}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
