"""A site's day as a few plain lines to paste into a ticket."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import date
from itertools import accumulate, chain

from sam_pipeline.schema.program.wording import duration, one_line, plural
from sam_pipeline.spark_jobs.explain.as_text import (
    downtime_text,
    exclusion_text,
    explain_command,
    message_text,
    stretches,
    time_text,
    when_text,
)
from sam_pipeline.spark_jobs.explain.causes import CauseList, causes_by_effect
from sam_pipeline.spark_jobs.explain.explanation import Selection, SiteDay, Thing
from sam_pipeline.spark_jobs.explain.timelines import FINE
from sam_pipeline.spark_jobs.rules.figures import Targets, figure_of
from sam_pipeline.spark_jobs.rules.levels import FUNCTION, SITE
from sam_pipeline.spark_jobs.rules.seconds import rounded

MAX_LINES = 40
MAX_LENGTH = 100

_MAX_FIGURES = 4
# The lines of one entry: enough for some endpoints with their metrics, or for a reason.
_MAX_LINES_OF_ENTRY = 5
_MAX_LINES_OF_CAUSE = 6
# The lines left for causes by the other sections: two titles with their blank lines, one cause, and
# the number of the others.
_ROOM_FOR_CAUSES = 4 + _MAX_LINES_OF_CAUSE + 1


def ticket(
    site_day: SiteDay, selection: Selection, targets: Targets, contact: str = ""
) -> list[str]:
    """At most MAX_LINES lines of at most MAX_LENGTH characters, without colours or tables.

    Longer texts are wrapped. The causes fill the lines that the other sections leave; anything left
    out is counted.
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
    if contact:
        head.append(f"contact: {contact}")
    if flavour is not None or host is not None:
        parts = [
            f"{thing.level} {' '.join(thing.names[1:])}: {_figure(thing)}"
            for thing in selection.things(site_day)
            if thing.level not in (SITE, FUNCTION)
        ]
        more = len(parts) - _MAX_FIGURES
        head += parts if more <= 0 else [*parts[:_MAX_FIGURES], f"… and {more} more"]
    segments = [
        str(stretch)
        for site in sites
        for stretch in stretches(site, site_day)
        if stretch.status != FINE
    ]
    announced = [
        f"{'' if run.counts(downtime) else 'does not count: '}{downtime_text(downtime)}"
        for downtime in site_day.downtimes
    ]
    announced += map(exclusion_text, site_day.exclusions)
    footer = ["", "details:", " "]
    for argument in explain_command(site_day.report, site_day.site, run.day, flavour, host):
        # A long command is continued on further lines.
        if footer[-1] != " " and len(footer[-1]) + len(argument) > MAX_LENGTH - 4:
            footer[-1] += " \\"
            footer.append(" ")
        footer[-1] += f" {argument}"
    costly, without_effect = causes_by_effect(selection.failures(site_day))
    lines = [part for line in head for part in _wrapped(line, 2)]
    room = MAX_LINES - len(lines) - len(footer) - _ROOM_FOR_CAUSES
    lines += _titled("not OK:", segments, room * 2 // 3 if announced else room)
    room = MAX_LINES - len(lines) - len(footer) - _ROOM_FOR_CAUSES
    lines += _titled("downtimes and exclusions:", announced, room)
    room = MAX_LINES - len(lines) - len(footer)
    # Two lines are reserved for the second title: it has the count of all other failures.
    lines += _causes(costly, run.day, room - (2 if without_effect.causes else 0))
    lines += _causes(without_effect, run.day, MAX_LINES - len(lines) - len(footer))
    return [*lines, *footer]


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


def _causes(cause_list: CauseList, day: date, room: int) -> list[str]:
    """The title with its counts, then as many causes as fit into `room` lines."""
    causes = cause_list.causes
    if not causes:
        return []
    entries = []
    for cause in causes:
        example = cause.example
        message = message_text(example.message_id, example.publisher)
        metric = f"{cause.service_flavour} {cause.metric_name}"
        times = when_text(cause.first, cause.last, day, " to ")
        about = (
            f"  {cause.count} x {cause.status} {metric}, {times} at {cause.where}",
            f"      {cause.text or '(no text)'}",
            f"      e.g. {example.host_name} {time_text(example.at)} {message}",
        )
        entries.append([part for line in about for part in _wrapped(line, 2)])
    shown = _number_that_fits(entries, room - 2)
    lines = ["", f"{cause_list}{':' if shown else ''}", *chain.from_iterable(entries[:shown])]
    left_out = sum(cause.count for cause in causes[shown:])
    if shown and left_out:
        more = f"{plural(len(causes) - shown, 'more cause')} of {plural(left_out, 'failure')}"
        lines.append(f"  … and {more}")
    return lines


def _titled(title: str, entries: Sequence[str], room: int) -> list[str]:
    """The title, and as many entries as fit into `room` lines with the number of the others."""
    if not entries:
        return []
    wrapped = [_wrapped(f"  {entry}", _MAX_LINES_OF_ENTRY) for entry in entries]
    shown = _number_that_fits(wrapped, room - 2)
    more = [f"  … and {len(entries) - shown} more"] if shown < len(entries) else []
    return ["", title, *chain.from_iterable(wrapped[:shown]), *more]


def _number_that_fits(entries: Sequence[Sequence[str]], room: int) -> int:
    """The number of entries that fit into `room` lines, one of them for the number of the rest."""
    needed = list(accumulate(map(len, entries)))
    if needed and needed[-1] <= room:
        return len(entries)
    return sum(lines <= room - 1 for lines in needed)


def _wrapped(line: str, at_most: int) -> list[str]:
    """The line in at most `at_most` lines of MAX_LENGTH characters, all but the first indented."""
    indent = line[: len(line) - len(line.lstrip(" "))]
    return textwrap.wrap(
        one_line(line),
        MAX_LENGTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_on_hyphens=False,
        max_lines=at_most,
        placeholder=" …",
    ) or [""]
