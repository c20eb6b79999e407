"""Each seal of a month is a revision that stays readable, and two are compared (rule 17)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import USAGE
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion, GroupMember
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import NAMES
from sam_pipeline.spark_jobs.runs.record import DayFacts
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.database.dialects import only_on
from tests.support.database.sql_rows import query
from tests.support.reports.database import profile
from tests.support.reports.published_days import FIRST, Timeline, computed, day_facts

MONTH = f"{FIRST:%Y-%m}"
OF_MONTH = ("--month", MONTH)
SECOND = FIRST + timedelta(days=1)
GOOD: Timeline = {"00:00": "OK"}
HALF: Timeline = {"00:00": "OK", "12:00": "CRITICAL"}
NORTH, SOUTH = "NORTH CE n1", "SOUTH CE s1"
PAIR = (GroupMember("federation", "UK", "NORTH", 1), GroupMember("federation", "UK", "SOUTH", 3))
START = day_start(FIRST)
EXCLUSION = Exclusion(
    1, "metric", "", "ping", "SOUTH", "", "", START, START + DAY_S, "broken probe", "jane"
)
DOWNTIME = Downtime(
    *("D7", "SOUTH", "", "", START, START + DAY_S, "SCHEDULED", "OUTAGE", "new cooling"),
    announced=START + 50 * DAY_S,
)


@pytest.fixture
def report(tmp_path: Path, engine: Engine) -> Profile:
    return profile(tmp_path, ("[functions.compute]", "[functions.ce]"))  # as `computed` names them


@pytest.fixture
def sealed(engine: Engine, sam_report: SamReport, report: Profile) -> Profile:
    """October as revision 1: both sites failed for half of the first day, and never later."""
    for offset in range(31):
        day = FIRST + timedelta(days=offset)
        run(engine, report, day_facts(day, members=PAIR), **({"SOUTH": HALF} if not offset else {}))
    seal(sam_report, "Jane Doe")
    return report


def run(engine: Engine, report: Profile, facts: DayFacts, **sites: Timeline) -> None:
    computed(
        engine, report, facts, {NORTH: sites.get("NORTH", GOOD), SOUTH: sites.get("SOUTH", GOOD)}
    )


def seal(sam_report: SamReport, who: str, reason: str = "late results") -> None:
    sam_report("seal", "add", *OF_MONTH, "--who", who, "--reason", reason)


def figures(sam_report: SamReport, level: str, *options: object) -> dict[tuple[str, ...], Any]:
    rows = sam_report("show", *OF_MONTH, "--level", level, *options, "--json").json
    return {
        tuple(row[name] for name in NAMES[level]): (
            row["availability"],
            row["reliability"],
            row["revision"],
        )
        for row in rows
    }


def moved(sam_report: SamReport, *revisions: int) -> Mapping[str, Mapping[str, Any]]:
    [document] = sam_report("seal", "compare", *OF_MONTH, *revisions, "--json").json
    return {row.get("site") or row["group_name"]: row for row in document["moved"]}


def test_each_revision_keeps_its_figures_of_all_levels_after_later_seals_and_runs(
    engine: Engine, sam_report: SamReport, sealed: Profile
) -> None:
    levels = ("site", "group", "endpoint", "service", "function")
    first = {level: figures(sam_report, level) for level in levels}

    run(engine, sealed, day_facts(FIRST, members=PAIR, results_digest="late"))
    seal(sam_report, "Joe")
    for _ in range(2):  # a run begins by deleting what no view shows any more
        run(engine, sealed, day_facts(SECOND, members=PAIR, results_digest="later"), NORTH=HALF)

    for level in levels:
        assert figures(sam_report, level, "--revision", 1) == first[level]
        assert figures(sam_report, level, "--revision", 2) == figures(sam_report, level)
    south = (31 * 24 - 12) / (31 * 24) * 100
    assert float(first["site"]["SOUTH",][0]) == pytest.approx(south, abs=1e-5)
    assert figures(sam_report, "site")["SOUTH",] == (100, 100, 2)
    by_day = query(
        engine,
        "SELECT revision, availability FROM report_revision_figure WHERE sealed AND level = 'site'"
        f" AND site = 'SOUTH' AND day = '{FIRST}' ORDER BY revision",
    )
    assert [(n, float(value)) for n, value in by_day] == [(1, 50), (2, 100)]


def test_a_comparison_names_the_verdicts_and_the_exclusion_or_downtime_that_moved_a_figure(
    engine: Engine, sam_report: SamReport, sealed: Profile
) -> None:
    strict = replace(sealed, targets=replace(sealed.targets, availability=99))
    run(
        engine,
        strict,
        day_facts(
            FIRST,
            members=PAIR,
            exclusions=[EXCLUSION],
            exclusions_digest="one",
            downtimes=[DOWNTIME],
            downtimes_digest="one",
        ),
        SOUTH={"00:00": "EXCLUDED", "12:00": "DOWNTIME"},
    )
    seal(sam_report, "Joe", "the probe was broken")

    changed = moved(sam_report, 1, 2)
    text = sam_report("seal", "show", *OF_MONTH, 2).out

    assert list(changed) == ["SOUTH", "UK"]
    south = changed["SOUTH"]
    assert (south["days"], changed["UK"]["level"]) == ([f"{FIRST}"], "group")
    assert any("exclusion 1" in why and "broken probe" in why for why in south["because"])
    assert any("D7" in why and "after it had begun" in why for why in south["because"])
    assert any("D7" in why for why in changed["UK"]["because"])
    assert "by Joe: the probe was broken" in text and "SOUTH" in text and "Jane" not in text


def test_a_comparison_over_several_seals_has_the_reasons_of_all_of_them(
    engine: Engine, sam_report: SamReport, sealed: Profile
) -> None:
    run(engine, sealed, day_facts(FIRST, members=PAIR, results_digest="late"))
    seal(sam_report, "Joe")
    run(engine, sealed, day_facts(SECOND, members=PAIR, topology_digest="other"), SOUTH=HALF)
    seal(sam_report, "Ann")

    both, last = moved(sam_report, 1, 3), moved(sam_report, 2, 3)

    assert both == {}  # half a day on the first, then half a day on the second
    assert last["SOUTH"]["days"] == [f"{SECOND}"]
    assert last["SOUTH"]["because"] == [f"topology changed, {SECOND}"]


@only_on("sqlite")
def test_a_seal_that_would_change_nothing_makes_no_revision(
    engine: Engine, sam_report: SamReport, sealed: Profile
) -> None:
    run(engine, sealed, day_facts(FIRST, members=PAIR, topology_digest="other"), SOUTH=HALF)

    answer = sam_report("seal", "add", *OF_MONTH, "--who", "Joe", "--reason", "again")

    assert answer.out == "" and "no figure would change" in answer.err
    assert query(engine, "SELECT revision FROM report_seal") == [(1,)]


@only_on("sqlite")
def test_revisions_that_do_not_exist_are_usage_errors(
    engine: Engine, sam_report: SamReport, sealed: Profile
) -> None:
    for arguments, problem in (
        (("seal", "compare", *OF_MONTH, 1, 2), "no revision 2"),
        (("seal", "compare", *OF_MONTH, 1, 1), "not older"),
        (("seal", "compare", "--month", "2025-11", 1, 2), "not sealed"),
        (("seal", "show", *OF_MONTH, 2), "no revision 2"),
        (("seal", "show", *OF_MONTH, 0), "not the number of a revision"),
        (("show", *OF_MONTH, "--revision", 2), "no revision 2"),
        (("show", "--from", FIRST, "--to", "2025-11-01", "--revision", 1), "one month"),
        (("seal", "add", *OF_MONTH, "--who", "J", "--reason", " "), "--reason"),
    ):
        assert problem in sam_report(*arguments, code=USAGE).err


@only_on("sqlite")
def test_a_dry_run_lists_what_to_look_at_before_the_seal(
    engine: Engine, sam_report: SamReport, report: Profile, tmp_path: Path
) -> None:
    for offset in range(31):
        day = FIRST + timedelta(days=offset)
        read: dict[str, Any] = {"results_read": 0} if offset == 3 else {}
        if offset == 0:
            read = {"downtimes": [DOWNTIME], "downtimes_digest": "one"}
        silent: Timeline = {"00:00": "MISSING"}
        sites = dict.fromkeys(("NORTH", "SOUTH"), silent) if offset in (3, 5) else {}
        run(engine, report, day_facts(day, members=PAIR, **read), **sites)

    [document] = sam_report("seal", "add", *OF_MONTH, "--dry-run", "--json").json
    text = sam_report("seal", "add", *OF_MONTH, "--dry-run").out

    empty, silent_probe, late = document["checklist"]
    assert f"{FIRST + timedelta(days=3)}" in empty
    assert "ping of CE" in silent_probe and f"{FIRST + timedelta(days=5)}" in silent_probe
    assert "D7" in late and "after it had begun" in late
    assert all(point in text for point in document["checklist"])
    sam_report("pages", *OF_MONTH, "--out", tmp_path / "pages")
    assert "not sealed" in (tmp_path / f"pages/test/{MONTH}/index.html").read_text()


@only_on("sqlite")
def test_the_page_of_revisions_has_each_one_and_what_the_next_would_change(
    engine: Engine, sam_report: SamReport, sealed: Profile, tmp_path: Path
) -> None:
    pages = tmp_path / "pages" / "test" / MONTH

    def written() -> dict[str, str]:
        sam_report("pages", *OF_MONTH, "--out", tmp_path / "pages")
        return {path.name: path.read_text() for path in pages.glob("*.html")}

    run(engine, sealed, day_facts(FIRST, members=PAIR, results_digest="late"))
    candidate = written()
    seal(sam_report, "Joe", "the <late> results")
    after = written()

    assert "would be" in candidate["revisions.html"]
    for page in ("index.html", "SOUTH.html", "NORTH.html"):
        assert "would change with the next seal" in candidate[page]
        assert "would change with the next seal" not in after[page]
        assert "as revision 2" in after[page]
    revisions = after["revisions.html"]
    assert "would be" not in revisions
    assert re.findall(r'<h2 id="revision-(\d)"', revisions) == ["2", "1"]
    [south] = [line for line in revisions.splitlines() if ">SOUTH</a>" in line]
    assert re.findall(r"<td>([\d.]+)", south) == ["98.39", "100.00", "98.39", "100.00"]
    assert "by Joe: the &lt;late&gt; results" in revisions and "results changed" in south
