"""A site's day as a few plain lines to paste into a ticket."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.schema.program.wording import duration, one_line
from sam_pipeline.spark_jobs.explain.as_text import way_down
from sam_pipeline.spark_jobs.explain.causes import CauseList, causes_by_effect
from sam_pipeline.spark_jobs.explain.explanation import SiteDay, Thing
from sam_pipeline.spark_jobs.explain.phrases import (
    clock_text,
    downtime_text,
    exclusion_text,
    explain_command,
    span_text,
    time_text,
)
from sam_pipeline.spark_jobs.explain.selection import Selection
from sam_pipeline.spark_jobs.rules.figures import Targets, figure_of
from sam_pipeline.spark_jobs.rules.levels import FUNCTION, SITE
from sam_pipeline.spark_jobs.rules.seconds import rounded

MAX_LINES = 40
MAX_LENGTH = 100

_MAX_SEGMENTS = 8
_MAX_ANNOUNCED = 6
_MAX_FIGURES = 4
_LINES_OF_CAUSE = 3


def ticket(site_day: SiteDay, selection: Selection, targets: Targets) -> list[str]:
    """At most MAX_LINES lines of at most MAX_LENGTH characters, without colours or tables.

    The causes fill the lines that the other sections leave; anything left out is counted.
    """
    run = site_day.run
    flavour, host = selection.service_flavour, selection.host_name
    until = "" if run.until is None else f" until {time_text(run.until)}"
    sites = site_day.of_level(SITE)
    head = [f"{site_day.site} on {run.day}{until} (UTC), report {site_day.report}"]
    if not sites:
        head.append("no figure: no service of the site belongs to a function of the profile")
    for site in sites:
        misses = list(map(str, figure_of(site.names, site.seconds).misses(targets)))
        head.append(_figure(site))
        head.append(f"targets missed: {'; '.join(misses)}" if misses else "targets met")
    if flavour is not None or host is not None:
        parts = [
            f"{thing.level} {' '.join(thing.names[1:])}: {_figure(thing)}"
            for thing in selection.things(site_day)
            if thing.level not in (SITE, FUNCTION)
        ]
        head += _cut(parts, _MAX_FIGURES)
    segments = [
        f"{span_text(reason.start, reason.end)} {reason.status}: {way_down(reason, site_day)}"
        for site in sites
        for reason in site.reasons
    ]
    announced = [
        f"{'' if run.counts(downtime) else 'does not count: '}{downtime_text(downtime)}"
        for downtime in site_day.downtimes
    ]
    announced += map(exclusion_text, site_day.exclusions)
    head += _titled("not OK:", segments, _MAX_SEGMENTS)
    head += _titled("downtimes and exclusions:", announced, _MAX_ANNOUNCED)
    footer = ["", "details:", " "]
    for argument in explain_command(site_day.report, site_day.site, run.day, flavour, host):
        # A long command is continued on further lines.
        if footer[-1] != " " and len(footer[-1]) + len(argument) > MAX_LENGTH - 4:
            footer[-1] += " \\"
            footer.append(" ")
        footer[-1] += f" {argument}"
    costly, without_effect = causes_by_effect(selection.failures(site_day))
    # Two lines are reserved for the second title: it has the count of all other failures.
    reserved = 2 if without_effect.causes else 0
    room = MAX_LINES - len(head) - len(footer)
    body = _causes(costly, room - reserved, at_least=1)
    body += _causes(without_effect, room - len(body), at_least=0)
    lines = []
    for line in (*head, *body, *footer):
        indent = line[: len(line) - len(line.lstrip(" "))]
        lines.append(indent + one_line(line, MAX_LENGTH - len(indent)))
    return lines


def _figure(thing: Thing) -> str:
    seconds = thing.seconds
    figures = (rounded(seconds.availability), rounded(seconds.reliability))
    availability, reliability = ("undefined" if value is None else str(value) for value in figures)
    times = {
        "CRITICAL": seconds.critical,
        "not known": seconds.not_known,
        "in downtime": seconds.downtime,
    }
    lost = [f"{duration(lost_s)} {state}" for state, lost_s in times.items() if lost_s]
    return ", ".join([f"availability {availability}", f"reliability {reliability}", *lost])


def _causes(cause_list: CauseList, room: int, *, at_least: int) -> list[str]:
    """The title with its counts, then as many causes as fit into `room` lines."""
    causes = cause_list.causes
    if not causes:
        return []
    shown = causes[: max(at_least, (room - 3) // _LINES_OF_CAUSE)]
    lines = ["", f"{cause_list}{':' if shown else ''}"]
    for cause in shown:
        example = cause.example
        moments = f"{clock_text(cause.first)} to {clock_text(cause.last)}"
        metric = f"{cause.service_flavour} {cause.metric_name}"
        lines += [
            f"  {cause.count} x {cause.status} {metric}, {moments} at {cause.where}",
            f"      {cause.text or '(no text)'}",
            f"      e.g. {example.host_name} {time_text(example.at)} {example.message_id}",
        ]
    left_out = cause_list.failures - sum(cause.count for cause in shown)
    if shown and left_out:
        lines.append(f"  … and {len(causes) - len(shown)} more causes of {left_out} failures")
    return lines


def _titled(title: str, lines: Sequence[str], at_most: int) -> list[str]:
    return ["", title, *(f"  {line}" for line in _cut(lines, at_most))] if lines else []


def _cut(lines: Sequence[str], at_most: int) -> list[str]:
    if len(lines) <= at_most:
        return list(lines)
    return [*lines[: at_most - 1], f"… and {len(lines) - at_most + 1} more"]
