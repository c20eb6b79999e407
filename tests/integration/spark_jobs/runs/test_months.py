"""The views by calendar month agree with `sam-report show --month`, on both databases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from sam_pipeline.spark_jobs.rules.days import Period, as_day, day_start, month_of
from sam_pipeline.spark_jobs.rules.figures import Figure
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.rules.seconds import rounded
from sam_pipeline.spark_jobs.runs.months import MonthFigure, month_figures
from sam_pipeline.spark_jobs.runs.published import second_or_none
from sam_pipeline.spark_jobs.runs.summary import period_figures
from sam_pipeline.sql.database.engine import reading, writing
from tests.support.reports.database import profile
from tests.support.reports.published_days import Timeline, publish

YEAR = Period(date(2026, 1, 1), date(2026, 12, 31))
SITES = "ABCDE"
STATUSES = ("OK", "WARNING", "CRITICAL", "UNKNOWN", "MISSING", "DOWNTIME", "EXCLUDED")
LAST_OPEN_DAY = date(2026, 11, 14)


@pytest.mark.parametrize("seed", range(2))
def test_the_months_of_random_worlds_are_those_that_show_adds_up(
    engine: Engine, tmp_path: Path, seed: int
) -> None:
    write_random_world(engine, tmp_path, random.Random(seed))

    with reading(engine) as connection:
        for level in (SITE, GROUP):
            shown = {
                (month.first, figure.names): comparable(figure)
                for month in YEAR.months()
                for figure in period_figures(connection, "test", level, month)
            }
            in_view = dict(rows_of(connection, level))
            assert in_view == shown
            read = month_figures(connection, "test", level, YEAR)
            assert {(m.month, m.figure.names): comparable(m.figure) for m in read} == shown
            assert [key(month) for month in read] == sorted(map(key, read))


def test_a_month_says_how_many_days_count_until_when_and_whether_it_is_sealed(
    engine: Engine, tmp_path: Path
) -> None:
    report, ok = profile(tmp_path), {"00:00": "OK"}
    joined, until = date(2026, 11, 12), day_start(LAST_OPEN_DAY) + 3600
    member = Member("federation", "North", "A", 0)
    publish(engine, report, date(2026, 10, 31), {"B CE h2": ok})
    publish(engine, report, joined, {"A CE h1": ok, "B CE h2": ok}, [member])
    publish(engine, report, LAST_OPEN_DAY, {"A CE h1": ok, "B CE h2": ok}, [member], until)
    with writing(engine) as connection:
        connection.execute(text(SEAL), {"at": 0 if engine.dialect.name == "sqlite" else "epoch"})

    with reading(engine) as connection:
        october, november = month_figures(connection, "test", SITE, YEAR, site="B")
        [of_group] = month_figures(connection, "test", GROUP, YEAR)
        sealed = connection.execute(
            text("SELECT month, sealed FROM site_month WHERE site = 'B' ORDER BY month")
        ).all()

    assert (october.month, october.days, october.figure.until) == (date(2026, 10, 1), 1, None)
    assert (november.month, november.days, november.figure.until) == (date(2026, 11, 1), 2, until)
    assert (of_group.days, of_group.figure.until) == (2, until)
    assert [(as_day(month), bool(is_sealed)) for month, is_sealed in sealed] == [
        (date(2026, 10, 1), True),
        (date(2026, 11, 1), False),
    ]


SEAL = (
    "INSERT INTO seal (report, month, revision, who, sealed_at)"
    " VALUES ('test', '2026-10', 1, 'Jane', :at)"
)


def write_random_world(engine: Engine, directory: Path, chance: random.Random) -> None:
    """Some days of three months, on which sites come and go, change weights and groups."""
    report = profile(directory)
    first = date(2026, 9, 20)
    days = sorted(chance.sample([first + timedelta(days=n) for n in range(56)], 20))
    for day in days:
        endpoints: dict[str, Timeline] = {
            f"{site} CE h-{site}": random_timeline(chance)
            for site in SITES
            if chance.random() < 0.85
        }
        members = [
            Member(kind, name, site, chance.choice([0, 0, 1, 2, 6, 99]))
            for kind, name in (("federation", "North"), ("federation", "South"), ("tier", "2"))
            for site in SITES
            if chance.random() < 0.6
        ]
        open_until = day_start(day) + 86_399 if day == days[-1] else None
        publish(engine, report, day, endpoints, members, open_until)


def random_timeline(chance: random.Random) -> Timeline:
    starts = sorted(chance.sample(range(1, 24 * 60), chance.choice([0, 0, 1, 3])))
    return {
        f"{minute // 60:02}:{minute % 60:02}": chance.choice(STATUSES) for minute in [0, *starts]
    }


def rows_of(connection: Connection, level: str) -> Iterator[tuple[object, object]]:
    for row in connection.execute(text(f"SELECT * FROM {level}_month")).mappings():
        names = tuple(row[name] for name in NAMES[level])
        assert row["report"] == "test"
        figures = [decimal(row["availability"]), decimal(row["reliability"])]
        if level == GROUP:
            more = [row["sites_expected"], row["sites_known"]]
        else:
            seconds = tuple(int(row[f"{status.lower()}_s"]) for status in STATUSES)
            more = [decimal(row["unknown"]), row["days"], seconds, second_or_none(row["until"])]
        yield (as_day(row["month"]), names), [*figures, *more]


def comparable(figure: Figure) -> list[object]:
    """What `sam-report show` prints of a figure."""
    figures = [rounded(figure.availability), rounded(figure.reliability)]
    if figure.seconds is None:
        return [*figures, figure.sites_expected, figure.sites_known]
    seconds = tuple(vars(figure.seconds).values())
    return [*figures, rounded(figure.unknown), figure.days, seconds, figure.until]


def decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value)).quantize(Decimal("0.00001"))


def key(month: MonthFigure) -> tuple[tuple[str, ...], date]:
    assert month.month == month_of(month.month).first
    return month.figure.names, month.month
