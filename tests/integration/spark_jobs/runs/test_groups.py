"""Groups count the sites that the report expects, in views, tables and pages (rule 13)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.rules.groups import Member
from tests.support.database.sql_rows import query
from tests.support.reports.database import profile
from tests.support.reports.runs import FIRST, computed, day_facts, url_of

# Site A is the only one with endpoints of the report; others may belong to another report.
MEMBERS = (
    Member("federation", "Mixed", "A", 3),
    Member("federation", "Mixed", "B", 0),
    Member("federation", "Others", "B", 0),
)


def test_a_group_expects_only_the_sites_with_an_endpoint_of_the_report(
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    computed(engine, profile(tmp_path), day_facts(FIRST, members=MEMBERS))

    assert main(["show", "--day", str(FIRST), "--level", "group", "--json"]) == 0
    [shown] = json.loads(capsys.readouterr().out)
    assert main(["site", "--day", str(FIRST), "--out", str(tmp_path / "pages")]) == 0
    groups = next((tmp_path / "pages").rglob("groups/federation.html")).read_text()

    columns = "group_name, sites_expected, sites_known"
    for view in ("group_availability", "group_month"):
        assert query(engine, f"SELECT {columns} FROM {view}") == [("Mixed", 1, 1)]
    assert query(engine, "SELECT site, weight FROM report_group_site") == [("A", 3)]
    assert (shown["group_name"], shown["sites_expected"], shown["missed"]) == ("Mixed", 1, [])
    assert "1 of 1" in groups and "Others" not in groups


def test_a_report_that_expects_nothing_of_any_group_has_no_groups(
    engine: Engine, tmp_path: Path
) -> None:
    computed(engine, profile(tmp_path), day_facts(FIRST, members=MEMBERS[1:]))

    assert query(engine, "SELECT * FROM group_availability") == []
