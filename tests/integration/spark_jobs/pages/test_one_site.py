"""`sam-report site --site` writes the pages of one site, and no others."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.pages.site_tree import write_site
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.sql.database.engine import reading_at_once
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports.database import DAY, profile
from tests.support.reports.published_days import publish

OCTOBER_31 = date(2026, 10, 31)
BOTH_MONTHS = ("--from", f"{OCTOBER_31}", "--to", f"{DAY}")
GOOD, BAD = {"00:00": "OK"}, {"00:00": "OK", "06:00": "CRITICAL"}


def pages(out: Path) -> dict[str, str]:
    return {str(path.relative_to(out)): path.read_text() for path in out.rglob("*.html")}


def test_only_the_pages_of_the_site_are_written(
    engine: Engine, tmp_path: Path, sam_report: SamReport
) -> None:
    report = profile(tmp_path, ("functions.compute", "functions.ce"))
    out = tmp_path / "pages"
    publish(engine, report, OCTOBER_31, {"B CE h2": GOOD})
    publish(engine, report, DAY, {"A CE h1": GOOD, "B CE h2": GOOD})
    sam_report("site", *BOTH_MONTHS, "--out", str(out))
    before = pages(out)
    publish(engine, report, DAY, {"A CE h1": BAD, "B CE h2": BAD})

    printed = sam_report("site", *BOTH_MONTHS, "--out", str(out), "--site", "A")

    path = "test/2026-11/A.html"
    assert printed.splitlines() == [str(out / path)]
    after = pages(out)
    assert {name for name in after if after[name] != before.get(name)} == {path}
    sam_report("site", *BOTH_MONTHS, "--out", str(out))
    everything = pages(out)
    assert everything[path] == after[path]
    assert everything["test/2026-11/B.html"] != after["test/2026-11/B.html"]


def test_an_unknown_site_gets_no_pages(engine: Engine, tmp_path: Path) -> None:
    publish(engine, profile(tmp_path), DAY, {"SITE-A CE h1": GOOD})

    with (
        reading_at_once(engine) as connection,
        pytest.raises(ReportUsage, match="did you mean SITE-A"),
    ):
        write_site(connection, None, Period(DAY, DAY), tmp_path / "pages", "SITE-AA")

    assert not (tmp_path / "pages").exists()


def test_the_pages_of_one_site_are_listed_as_json(
    engine: Engine, tmp_path: Path, sam_report: SamReport
) -> None:
    publish(engine, profile(tmp_path), DAY, {"A CE h1": GOOD})

    printed = sam_report(
        "site", "--day", f"{DAY}", "--out", str(tmp_path / "o"), "--site", "A", "--json"
    )

    assert json.loads(printed) == {"index": None, "pages": ["test/2026-11/A.html"]}
