"""How the candidates of a sealed month would change the figures of the month."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.figures import Figure, figure_of
from sam_pipeline.spark_jobs.rules.levels import SECONDS, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.spark_jobs.runs.published import totals


@dataclass(frozen=True)
class MonthEffect:
    """The figure of a site over the month, without and with the changes of some days."""

    site: str
    before: Figure
    after: Figure


def candidate_effects(connection: Connection, report: str, month: Period) -> list[MonthEffect]:
    """The sites whose figures of the month the candidates would change, ordered by name."""
    rows = connection.execute(
        text(
            "SELECT h.names, h.old, h.new FROM report_candidate AS c"
            " JOIN report_change AS h ON h.run_id = c.run_id"
            f" WHERE c.report = :report AND c.day BETWEEN :first AND :last AND h.level = '{SITE}'"
        ),
        {"report": report, **month.bounds},
    )
    changes: dict[str, list[tuple[Seconds, Seconds]]] = {}
    for names, old, new in rows:
        site = json.loads(names)["site"]
        changes.setdefault(site, []).append((seconds_in(old), seconds_in(new)))
    published = {
        figure.names[0]: figure.seconds or Seconds()
        for figure in totals(connection, report, SITE, month)
    }
    return month_effects(published, changes)


def month_effects(
    published: Mapping[str, Seconds], changes: Mapping[str, Iterable[tuple[Seconds, Seconds]]]
) -> list[MonthEffect]:
    """The effect of changes of days (the seconds before and after) on the sums of the month."""
    effects = []
    for site, of_days in sorted(changes.items()):
        before = after = published.get(site, Seconds())
        for old, new in of_days:
            after = after - old + new
        effect = MonthEffect(site, figure_of((site,), before), figure_of((site,), after))
        if shown(effect.before) != shown(effect.after):
            effects.append(effect)
    return effects


def shown(figure: Figure) -> tuple[object, ...]:
    """Availability, reliability and the share that is not known, as they are shown."""
    return tuple(map(rounded, (figure.availability, figure.reliability, figure.unknown)))


def seconds_in(figures_json: str | None) -> Seconds:
    """The seconds of a figure in `report_change`; none if there was no figure."""
    figures = json.loads(figures_json) if figures_json else {}
    return Seconds(*(figures.get(name, 0) for name in SECONDS))
