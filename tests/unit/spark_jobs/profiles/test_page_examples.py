"""The worked examples of docs/profiles.md and docs/reports.md have the outcome on the page.

The oracle computes them: integration tests hold it and the reports to the same figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from tests.oracle.oracle import (
    DayReport,
    States,
    day_report,
    figures_of,
    groups_over,
    period,
    segments,
)
from tests.worlds import model

DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "profiles.md"
DAY = date(2026, 11, 14)
SITE = "SITE-A"
EXAMPLES = re.findall(
    r"```toml\n([^`]*)```\n+```results\n([^`]*)```\n+```outcome\n([^`]*)```",
    PAGE.read_text(encoding="utf-8"),
)


def test_the_page_has_examples_of_each_step() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize(("toml", "results", "outcome"), EXAMPLES)
def test_the_results_of_an_example_have_the_outcome_on_the_page(
    toml: str, results: str, outcome: str, tmp_path: Path
) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(toml)

    report = day_report(world(results), model_of(read_profile(path)), DAY)

    [site] = report.sites.values()
    assert outcome.splitlines() == [*timelines(report), "", *figures(site)]


def timelines(report: DayReport) -> Iterator[str]:
    """Those of a level with more than one part each, and that of the site."""
    levels = [report.endpoints] if len(report.endpoints) > len(report.services) else []
    levels += [report.services] if len(report.services) > 1 else []
    is_mapped = set(report.functions) != set(report.services)
    levels += [report.functions] if len(report.functions) > 1 and is_mapped else []
    for level in (*levels, report.sites):
        for names, states in level.items():
            parts = (
                f"{clock(part.start)}-{clock(part.end)} {part.status}"
                for part in segments(states, DAY)
            )
            yield f"{' '.join(names):<24}  {', '.join(parts)}"


def figures(states: States) -> Iterator[str]:
    counts = {status: count for status, count in figures_of(states).seconds.items() if count}
    seconds = Seconds(**{status.lower(): count for status, count in counts.items()})
    yield "seconds: " + ", ".join(f"{status} {count}" for status, count in counts.items())
    known = seconds.total - seconds.not_known
    shares = [
        ("availability", seconds.up, known),
        ("reliability", seconds.up, known - seconds.downtime),
        ("unknown", seconds.not_known, seconds.total),
    ]
    for name, part, whole in shares if seconds.not_known else shares[:2]:
        percent = f"{rounded(Fraction(100 * part, whole)):f}"
        percent = percent.rstrip("0").rstrip(".") if "." in percent else percent
        yield f"{name} = 100 * {part} / {whole} = {percent} %"


def clock(moment: datetime) -> str:
    return "24:00" if moment.date() != DAY else f"{moment:%H:%M}"


def world(results: str) -> model.World:
    """The endpoints and results of an example."""
    endpoints, rows = {}, []
    for line in results.splitlines():
        when, flavour, host, metric, status, *data = line.replace(" the day before", "-").split()
        endpoints[host] = model.Endpoint(SITE, host, flavour, at("00:00", -300))
        moment = at(when.removesuffix("-"), -when.endswith("-"))
        data = " ".join(data)
        rows.append(model.Result(host, flavour, metric, status, moment, performance_data=data))
    return model.World(DAY, 1, tuple(endpoints.values()), (), (), tuple(rows))


def at(time: str, days: int = 0) -> datetime:
    hours, minutes = map(int, time.split(":"))
    return datetime(DAY.year, DAY.month, DAY.day, hours, minutes, tzinfo=UTC) + timedelta(days)


def model_of(profile: Profile) -> model.Profile:
    """The profile in the terms of the oracle."""
    rules = json.loads(profile.document).get("thresholds", [])
    return model.Profile(
        profile.name,
        {one.name: model.Flavour(one.metrics, one.endpoints_operation) for one in profile.flavours},
        {
            one.name: model.Function(one.flavours, one.flavours_operation)
            for one in profile.functions
        },
        validity_s=profile.validity_s,
        thresholds=tuple(model.Threshold(**rule) for rule in rules),
    )


def test_the_month_of_a_group_has_the_figures_on_the_page() -> None:
    page = (DOCS / "reports.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"\| (SITE-\w) \| (\d+) to (\d+) \| (\d+) \| (\d+) \| ([\d.]+) % \| (\d+) \|", page
    )
    sentence = " ".join(page.partition("The month of the group has")[2].split("\n\n")[0].split())
    formulas = re.findall(r"\(([^)]*)\) / \(([^)]*)\) = ([\d.]+) %", sentence)
    days = [date(2026, 10, number) for number in range(1, 32)]
    endpoints, groups, results = [], [], []
    for site, first, last, weight, failed, _, _ in rows:
        start, end = (model.midnight(date(2026, 10, 1)) + timedelta(int(n)) for n in (first, last))
        start -= timedelta(1)
        names = (site, "federation", "NORTH", start, end)
        groups.append(model.SiteGroup(*names, weight=int(weight)))
        endpoints.append(model.Endpoint(site, site, "CE", start - timedelta(9)))
        for number, day in enumerate(days, 1):
            status = "CRITICAL" if 0 <= number - int(first) < int(failed) else "OK"
            results.append(model.Result(site, "CE", "ping", status, model.midnight(day)))
    october = model.World(days[0], 31, tuple(endpoints), tuple(groups), (), tuple(results))
    profile = model.Profile("critical", {"CE": model.Flavour(("ping",))})

    reports = [day_report(october, profile, day) for day in days]

    group = ("federation", "NORTH")
    members = [member for report in reports for member in report.memberships]
    assert len(rows) == 3
    for site, *_, value, weight in rows:
        own = [member for member in members if member.site == site]
        assert period(member.figures for member in own).availability == rounded(Fraction(value))
        assert sum(member.weight for member in own) == int(weight)
    results_on_page = [groups_over(reports)[group], groups_over(reports[-1:])[group]]
    for (terms, weights, shown), figures in zip(formulas, results_on_page, strict=True):
        assert rounded(Fraction(shown)) == figures.availability
        added = sum(
            Fraction(weight) * Fraction(value)
            for weight, value in (term.split(" · ") for term in terms.split(" + "))
        )
        by_hand = added / sum(map(int, weights.split(" + ")))
        assert abs(by_hand - Fraction(shown)) < Fraction(1, 10_000)
