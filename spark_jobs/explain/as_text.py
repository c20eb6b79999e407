"""The explanation of a site's figures on a day as text, and its parts in a sentence each."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from operator import attrgetter

from sam_pipeline.schema.identity.identity import known_identity
from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.program.wording import duration, one_line
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.explain.causes import Cause, causes_by_effect, merged
from sam_pipeline.spark_jobs.explain.explanation import (
    Reason,
    Selection,
    SiteDay,
    Thing,
    arithmetic,
)
from sam_pipeline.spark_jobs.explain.results import (
    NO_RESULT,
    Evidence,
    Ignored,
    JudgedResult,
    Result,
    threshold_text,
)
from sam_pipeline.spark_jobs.explain.timelines import FINE, uncovered
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Downtime, Exclusion
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start, in_ranges, moment
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short
from sam_pipeline.spark_jobs.runs.published import PublishedRun, Segment

_TITLES = {
    FUNCTION: ("functions", "its services"),
    SERVICE: ("services", "its endpoints"),
    ENDPOINT: ("endpoints", "its metrics"),
}
# The first of many similar results and the last one show the time range.
_MAX_RESULTS = 4
# The days listed of a long period.
_MAX_DAYS = 10
_MAX_NAMES = 6
_MAX_SUMMARY = 160
_MAX_TOPIC = 80


def day_lines(site_day: SiteDay, selection: Selection) -> list[str]:
    """The whole day: every segment that was not OK, traced down to results."""
    lines = [_about(site_day)]
    for thing in site_day.of_level(SITE):
        lines += (f"  {line}" for line in arithmetic(thing.seconds))
        lines += ["", f"  status ({thing.operation} of its functions)"]
        for segment in thing.segments:
            lines.append(f"  {span_text(segment.start, segment.end)} {segment.status}")
            for reason in thing.reasons:
                if reason.start == segment.start:
                    lines += (f"    {line}" for line in _because(reason, site_day))
    selected = selection.things(site_day)
    for level, (title, children) in _TITLES.items():
        things = [thing for thing in selected if thing.level == level]
        if things:
            lines += ["", title]
        for thing in things:
            lines.append(f"  {' '.join(thing.names[1:])} ({thing.operation} of {children})")
            lines += (f"    {line}" for line in arithmetic(thing.seconds))
            lines += (f"    {line}" for line in _reasons(thing, site_day))
    sections = {
        "failures": map(str, causes_by_effect(selection.failures(site_day))),
        "downtimes": downtime_lines(site_day),
        "exclusions": map(exclusion_text, site_day.exclusions),
        "results that don't count: their monitoring host is excluded": _shortened(
            list(map(ignored_text, site_day.ignored))
        ),
    }
    for title, section in sections.items():
        if indented := [f"  {line}" for line in section]:
            lines += ["", title, *indented]
    return lines


def cause_lines(site_day: SiteDay, selection: Selection) -> list[str]:
    """A line for each cause, the worst first: those that cost availability, then the others."""
    lines = [_about(site_day)]
    for cause_list in causes_by_effect(selection.failures(site_day)):
        lines.append(str(cause_list))
        lines += (f"  {cause_text(cause, site_day.run.day)}" for cause in cause_list.causes)
    return lines


def period_lines(site_days: Sequence[SiteDay], selection: Selection) -> list[str]:
    """Several days of a site in one report: the worst of them; causes and what was announced."""
    first, last = site_days[0], site_days[-1]
    of_site = {day.run.day: thing for day in site_days for thing in day.of_level(SITE)}
    total = sum((thing.seconds for thing in of_site.values()), Seconds())
    lines = [f"{first.report}, {first.run.day} to {last.run.day}: {first.site}"]
    lines += (f"  {line}" for line in arithmetic(total))
    causes_of = {day.run.day: causes_by_effect(selection.failures(day)) for day in site_days}
    announced_of = {day.run.day: announced_topic(day) for day in site_days}
    bad = [day for day, thing in of_site.items() if thing.seconds.up < thing.seconds.total]

    def up_share(day: date) -> Fraction:
        return Fraction(of_site[day].seconds.up, of_site[day].seconds.total)

    worst = sorted(bad, key=up_share)[:_MAX_DAYS]
    rows = []
    for day in worst:
        seconds, causes = of_site[day].seconds, causes_of[day][0].causes
        text = announced_of[day]
        if causes:
            text = f"{causes[0].metric_name}: {causes[0].text}"
        percents = (seconds.availability, seconds.reliability, seconds.unknown_share)
        rows.append([day, *map(short, percents), text])
    if rows:
        columns = ("day", "availability", "reliability", "unknown", "worst cause")
        lines += ["", f"worst days: {len(worst)} of {len(bad)} that were not up all day"]
        lines += (f"  {line}" for line in text_table(columns, rows))
    for of_period, days_of in merged(causes_of):
        lines += ["", str(of_period)]
        for cause in of_period.causes:
            lines += [f"  {cause_text(cause)}", f"    on {in_ranges(days_of[cause.key])}"]
    for title, days_of_line in _announced(site_days).items():
        lines += ["", title] if days_of_line else []
        for line, days in days_of_line.items():
            lines += [f"  {line}", f"    on {in_ranges(days)}"]
    return lines


def _announced(site_days: Sequence[SiteDay]) -> dict[str, dict[str, list[date]]]:
    """The downtimes and the exclusions of the days as lines, each with its days."""
    announced: dict[str, dict[str, list[date]]] = {"downtimes": {}, "exclusions": {}}
    for site_day in site_days:
        for title, lines in (
            ("downtimes", downtime_lines(site_day)),
            ("exclusions", map(exclusion_text, site_day.exclusions)),
        ):
            for line in lines:
                announced[title].setdefault(line, []).append(site_day.run.day)
    return announced


def announced_topic(site_day: SiteDay) -> str:
    """The downtimes that counted, or else the exclusions of the site, in a few words."""
    described = {
        f"in downtime {downtime.downtime_id}".rstrip(): one_line(downtime.description, _MAX_TOPIC)
        for downtime in site_day.downtimes
        if site_day.run.counts(downtime)
    } or {
        f"exclusion {exclusion.exclusion_id}": one_line(exclusion.reason, _MAX_TOPIC)
        for exclusion in site_day.exclusions
        if exclusion.kind == SITE
    }
    return ", ".join(": ".join(filter(None, item)) for item in sorted(described.items()))


def _reasons(thing: Thing, site_day: SiteDay) -> Iterator[str]:
    for reason in thing.reasons:
        yield f"{span_text(reason.start, reason.end)} {reason.status}"
        if thing.level != ENDPOINT:
            yield from (f"  {line}" for line in _because(reason, site_day))
        yield from (f"  {downtime_text(downtime)}" for downtime in reason.downtimes)
        for evidence in reason.evidence:
            also = "" if evidence.decides else "also "
            span = span_text(evidence.start, evidence.end)
            yield f"  {also}{evidence.metric_name} {evidence.status} {span}"
            if evidence.status == "MISSING":
                yield f"    {missing_text(evidence)}"
            yield from (f"    {exclusion_text(exclusion)}" for exclusion in evidence.exclusions)
            for lines in (
                list(map(result_text, evidence.results)),
                list(map(ignored_text, evidence.ignored)),
            ):
                yield from (f"    {line}" for line in _shortened(lines))


def _because(reason: Reason, site_day: SiteDay) -> Iterator[str]:
    """The causes of a segment of a site, function or service, a line each."""
    yield from map(exclusion_text, reason.exclusions)
    for segment in reason.deciding:
        start, end = max(segment.start, reason.start), min(segment.end, reason.end)
        whole = (start, end) == (reason.start, reason.end)
        time = "" if whole else f" {span_text(start, end)}"
        below = because_of_segment(segment, start, end, site_day)
        name = f"{segment.level} {segment.names[-1]}"
        yield f"because {name} is {segment.status}{time}{f': {below}' if below else ''}"


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    """The first lines and the last, with the number of lines left out in between."""
    left_out = len(lines) - _MAX_RESULTS
    if left_out <= 0:
        yield from lines
    else:
        yield from lines[: _MAX_RESULTS - 1]
        yield f"… {left_out} more"
        yield lines[-1]


def _about(site_day: SiteDay) -> str:
    until = f", until {time_text(site_day.run.until)}" if site_day.run.until is not None else ""
    about = f"{site_day.report}, {site_day.run.day}{until}: {site_day.site}"
    for version in site_day.from_archive.values():
        about += (
            f" (its results are no longer in the database: from the archive, version {version})"
        )
    return about


@dataclass(frozen=True)
class Stretch:
    """A time in which something had one status; `because` is empty if it was OK."""

    start: int
    end: int
    status: str
    because: str

    def __str__(self) -> str:
        because = f": {self.because}" if self.because else ""
        return f"{span_text(self.start, self.end)} {self.status}{because}"


def stretches(thing: Thing, site_day: SiteDay) -> list[Stretch]:
    """The day of a site, function, service or endpoint, each time with its cause."""
    because = {
        reason.start: ", ".join(
            [
                *map(exclusion_text, reason.exclusions),
                *map(downtime_text, reason.downtimes),
                *_deciding(reason.deciding, reason.start, reason.end, site_day),
            ]
        )
        for reason in thing.reasons
    }
    return [
        Stretch(segment.start, segment.end, segment.status, because.get(segment.start, ""))
        for segment in thing.segments
    ]


def metric_stretches(evidence: Sequence[Evidence], run: PublishedRun) -> list[Stretch]:
    """The day of a metric that was not always OK, each other time with its first result."""
    spans = [(each.start, each.end) for each in evidence]
    return sorted(
        [
            *(Stretch(*span, FINE, "") for span in uncovered(run.start, run.end, spans)),
            *(
                Stretch(each.start, each.end, each.status, _because_of_metric(each))
                for each in evidence
            ),
        ],
        key=attrgetter("start"),
    )


def because_of_segment(segment: Segment, start: int, end: int, site_day: SiteDay) -> str:
    """The causes of a segment of a child in [start, end); empty for a metric."""
    thing = site_day.thing_of.get((segment.level, segment.names))
    reasons = [r for r in (thing.reasons if thing else ()) if r.start < end and r.end > start]
    downtime = ["in downtime"] if any(reason.downtimes for reason in reasons) else []
    deciding = [segment for reason in reasons for segment in reason.deciding]
    return ", ".join([*downtime, *_deciding(deciding, start, end, site_day)])


def _deciding(
    segments: Iterable[Segment], start: int, end: int, site_day: SiteDay
) -> Iterator[str]:
    """The children that decide, each of them once, with their own causes."""
    last_of_thing = {
        (segment.level, segment.names): segment
        for segment in segments
        if segment.start < end and segment.end > start
    }
    for segment in list(last_of_thing.values())[:_MAX_NAMES]:
        first, last = max(start, segment.start), min(end, segment.end)
        below = because_of_segment(segment, first, last, site_day)
        yield f"{segment.level} {segment.names[-1]}{f': {below}' if below else ''}"
    if len(last_of_thing) > _MAX_NAMES:
        yield f"{len(last_of_thing) - _MAX_NAMES} more"


def _because_of_metric(evidence: Evidence) -> str:
    """Why a metric was not OK: its exclusion, no result, or the first result and their number."""
    if evidence.exclusions:
        return ", ".join(map(exclusion_text, evidence.exclusions))
    if evidence.status == "MISSING":
        return missing_text(evidence)
    if not evidence.results:
        return evidence.why_none
    first = evidence.results[0]
    judged = f" ({threshold_text(first)})" if isinstance(first, JudgedResult) else ""
    number = len(evidence.results)
    counted = f"; {number} results, the last at {clock_text(evidence.results[-1].measured)}"
    text = one_line(first.summary, _MAX_SUMMARY) or "(no text)"
    return f"{text}{judged}{counted if number > 1 else ''}"


def cause_text(cause: Cause, day: date | None = None) -> str:
    """A cause on one line, with an example whose message can be looked up; see when_text."""
    example = cause.example
    message = message_text(example.message_id, example.publisher)
    when = when_text(cause.first, cause.last, day)
    return (
        f"{cause.count} x {cause.status} {cause.service_flavour} {cause.metric_name} {when}"
        f" at {cause.where}: {cause.text or '(no text)'};"
        f" e.g. {example.host_name} {time_text(example.at)}{f' ({message})' if message else ''}"
    )


def downtime_text(downtime: Downtime) -> str:
    of = " ".join(filter(None, (downtime.site, downtime.service_flavour, downtime.host_name)))
    name = f" {downtime.downtime_id}" if downtime.downtime_id else ""
    text = f": {one_line(downtime.description)}" if downtime.description else ""
    kind = f"{downtime.classification}/{downtime.severity}"
    times = f"{time_text(downtime.start)} to {time_text(downtime.end)}"
    if downtime.announced is not None:
        late = ", after it had begun" if downtime.is_late else ""
        times += f", announced {time_text(downtime.announced)}{late}"
    return f"downtime{name} {kind} of {of}, {times}{text}"


def downtime_lines(site_day: SiteDay) -> list[str]:
    """The downtimes of a day, whether each counts for the report, and who announced it."""
    lines = []
    for downtime in site_day.downtimes:
        identity = known_identity(site_day.announcer(downtime))
        by = f", announced by {identity}" if identity else ""
        counts = "counts" if site_day.run.counts(downtime) else "does not count"
        lines.append(f"{downtime_text(downtime)} ({counts}{by})")
    return lines


def exclusion_text(exclusion: Exclusion) -> str:
    target = {
        MONITORING_HOST: f"monitoring host {exclusion.monitoring_host}",
        METRIC: f"metric {exclusion.metric_name}",
    }.get(exclusion.kind, f"site {exclusion.site}")
    selectors = (exclusion.site, exclusion.service_flavour, exclusion.host_name)
    if exclusion.kind == METRIC and any(selectors):
        target += f" at {' '.join(filter(None, selectors))}"
    times = f"{time_text(exclusion.start)} to {time_text(exclusion.end)}"
    by = f", by {exclusion.who}" if exclusion.who else ""
    return (
        f"exclusion {exclusion.exclusion_id} of {target}, {times}{by}: {one_line(exclusion.reason)}"
    )


def missing_text(evidence: Evidence) -> str:
    last = evidence.last
    if last is None or evidence.validity_s is None:
        return f"{NO_RESULT} since {time_text(evidence.since)} (a report looks back no further)"
    since = last.measured + evidence.validity_s
    return (
        f"{NO_RESULT} for {duration(evidence.end - last.measured)}; the last one,"
        f" {result_text(last)}, was valid for {duration(evidence.validity_s)}:"
        f" MISSING since {time_text(since)}"
    )


def result_text(result: Result) -> str:
    text = f" {one_line(result.summary)}" if result.summary else ""
    judged = f" ({threshold_text(result)})" if isinstance(result, JudgedResult) else ""
    status = f"{time_text(result.measured)} {result.status}{judged}"
    message = message_text(result.message_id or "no message id", result.publisher)
    return f"{status}{text}{f' ({message})' if result.is_signed else ''}"


def message_text(message_id: str, publisher: str) -> str:
    """A message that can be looked up, and the identity that sent it, if it has one."""
    identity = known_identity(publisher)
    return f"{message_id} from {identity}".lstrip() if identity else message_id


def ignored_text(ignored: Ignored) -> str:
    result, exclusion = ignored
    instance = f"{result.service_flavour} {result.host_name} {result.metric_name}"
    return (
        f"ignored: {instance} {result_text(result)}, measured by {exclusion.monitoring_host}"
        f" (exclusion {exclusion.exclusion_id})"
    )


def explain_command(
    report: str,
    site: str,
    day: date,
    service_flavour: str | None = None,
    host_name: str | None = None,
) -> list[str]:
    """The shell command that explains a site's day; each option and its value are one item."""
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
            # After a blank, a value that starts with - would be read as an option.
            f"{option}{'=' if value.startswith('-') else ' '}{shlex.quote(value)}"
            for option, value in options.items()
            if value is not None
        ),
    ]


def time_text(second: int) -> str:
    return format_time(moment(second))


def clock_text(second: int) -> str:
    minutes, seconds = divmod(second % DAY_S, 60)  # strftime is slow, and a page has many times
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def when_text(first: int, last: int, day: date | None, to: str = "-") -> str:
    """Two moments as times of a day, or with their dates unless both are on this day."""
    start = day_start(day) if day else 0
    if day and start <= first <= last <= start + DAY_S:
        return span_text(first, last, to)
    return f"{time_text(first)} to {time_text(last)}"


def span_text(start: int, end: int, to: str = "-") -> str:
    ends_the_day = end > start and end % DAY_S == 0
    return f"{clock_text(start)}{to}{'24:00:00' if ends_the_day else clock_text(end)}"
