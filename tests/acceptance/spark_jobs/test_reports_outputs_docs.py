"""Every command of docs/reports-outputs.md works, in the order of the page."""

from __future__ import annotations

import csv
import json
from datetime import timedelta
from pathlib import Path

from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.sql.database.engine import make_engine
from tests.support.commands import embedded
from tests.support.page import Page, shell
from tests.support.reports.database import DAY, profile
from tests.support.reports.published_days import publish

PAGE = Page("docs/reports-outputs.md")


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    engine = make_engine(workplace.database)
    report = profile(tmp_path, ('name = "test"', 'name = "critical"'))
    for day in (DAY, DAY + timedelta(days=1)):
        endpoints = {"A CE h1": {"00:00": "OK", "06:00": "CRITICAL"}, "B CE h2": {"00:00": "OK"}}
        publish(engine, report, day, endpoints, [Member("federation", "NORTH", "A", 0)])
    engine.dispose()

    done = shell(workplace, *PAGE.texts("sh"))

    assert done.code == 0, str(done)
    assert "critical, 2026-11-14 to 2026-11-15" in done.out
    assert "1 of 2 endpoints changed status" in done.out
    assert "2026-11-15 A 25.00000 64800" in done.out
    assert "2 incidents at 1 site" in done.out
    with (tmp_path / "endpoints.csv").open(newline="") as file:
        assert [row["host_name"] for row in csv.DictReader(file)] == ["h1", "h2"]
    [north] = json.loads((tmp_path / "groups.json").read_text())
    assert (north["group_name"], north["availability"]) == ("NORTH", 25.0)
    written = json.loads((tmp_path / "written.json").read_text())
    assert all((tmp_path / file["path"]).is_file() for file in written)
