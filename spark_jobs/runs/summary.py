"""The figures of a period: seconds are added up over its days, then divided once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.figures import Figure, figure_of
from sam_pipeline.spark_jobs.rules.groups import Member, group_figures
from sam_pipeline.spark_jobs.rules.levels import GROUP, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import (
    DayFigure,
    day_figures,
    day_members,
    totals,
    until_of,
)


def period_figures(
    connection: Connection, report: str, level: str, period: Period, site: str | None = None
) -> list[Figure]:
    """The figures of a level over the period (availability rules 12 and 13).

    They are those of all sites or of one; groups are always all of them.
    """
    if level == GROUP:
        sites = list(day_figures(connection, report, SITE, period))
        return group_means(day_members(connection, report, period), sites)
    # In the order of Python: that of a database depends on its collation.
    return sorted(totals(connection, report, level, period, site), key=lambda figure: figure.names)


def added_up(days: Sequence[DayFigure]) -> Figure:
    """The figure over the days of one site, function, service or endpoint."""
    seconds = sum((day.seconds for day in days), Seconds())
    return figure_of(days[0].names, seconds, len(days), until_of(days))


def group_means(members: Iterable[tuple[date, Member]], sites: Iterable[DayFigure]) -> list[Figure]:
    """Groups over several days: each site counts on its days as a member, with its last weight."""
    seconds_on = {(figure.day, figure.names[0]): figure.seconds for figure in sites}
    newest: dict[tuple[str, str, str], Member] = {}
    days: dict[tuple[str, ...], set[date]] = {}
    totals: dict[tuple[str, str, str], Seconds] = {}
    for day, member in members:
        key = (member.group_type, member.group_name, member.site)
        newest[key] = member
        days.setdefault(key[:2], set()).add(day)
        totals[key] = totals.get(key, Seconds()) + seconds_on[day, member.site]
    return [
        replace(group, days=len(days[group.names]))
        for group in group_figures({newest[key]: totals[key] for key in newest})
    ]
