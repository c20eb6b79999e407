"""The page of a day: the sites that were not OK all day, over its hours."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from sqlalchemy import Engine

from tests.integration.spark_jobs.conftest import SamReport
from tests.support.database.dialects import only_on
from tests.support.reports.database import profile
from tests.support.reports.published_days import publish

DAY, NEXT = date(2025, 10, 14), date(2025, 10, 15)
GOOD = {"00:00": "OK"}


@only_on("sqlite")
def test_a_day_shows_the_sites_that_were_not_ok_all_day_the_worst_first(
    engine: Engine, sam_report: SamReport, tmp_path: Path
) -> None:
    report = profile(tmp_path, ("[functions.compute]", "[functions.ce]"))
    sites = {
        "FINE CE c1": GOOD,
        "WARNS CE c2": {"00:00": "WARNING"},
        "FAILS CE c3": {"00:00": "OK", "09:00": "CRITICAL", "15:00": "OK"},
    }
    publish(engine, report, DAY, sites)
    publish(engine, report, NEXT, dict.fromkeys(sites, GOOD))
    sam_report("pages", "--month", "2025-10", "--out", tmp_path / "pages")
    month = tmp_path / "pages/test/2025-10"

    page, good = ((month / f"days/{day}.html").read_text() for day in (DAY, NEXT))

    rows = re.findall(r'<tr><th scope="row"><a href="../(\w+).html">.*?aria-label="(.*?)"', page)
    assert [site for site, _ in rows] == ["FAILS", "WARNS"]
    assert "CRITICAL 09:00:00-15:00:00" in rows[0][1] and rows[1][1] == "WARNING all day"
    assert f'href="../FAILS.html#{DAY}"' in page and ">FINE</a>" in page
    assert "OK all day" in good and f'href="{DAY}.html"' in good
    assert f'<a href="days/{DAY}.html">' in (month / "index.html").read_text()
