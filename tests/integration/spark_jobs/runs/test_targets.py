"""Each site and group is compared with its own targets, in tables and on pages."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.groups import Member
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports.database import DAY
from tests.support.reports.published_days import publish

PROFILE = """\
name = "tiers"
validity_s = "off"
[flavours.CE]
metrics = ["ping"]
[functions.ce]
flavours = ["CE"]
[targets]
availability = 80
reliability = 80
[targets.groups.tier.1]
availability = 99
[targets.groups.tier.2]
availability = 95
[targets.groups.federation.NORTH]
availability = 50
[targets.sites.C]
availability = 60
"""
EIGHTY_SEVEN = {"00:00": "OK", "21:00": "CRITICAL"}
SEVENTY_FIVE = {"00:00": "OK", "18:00": "CRITICAL"}
MEMBERS = [
    Member("federation", "NORTH", "A", 0),
    Member("tier", "1", "A", 0),
    Member("tier", "2", "C", 0),
]
DAYS = {"A CE a1": EIGHTY_SEVEN, "B CE b1": EIGHTY_SEVEN, "C CE c1": SEVENTY_FIVE}


@pytest.fixture
def tiers(tmp_path: Path) -> Profile:
    (tmp_path / "tiers.toml").write_text(PROFILE)
    return read_profile(tmp_path / "tiers.toml")


def missed(sam_report: SamReport, *arguments: str) -> dict[str, list[str]]:
    """The targets that each thing missed, by its names."""
    rows: list[dict[str, Any]] = json.loads(sam_report("show", "--json", *arguments))
    names = ("group_type", "group_name", "site", "function")
    return {" ".join(row[n] for n in names if n in row): row["missed"] for row in rows}


def test_a_site_is_compared_with_the_targets_of_its_groups_or_its_own(
    engine: Engine, tiers: Profile, sam_report: SamReport
) -> None:
    publish(engine, tiers, DAY, DAYS, MEMBERS)

    found = missed(sam_report, "--day", f"{DAY}")
    functions = missed(sam_report, "--day", f"{DAY}", "--level", "function")

    # Of the two groups of A the stricter one counts; C has a target of its own, but misses another.
    assert found == {"A": ["availability"], "B": [], "C": ["reliability"]}
    assert functions == {"A ce": ["availability"], "B ce": [], "C ce": ["reliability"]}


def test_the_mean_of_a_group_is_compared_with_the_targets_of_the_group(
    engine: Engine, tiers: Profile, sam_report: SamReport
) -> None:
    publish(engine, tiers, DAY, DAYS, MEMBERS)

    found = missed(sam_report, "--day", f"{DAY}", "--level", "group")

    assert found == {
        "federation NORTH": [],
        "tier 1": ["availability"],
        "tier 2": ["availability", "reliability"],
    }


def test_the_table_lists_the_targets_of_groups_and_sites(
    engine: Engine, tiers: Profile, sam_report: SamReport
) -> None:
    publish(engine, tiers, DAY, DAYS, MEMBERS)

    lines = sam_report("show", "--day", f"{DAY}").splitlines()

    assert "targets of tier 2: availability 95 %" in lines
    assert "targets of C: availability 60 %" in lines


def test_a_site_has_the_targets_of_its_newest_groups_of_the_period(
    engine: Engine, tiers: Profile, sam_report: SamReport
) -> None:
    publish(engine, tiers, DAY, DAYS, MEMBERS)
    publish(engine, tiers, DAY + timedelta(days=1), DAYS, [Member("tier", "3", "A", 0)])

    found = missed(sam_report, "--from", f"{DAY}", "--to", f"{DAY + timedelta(days=1)}")

    assert found["A"] == []


def test_pages_and_tickets_use_the_targets_of_the_site(
    engine: Engine, tiers: Profile, sam_report: SamReport, tmp_path: Path
) -> None:
    publish(engine, tiers, DAY, DAYS, MEMBERS)

    sam_report("site", "--month", f"{DAY:%Y-%m}", "--out", str(tmp_path / "out"))
    ticket = sam_report("explain", "--ticket", "--site", "A", "--day", f"{DAY}")

    site = (tmp_path / "out/tiers" / f"{DAY:%Y-%m}" / "A.html").read_text()
    month = (tmp_path / "out/tiers" / f"{DAY:%Y-%m}" / "index.html").read_text()
    assert "the target is 99 %" in site
    assert "<b>2 of 3</b>" in month
    assert "groups or sites have their own" in month
    assert "availability 87.50 is below 99" in ticket
