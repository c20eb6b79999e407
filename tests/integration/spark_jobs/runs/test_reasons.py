"""Changed figures: each has its own reasons, and the page of changes shows what did it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.runs import record
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query
from tests.support.reports.database import profile
from tests.support.reports.published_days import Timeline
from tests.support.reports.runs import FIRST, computed, day_facts

START = day_start(FIRST)
NOON = START + DAY_S // 2
EXCLUSIONS = [
    Exclusion(1, "metric", "", "ping", "EXCLUDED", "", "", START, NOON, "wrong <probe>", "jane"),
    Exclusion(2, "group", "", "", "BOTH", "", "", START, NOON, "agreed", "me"),
]
DOWNTIME = Downtime("D1", "", "down", "", START, NOON, "SCHEDULED", "OUTAGE", "new switch")
GOOD: Timeline = {"00:00": "OK"}
OAK, HALF = "OAK CE ce1", {"00:00": "OK", "12:00": "CRITICAL"}


@pytest.fixture
def report(tmp_path: Path) -> Profile:
    functions = ("[functions.compute]", "[functions.ce]")  # `computed` names them after flavours
    return profile(tmp_path, functions)


def mornings(**statuses: str) -> dict[str, Timeline]:
    """Sites with the status of their endpoint until noon; they are OK after noon."""
    return {
        f"{site} CE {site.lower()}": {"00:00": status, "12:00": "OK"}
        for site, status in statuses.items()
    }


def reasons(engine: Engine) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for names, reason in query(engine, "SELECT names, reason FROM report_change"):
        found.setdefault(json.loads(names)["site"], set()).add(reason)
    return found


def test_each_figure_has_the_reasons_that_concern_it(engine: Engine, report: Profile) -> None:
    before = dict.fromkeys(("LATE", "EXCLUDED", "DOWN", "BOTH"), "OK")
    old, _ = computed(engine, report, day_facts(FIRST), {**mornings(**before), "GONE CE g": GOOD})
    facts = day_facts(
        FIRST,
        exclusions=EXCLUSIONS,
        downtimes=[DOWNTIME],
        **dict.fromkeys(
            ("results_digest", "topology_digest", "downtimes_digest", "exclusions_digest"), "2"
        ),
    )

    new, _ = computed(
        engine,
        report,
        facts,
        mornings(
            LATE="CRITICAL", EXCLUDED="EXCLUDED", DOWN="DOWNTIME", BOTH="WARNING", NEW="CRITICAL"
        ),
    )

    found = reasons(engine)
    both = found.pop("BOTH")
    assert found == {
        "LATE": {"results changed"},
        "EXCLUDED": {"exclusions changed"},
        "DOWN": {"downtimes changed"},
        "NEW": {"topology changed"},
        "GONE": {"topology changed"},
    }
    # The exclusion of a site concerns its own figure alone.
    assert both == {"results changed, exclusions changed", "results changed"}
    assert query(engine, "SELECT DISTINCT run_id, old_run_id FROM report_change") == [(new, old)]


def test_a_change_of_the_whole_day_is_a_reason_of_every_figure(
    engine: Engine, report: Profile
) -> None:
    sites = {f"{name} CE {name.lower()}": GOOD for name in ("LATE", "STEADY")}
    computed(engine, report, day_facts(FIRST, until=NOON), sites)

    sites |= mornings(LATE="CRITICAL")
    computed(engine, report, day_facts(FIRST, results_digest="2"), sites)

    assert reasons(engine)["LATE"] == {"results changed, the day went on"}
    # Its stored timeline is longer than before, so results may have changed it.
    assert all("the day went on" in reason for reason in reasons(engine)["STEADY"])


def test_a_run_that_is_published_ends_the_older_runs_and_no_later_one(
    engine: Engine, report: Profile
) -> None:
    def begun(reporter: Engine) -> int:
        [run_id] = record.begin(reporter, report, {FIRST: 1}, START + 2 * DAY_S)
        return run_id

    with acting_as("reporter", engine) as reporter:
        runs = older, own, later = begun(reporter), begun(reporter), begun(reporter)
        record.note_facts(reporter, report, [day_facts(FIRST)], [own])
        record.publish(reporter, report, [day_facts(FIRST)], [own], START + 2 * DAY_S)

    states = dict(map(tuple, query(engine, "SELECT run_id, state FROM report_run")))
    assert [states[run_id] for run_id in runs] == ["failed", "published", "running"]
    assert older < own < later


def page_of_changes(sam_report: SamReport, out: Path) -> str:
    sam_report("site", "--month", f"{FIRST:%Y-%m}", "--out", out)
    return (out / f"test/{FIRST:%Y-%m}/changes.html").read_text()


def test_a_change_names_what_did_it_from_the_site_down_and_its_effect_on_the_month(
    engine: Engine, report: Profile, tmp_path: Path, sam_report: SamReport
) -> None:
    before = day_facts(FIRST, downtimes=[DOWNTIME], downtimes_digest="one")
    computed(engine, report, before, {OAK: HALF})
    computed(engine, report, day_facts(FIRST.replace(day=2)), {OAK: HALF})
    after = day_facts(FIRST, exclusions=EXCLUSIONS[:1], exclusions_digest="one")
    computed(engine, report, after, {OAK: GOOD})

    page = page_of_changes(sam_report, tmp_path / "pages")

    lines = re.findall(r"<li>(.*)</li>", page)
    assert [line.partition(":")[0] for line in lines] == ["no longer", "new"]
    assert "D1" in lines[0] and "new switch" in lines[0]
    assert "wrong &lt;probe&gt;" in lines[1] and "jane" in lines[1]
    levels = re.findall(r"<th scope=\"row\"><small>(\w+)</small>", page)
    assert levels == ["site", "function", "service", "endpoint"]
    [row] = [line for line in page.splitlines() if "<small>site</small>" in line]
    cells = [cell.partition("<")[0] for cell in row.split("<td>")[1:]]
    assert (cells[:2], cells[-2:]) == (["50.00000", "100.00000"], ["50.00000", "75.00000"])
