"""A site's day as few plain lines, to paste into a ticket."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.schema.program.wording import duration, one_line
from sam_pipeline.spark_jobs.explain.as_text import Question, command_words, site_causes, way_down
from sam_pipeline.spark_jobs.explain.causes import Cause
from sam_pipeline.spark_jobs.explain.explanation import SiteDay, Thing
from sam_pipeline.spark_jobs.explain.phrases import (
    clock_words,
    downtime_words,
    exclusion_words,
    span_words,
    time_words,
)
from sam_pipeline.spark_jobs.rules.levels import FUNCTION, SITE
from sam_pipeline.spark_jobs.rules.seconds import rounded
from sam_pipeline.spark_jobs.runs.summary import Figure

MAX_LINES = 40
MAX_LENGTH = 100

_MAX_SEGMENTS = 8
_MAX_ANNOUNCED = 6
_MAX_FIGURES = 4
_LINES_OF_CAUSE = 3


def ticket(site_day: SiteDay, question: Question) -> list[str]:
    """At most MAX_LINES lines of at most MAX_LENGTH characters, without colours or tables.

    The causes get what room the rest leaves; what is left out is counted.
    """
    footer = ["", "more:", *_command(site_day, question)]
    head = [
        *_figures(site_day, question),
        *_titled("not OK:", _segments(site_day), _MAX_SEGMENTS),
        *_titled("announced and excluded:", _announced(site_day), _MAX_ANNOUNCED),
    ]
    room = MAX_LINES - len(head) - len(footer)
    causes = _causes(site_causes(site_day, question), room)
    return [_fitting(line) for line in (*head, *causes, *footer)]


def _figures(site_day: SiteDay, question: Question) -> list[str]:
    until = "" if site_day.until is None else f" until {time_words(site_day.until)}"
    lines = [f"{site_day.site} on {site_day.day}{until} (UTC), report {site_day.report}"]
    [site] = site_day.of_level(SITE)
    lines.append(_figure(site))
    figure = Figure(site.names, site.seconds.availability, site.seconds.reliability, site.seconds)
    misses = [str(miss) for miss in figure.misses(site_day.profile.targets)]
    lines.append(f"targets missed: {'; '.join(misses)}" if misses else "targets met")
    if question.service_flavour is not None or question.host_name is not None:
        asked = [t for t in question.things(site_day) if t.level not in (SITE, FUNCTION)]
        told = [f"{thing.level} {' '.join(thing.names[1:])}: {_figure(thing)}" for thing in asked]
        lines += _cut(told, _MAX_FIGURES)
    return lines


def _figure(thing: Thing) -> str:
    seconds = thing.seconds
    figures = (rounded(seconds.availability), rounded(seconds.reliability))
    availability, reliability = ("undefined" if each is None else str(each) for each in figures)
    times = {
        "CRITICAL": seconds.critical,
        "not known": seconds.not_known,
        "in downtime": seconds.downtime,
    }
    told = [f"{duration(held)} {what}" for what, held in times.items() if held]
    return ", ".join([f"availability {availability}", f"reliability {reliability}", *told])


def _segments(site_day: SiteDay) -> list[str]:
    [site] = site_day.of_level(SITE)
    return [
        f"{span_words(each.start, each.end)} {each.status}: {way_down(each, site_day)}"
        for each in site.reasons
    ]


def _announced(site_day: SiteDay) -> list[str]:
    return [
        *(
            f"{'' if site_day.counts(each) else 'does not count: '}{downtime_words(each)}"
            for each in site_day.downtimes
        ),
        *(exclusion_words(each) for each in site_day.exclusions),
    ]


def _causes(found: Sequence[Cause], room: int) -> list[str]:
    """As many causes as there is room for, but the worst in any case."""
    if not found:
        return []
    told = found[: max(1, (room - 3) // _LINES_OF_CAUSE)]
    left_out = sum(each.count for each in found[len(told) :])
    lines = ["", "causes:", *(line for each in told for line in _cause(each))]
    if left_out:
        lines.append(f"  … and {len(found) - len(told)} more causes of {left_out} failures")
    return lines


def _cause(cause: Cause) -> list[str]:
    """_LINES_OF_CAUSE lines."""
    example = cause.example
    where = example.host_name if cause.endpoints == 1 else f"{cause.endpoints} endpoints"
    moments = f"{clock_words(cause.first)} to {clock_words(cause.last)}"
    what = f"{cause.count} x {cause.status} {cause.service_flavour} {cause.metric_name}"
    return [
        f"  {what}, {moments} at {where}",
        f"      {cause.text or '(no text)'}",
        f"      e.g. {example.host_name} {time_words(example.at)} {example.message_id}",
    ]


def _titled(title: str, lines: Sequence[str], at_most: int) -> list[str]:
    return ["", title, *(f"  {line}" for line in _cut(lines, at_most))] if lines else []


def _cut(lines: Sequence[str], at_most: int) -> list[str]:
    if len(lines) <= at_most:
        return list(lines)
    return [*lines[: at_most - 1], f"… and {len(lines) - at_most + 1} more"]


def _fitting(line: str) -> str:
    """The line without control characters, as long as allowed; its indent stays."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    return indent + one_line(line, MAX_LENGTH - len(indent))


def _command(site_day: SiteDay, question: Question) -> list[str]:
    """The command line, over several lines where it is long."""
    lines = [""]
    for word in command_words(
        site_day.report,
        site_day.site,
        site_day.day,
        question.service_flavour,
        question.host_name,
    ):
        if lines[-1] and len(lines[-1]) + len(word) > MAX_LENGTH - 6:
            lines[-1] += " \\"
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"  {line}" for line in lines]
