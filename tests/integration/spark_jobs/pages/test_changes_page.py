"""The page of changes: figures that are shown differently, what did it, and the month."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, NAMES, SERVICE, SITE
from sam_pipeline.spark_jobs.runs import record
from sam_pipeline.sql.database.engine import make_engine, writing
from tests.support.reports.database import profile
from tests.support.reports.runs import FIRST, day_facts, url_of

START = day_start(FIRST)
NOON = START + DAY_S // 2
ALL_NAMES = {"site": "OAK", "service_flavour": "CE", "host_name": "ce1", "function": "compute"}
EXCLUSION = Exclusion(1, "metric", "", "ping", "OAK", "", "", START, NOON, "wrong <probe>", "jane")
DOWNTIME = Downtime("D1", "OAK", "", "", START, NOON, "SCHEDULED", "OUTAGE", "new switch")


@pytest.fixture
def report(tmp_path: Path) -> Profile:
    return profile(tmp_path)


def run(
    engine: Engine,
    report: Profile,
    ok_s: int,
    critical_s: int,
    day: date = FIRST,
    **facts: object,
) -> None:
    """A run of a day in which everything at the site OAK was OK and CRITICAL for some time."""
    reporter = make_engine(url_of(engine))
    [run_id] = record.begin(reporter, report, {day: 1}, START + 2 * DAY_S)
    percent = 100 * ok_s / (ok_s + critical_s)
    with writing(reporter) as connection:
        for level in (SITE, FUNCTION, SERVICE, ENDPOINT):
            row = {
                "run_id": run_id,
                **{name: ALL_NAMES[name] for name in NAMES[level]},
                "availability": percent,
                "reliability": percent,
                "ok_s": ok_s,
                "critical_s": critical_s,
                **dict.fromkeys(("warning_s", "unknown_s", "missing_s"), 0),
                **dict.fromkeys(("downtime_s", "excluded_s"), 0),
            }
            values = ", ".join(f":{name}" for name in row)
            statement = f"INSERT INTO {level}_figure ({', '.join(row)}) VALUES ({values})"
            connection.execute(text(statement), row)
    of_day = [day_facts(day, **facts)]
    record.note_facts(reporter, report, of_day, [run_id])
    record.publish(reporter, report, of_day, [run_id], START + 2 * DAY_S)
    reporter.dispose()


def page_of_changes(engine: Engine, out: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    assert main(["site", "--month", f"{FIRST:%Y-%m}", "--out", str(out)]) == 0
    return (out / f"test/{FIRST:%Y-%m}/changes.html").read_text()


def test_a_day_that_went_on_lists_no_figure_that_is_shown_as_before(
    engine: Engine, report: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, report, DAY_S // 2, 0, until=NOON)
    run(engine, report, DAY_S, 0)

    page = page_of_changes(engine, tmp_path / "pages", monkeypatch)

    assert "100.00000" not in page
    assert "No figure has changed" in page


def test_a_change_names_the_exclusion_and_the_downtime_that_did_it(
    engine: Engine, report: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, report, DAY_S // 2, DAY_S // 2, downtimes=[DOWNTIME], downtimes_digest="one")
    run(engine, report, DAY_S, 0, exclusions=[EXCLUSION], exclusions_digest="one")

    page = page_of_changes(engine, tmp_path / "pages", monkeypatch)

    lines = re.findall(r"<li>(.*)</li>", page)
    assert [line.partition(":")[0] for line in lines] == ["no longer", "new"]
    assert "D1" in lines[0]
    assert "new switch" in lines[0]
    assert "wrong &lt;probe&gt;" in lines[1]
    assert "jane" in lines[1]


def test_changes_are_listed_from_the_site_down_to_its_endpoints(
    engine: Engine, report: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, report, DAY_S // 2, DAY_S // 2)
    run(engine, report, DAY_S, 0, results_digest="late")

    page = page_of_changes(engine, tmp_path / "pages", monkeypatch)

    levels = re.findall(r"<th scope=\"row\"><small>(\w+)</small>", page)
    assert levels == ["site", "function", "service", "endpoint"]


def test_the_change_of_a_site_shows_its_effect_on_the_month(
    engine: Engine, report: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, report, DAY_S // 2, DAY_S // 2)
    run(engine, report, DAY_S // 2, DAY_S // 2, FIRST.replace(day=2))
    run(engine, report, DAY_S, 0, results_digest="late")

    page = page_of_changes(engine, tmp_path / "pages", monkeypatch)

    [row] = [line for line in page.splitlines() if "<small>site</small>" in line]
    cells = [cell.partition("<")[0] for cell in row.split("<td>")[1:]]
    assert cells[:2] == ["50.00000", "100.00000"]
    assert cells[-2:] == ["50.00000", "75.00000"]
