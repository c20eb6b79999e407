"""The explanation of a site's figures on a day, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from fractions import Fraction

from sam_pipeline.schema.program.command import text_table
from sam_pipeline.spark_jobs.explain.because import because_of_segment
from sam_pipeline.spark_jobs.explain.causes import causes_by_effect, merged
from sam_pipeline.spark_jobs.explain.explanation import Reason, SiteDay, Thing, arithmetic
from sam_pipeline.spark_jobs.explain.phrases import (
    cause_text,
    downtime_text,
    effect_text,
    exclusion_text,
    ignored_text,
    missing_text,
    result_text,
    span_text,
    time_text,
)
from sam_pipeline.spark_jobs.explain.selection import Selection
from sam_pipeline.spark_jobs.rules.days import in_ranges
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short

_TITLES = {
    FUNCTION: ("functions", "its services"),
    SERVICE: ("services", "its endpoints"),
    ENDPOINT: ("endpoints", "its metrics"),
}
# Of many similar results, the first ones and the last show the time range.
_MAX_RESULTS = 4
# Of a long period.
_MAX_DAYS = 10


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
        "downtimes": [
            effect_text(downtime, site_day.run.counts(downtime), site_day.announcer(downtime))
            for downtime in site_day.downtimes
        ],
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
        lines += (f"  {cause_text(cause)}" for cause in cause_list.causes)
    return lines


def period_lines(site_days: Sequence[SiteDay], selection: Selection) -> list[str]:
    """Several days of a site in one report: the worst days, and the causes with their days."""
    first, last = site_days[0], site_days[-1]
    of_site = {day.run.day: thing for day in site_days for thing in day.of_level(SITE)}
    total = sum((thing.seconds for thing in of_site.values()), Seconds())
    lines = [f"{first.report}, {first.run.day} to {last.run.day}: {first.site}"]
    lines += (f"  {line}" for line in arithmetic(total))
    causes_of = {day.run.day: causes_by_effect(selection.failures(day)) for day in site_days}
    bad = [day for day, thing in of_site.items() if thing.seconds.up < thing.seconds.total]

    def up_share(day: date) -> Fraction:
        return Fraction(of_site[day].seconds.up, of_site[day].seconds.total)

    worst = sorted(bad, key=up_share)[:_MAX_DAYS]
    rows = []
    for day in worst:
        seconds, causes = of_site[day].seconds, causes_of[day][0].causes
        text = f"{causes[0].metric_name}: {causes[0].text}" if causes else ""
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
    return lines


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
