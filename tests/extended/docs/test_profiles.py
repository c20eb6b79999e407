"""The profiles, worked examples, thresholds and mistakes of the pages about profiles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.errors import ProfileError
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.profiles.thresholds import read_range, triggers
from tests.extended.docs.page import ROOT, blocks
from tests.oracle.oracle import day_report, figures_of
from tests.worlds import model

PAGES = ("profiles", "profiles-reference")
TOML = [
    text for page in PAGES for (language, _), text in blocks(page).items() if language == "toml"
]
DAY = date(2026, 11, 14)
SITE = "SITE-A"
BASE = """\
name = "x"
validity_s = "off"
flavours.CE.metrics = ["org.sam.Ping"]
"""


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def rows(page: str, section: str) -> list[list[str]]:
    """The cells of the table in a section, without the table head."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    part = re.split(rf"^#+ {section}\n", text, flags=re.MULTILINE)[1].partition("\n## ")[0]
    return [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", part, re.MULTILINE)[1:]]


def profile_of(directory: Path, text: str) -> Profile:
    path = directory / "profile.toml"
    path.write_text(text)
    return read_profile(path)


@pytest.mark.parametrize("number", range(len(TOML)))
def test_every_profile_of_the_page_is_one(number: int, tmp_path: Path) -> None:
    assert profile_of(tmp_path, TOML[number]).name


def test_the_example_for_production_is_a_good_one(tmp_path: Path) -> None:
    example = read_profile(ROOT / "deploy" / "critical.toml")

    assert {name for function in example.functions for name in function.flavours} == {
        flavour.name for flavour in example.flavours
    }


# Tables -------------------------------------------------------------------------------------------


def test_each_range_triggers_where_the_page_says() -> None:
    table = rows("profiles-reference", "Thresholds")

    assert table
    for text, outside, inside in table:
        limits = read_range(code(text)[0])
        for number in code(outside):
            assert triggers(limits, Fraction(number)), (text, number)
        for number in code(inside):
            assert not triggers(limits, Fraction(number)), (text, number)


@pytest.mark.parametrize("row", rows("profiles", "Common mistakes"))
def test_each_mistake_gives_the_message_of_the_page(row: list[str], tmp_path: Path) -> None:
    [[mistake], [message]] = map(code, row)
    kept = [line for line in BASE.splitlines() if line.split(" = ")[0] != mistake.split(" = ")[0]]
    path = tmp_path / "profile.toml"
    path.write_text("\n".join([*kept, mistake]))

    with pytest.raises(ProfileError) as caught:
        read_profile(path)

    start = f"{path}:{len(kept) + 1}: {message}"
    assert any(problem.startswith(start) for problem in caught.value.problems), (
        caught.value.problems
    )


# Worked examples ----------------------------------------------------------------------------------


def examples() -> Iterator[tuple[str, str, str]]:
    """Profile, results and outcome."""
    for page in PAGES:
        found = list(blocks(page).items())
        for (_, profile), (key, results), (_, outcome) in zip(
            found, found[1:], found[2:], strict=False
        ):
            if key[0] == "results":
                yield profile, results, outcome


@pytest.mark.parametrize(("toml", "results", "outcome"), list(examples()))
def test_the_outcome_of_an_example_is_what_its_results_make(
    toml: str, results: str, outcome: str, tmp_path: Path
) -> None:
    report = day_report(world(results), oracle_profile(profile_of(tmp_path, toml)), DAY)

    [figures] = map(figures_of, report.sites.values())
    held = (f"{status} {count}" for status, count in figures.seconds.items() if count)
    assert f"seconds: {', '.join(held)}\n" in outcome
    for name, value in (
        ("availability", figures.availability),
        ("reliability", figures.reliability),
    ):
        [shown] = re.findall(rf"^{name} = .* = ([\d.]+) %$", outcome, re.MULTILINE)
        assert Decimal(shown) == value


def world(results: str) -> model.World:
    """Endpoints, results and downtimes of an example."""
    endpoints, metric_results = {}, []
    downtimes: list[model.Downtime] = []
    for line in results.splitlines():
        when, flavour, host, *more = re.split(r"\s+", line.replace(" the day before", "-"))
        endpoints[flavour, host] = model.Endpoint(SITE, host, flavour, _at("00:00", -300))
        if more[0] == "downtime":
            start, end = map(_at, when.split("-"))
            kind, severity = more[1].split("/")
            number = str(len(downtimes))
            downtimes.append(
                model.Downtime(number, start, end, start, SITE, host, flavour, kind, severity)
            )
        elif when != "never":
            at = _at(when.removesuffix("-"), -1 if when.endswith("-") else 0)
            metric, status, *data = more
            vo = next((word[3:] for word in data if word.startswith("vo=")), "ops")
            perf = " ".join(word for word in data if not word.startswith("vo="))
            metric_results.append(
                model.Result(host, flavour, metric, status, at, vo=vo, performance_data=perf)
            )
    return model.World(
        DAY, 1, tuple(endpoints.values()), (), tuple(downtimes), tuple(metric_results)
    )


def _at(clock: str, days: int = 0) -> datetime:
    hours, minutes = map(int, clock.split(":"))
    start = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
    return start + timedelta(days=days, hours=hours, minutes=minutes)


def oracle_profile(profile: Profile) -> model.Profile:
    """The profile in the terms of the oracle."""
    document = json.loads(profile.document)
    operations = document.get("operations", {})
    return model.Profile(
        name=profile.name,
        flavours={
            flavour.name: model.Flavour(flavour.metrics, flavour.endpoints_operation)
            for flavour in profile.flavours
        },
        functions={
            function.name: model.Function(function.flavours, function.flavours_operation)
            for function in profile.functions
        },
        metrics_operation=profile.metrics_operation,
        functions_operation=profile.functions_operation,
        vo=profile.vo,
        validity_s=profile.validity_s,
        validity_of=profile.validity_of,
        operations={
            name: tuple((a, b, c) for a, b, c in own["table"]) for name, own in operations.items()
        },
        thresholds=tuple(model.Threshold(**rule) for rule in document.get("thresholds", [])),
        downtimes=profile.downtimes,
    )
