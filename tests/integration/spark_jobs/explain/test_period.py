"""`sam-report explain` of several days: the worst days, and each cause with its days."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.cli import main
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports.database import profile
from tests.support.reports.published_days import Timeline, publish
from tests.support.reports.runs import url_of

DAYS: dict[int, Timeline] = {
    1: {"00:00": "OK"},
    2: {"00:00": "OK", "18:00": "MISSING"},
    3: {"00:00": "OK", "06:00": "MISSING"},
    4: {"00:00": "OK", "12:00": "MISSING"},
    6: {"00:00": "OK", "23:00": "MISSING"},
}
MONTH = ("explain", "--month", "2026-10", "--site", "A")


@pytest.fixture(autouse=True)
def october(engine: Engine, tmp_path: Path) -> None:
    report = profile(tmp_path, ("functions.compute", "functions.ce"))
    for day, timeline in DAYS.items():
        endpoints = {"A CE h1": timeline, "B CE h2": {"00:00": "OK"}}
        publish(engine, report, date(2026, 10, day), endpoints)


def test_a_month_of_a_site_starts_with_its_worst_days(sam_report: SamReport) -> None:
    lines = sam_report(*MONTH).splitlines()

    assert lines[0] == "test, 2026-10-01 to 2026-10-06: A"
    title = next(index for index, line in enumerate(lines) if line.startswith("worst days"))
    assert "4 of 4" in lines[title]
    listed = [line.split()[0] for line in lines[title + 3 : title + 7]]
    assert listed == [f"2026-10-{day:02}" for day in (3, 4, 2, 6)]


def test_a_cause_has_all_its_days(sam_report: SamReport) -> None:
    [days] = [line for line in sam_report(*MONTH).splitlines() if line.startswith("    on ")]

    assert days.strip() == "on 2026-10-02 to 2026-10-04, 2026-10-06"


def test_the_json_of_a_month_has_the_causes_of_each_day(sam_report: SamReport) -> None:
    days = json.loads(sam_report(*MONTH, "--json"))

    assert [(day["day"], len(day["causes"])) for day in days] == [
        (f"2026-10-{day:02}", int(day > 1)) for day in DAYS
    ]


def test_a_ticket_is_about_one_day(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))

    assert main([*MONTH, "--ticket"]) == 64
    assert "--day" in capsys.readouterr().err
