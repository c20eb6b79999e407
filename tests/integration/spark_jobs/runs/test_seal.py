"""Sealed months keep their published figures (rule 17); changed figures have their reasons."""

from __future__ import annotations

import json
import random
import re
import tomllib
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.program.command import NO_PERMISSION, USAGE
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion, GroupMember
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start, month_of
from sam_pipeline.spark_jobs.runs import record
from sam_pipeline.spark_jobs.runs.due import due_days
from sam_pipeline.spark_jobs.runs.published import candidates, published_runs
from sam_pipeline.spark_jobs.runs.record import Published
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.operations import operations
from sam_pipeline.sql.errors import DatabaseRefused
from sam_pipeline.sql.loading.fold import fold_all
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.builders import metric_result
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert, query
from tests.support.reports.database import PROFILE, profile
from tests.support.reports.month import insert as insert_rows
from tests.support.reports.published_days import FIRST, Timeline, computed, day_facts

MONTH = f"{FIRST:%Y-%m}"
DAYS = list(month_of(FIRST).days())
SECOND = DAYS[1]
OF_MONTH = ("seal", "add", "--month", MONTH)
SEAL = (*OF_MONTH, "--who", "Jane Doe")
AGAIN = (*OF_MONTH, "--who", "Joe", "--reason", "late results")
LATE = {"results_digest": "late results"}
AT_FOUR_LEVELS = 4
"""Figures of each day."""


@pytest.fixture
def report(tmp_path: Path) -> Profile:
    return profile(tmp_path, ("[functions.compute]", "[functions.ce]"))  # as `computed` names them


def month_computed(engine: Engine, but: tuple[date, ...] = ()) -> None:
    """Publish the whole month by inserting rows, since a run for each day would take long."""
    lite = engine.dialect.name == "sqlite"
    with writing(engine) as connection:
        for day in set(DAYS) - set(but):
            values = {
                "day": str(day),
                "now": day_start(day) if lite else f"{day}T00:00Z",
                "profile": json.dumps(tomllib.loads(PROFILE)),
            }
            statement = (
                "INSERT INTO run (report, day, started_at, state, change_no, profile)"
                " VALUES ('test', :day, :now, 'published', 0, :profile) RETURNING run_id"
            )
            run_id = connection.execute(text(statement), values).scalar_one()
            row = {"report": "test", "day": str(day), "run_id": run_id}
            insert_rows(connection, "published_run", [row])


def published(engine: Engine) -> tuple[object, ...]:
    """The figures of the month as readers see them, and its seals."""
    figures = query(engine, "SELECT * FROM site_availability ORDER BY day")
    return figures, query(engine, "SELECT * FROM report_seal")


def states(engine: Engine, *run_ids: int) -> list[str]:
    state_of = dict(map(tuple, query(engine, "SELECT run_id, state FROM report_run")))
    return [state_of[run_id] for run_id in run_ids]


def test_a_sealed_day_keeps_its_figures_and_a_later_run_is_its_candidate(
    engine: Engine, sam_report: SamReport, report: Profile
) -> None:
    month_computed(engine, but=(FIRST,))
    old, _ = computed(engine, report, day_facts(FIRST), ok_h=20)
    sam_report(*SEAL)
    before = published(engine)

    new, result = computed(engine, report, day_facts(FIRST, **LATE), ok_h=19)

    assert result == Published(changes=0, sealed_days=1, candidates=AT_FOUR_LEVELS)
    assert published(engine) == before
    assert states(engine, old, new) == ["published", "candidate"]
    of_months = query(engine, "SELECT revision FROM site_month")
    assert of_months == [(1,)]
    [(sealed, candidate_figure)] = query(
        engine, f"SELECT old, new FROM report_change WHERE level = 'site' AND run_id = {new}"
    )
    assert [json.loads(f)["ok_s"] // 3600 for f in (sealed, candidate_figure)] == [20, 19]
    with acting_as("reader", engine) as reader, reading(reader) as connection:
        runs = published_runs(connection, "test", Period(FIRST, FIRST))
        [candidate] = candidates(connection, None, month_of(FIRST))
    assert [run.run_id for run in runs] == [old]
    assert (candidate.figures, candidate.reasons) == (AT_FOUR_LEVELS, ["results changed"])


def test_only_the_newest_candidate_is_kept_and_none_with_the_sealed_figures(
    engine: Engine, sam_report: SamReport, report: Profile
) -> None:
    month_computed(engine, but=(FIRST,))
    sealed, _ = computed(engine, report, day_facts(FIRST), ok_h=20)
    sam_report(*SEAL)
    older, _ = computed(engine, report, day_facts(FIRST, **LATE), ok_h=19)

    newer, _ = computed(engine, report, day_facts(FIRST, **LATE), ok_h=18)
    november, _ = computed(engine, report, day_facts(date(2025, 11, 1)))  # removes the older one

    assert states(engine, sealed, older, newer) == ["published", "superseded", "candidate"]
    run_ids = query(engine, "SELECT run_id FROM figure WHERE level = 'site' ORDER BY run_id")
    assert [run_id for (run_id,) in run_ids] == [sealed, newer, november]
    computed(engine, report, day_facts(FIRST, **LATE), ok_h=20)
    assert query(engine, "SELECT * FROM report_candidate") == []


def test_a_candidate_counts_as_computed(
    engine: Engine, sam_report: SamReport, report: Profile
) -> None:
    month_computed(engine, but=(FIRST,))
    computed(engine, report, day_facts(FIRST))
    sam_report(*SEAL)
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO changed_day (day) VALUES (:day)"), {"day": str(FIRST)})

    def due() -> list[date]:
        with acting_as("reporter", engine) as reporter, reading(reporter) as connection:
            return due_days(connection, "test", FIRST + timedelta(days=5))

    before = due()
    computed(engine, report, day_facts(FIRST, **LATE))
    after = due()
    with writing(engine) as connection:
        connection.execute(text("UPDATE changed_day SET change_no = NULL"))

    assert (before, after, due()) == ([FIRST], [], [FIRST])


def test_another_seal_publishes_the_candidates_at_once(
    engine: Engine, sam_report: SamReport, report: Profile
) -> None:
    month_computed(engine, but=(FIRST, SECOND))
    old = [computed(engine, report, day_facts(day), ok_h=1)[0] for day in (FIRST, SECOND)]
    sam_report(*SEAL)
    new = [computed(engine, report, day_facts(day), ok_h=2)[0] for day in (FIRST, SECOND)]

    [line] = sam_report(*AGAIN).out.splitlines()

    assert line.startswith(f"test {MONTH}: sealed by Joe, revision 2")
    assert re.findall(r"\d+ \w+s", line) == ["2 days", f"{2 * AT_FOUR_LEVELS} figures"]
    assert states(engine, *old, *new) == ["superseded"] * 2 + ["published"] * 2
    figures = query(engine, "SELECT ok_s FROM site_availability ORDER BY day")
    assert figures == [(7200,), (7200,)]
    assert query(engine, "SELECT * FROM report_candidate") == []
    newest, result = computed(engine, report, day_facts(FIRST), ok_h=3)
    assert result == Published(sealed_days=1, candidates=AT_FOUR_LEVELS)
    assert states(engine, newest) == ["candidate"]
    # Who sealed each revision stays on record, in the log of operations too.
    [listed] = sam_report("seal", "list", "--json").json
    revisions = [(entry["revision"], entry["who"]) for entry in listed["revisions"]]
    assert revisions == [(1, "Jane Doe"), (2, "Joe")]
    recorded = [(o.command, json.loads(o.arguments)["who"]) for o in operations(engine)]
    assert sorted(recorded) == [("seal", "Jane Doe"), ("seal", "Joe")]


def test_the_waiting_candidates_are_listed_and_their_effect_is_shown_before_they_are_sealed(
    engine: Engine, sam_report: SamReport, report: Profile
) -> None:
    month_computed(engine, but=(FIRST, SECOND))
    for day in (FIRST, SECOND):
        computed(engine, report, day_facts(day))
    sam_report(*SEAL)
    computed(engine, report, day_facts(FIRST, **LATE), ok_h=12)
    # This run has the sealed figures.
    computed(engine, report, day_facts(SECOND, topology_digest="other"))
    before = published(engine)

    [listed] = sam_report("seal", "list", "--json").json
    shown = sam_report("show", "--month", MONTH)
    [document] = sam_report(*OF_MONTH, "--dry-run", "--json").json
    [details] = sam_report("seal", "show", "--month", MONTH, "--json").json
    lines = sam_report("seal", "show", "--month", MONTH).out.splitlines()

    assert listed["candidates"] == [
        {"day": f"{FIRST}", "figures_changed": AT_FOUR_LEVELS, "reasons": ["results changed"]}
    ]
    [warning] = [line for line in shown.err.splitlines() if "test: sealed" in line]
    assert re.findall(r"(\d+) (?:figure|day)", warning) == [f"{AT_FOUR_LEVELS}", "1"]
    numbers = [document[name] for name in ("revision", "candidate_days", "figures_changed")]
    assert numbers == [2, 1, AT_FOUR_LEVELS]
    [site] = document["moved"]
    figures = [float(site[name]) for name in ("availability_before", "availability_after")]
    assert (site["site"], figures) == ("A", [100, 75])
    assert details == {**listed, "moved": [site]}
    assert lines[:2] == [f"test {MONTH}", lines[1]] and "revision 1" in lines[1]
    assert f"candidate {FIRST}" in lines[2] and "100.00" in lines[-1] and "75.00" in lines[-1]
    assert published(engine) == before


def test_a_month_with_holes_is_not_sealed(
    engine: Engine, sam_report: SamReport, report: Profile
) -> None:
    month_computed(engine, but=(*DAYS[:20], DAYS[24], DAYS[28]))
    noon = day_start(DAYS[28]) + 43_200
    computed(engine, report, day_facts(DAYS[28], until=noon), now=noon, ok_h=2)
    for name in ("cms", "atlas"):
        computed(engine, replace(report, name=name), day_facts(FIRST))

    error = sam_report(*SEAL, code=USAGE).err

    assert f"test: {DAYS[0]} to {DAYS[19]}, {DAYS[24]} never computed" in error
    assert f"test: {DAYS[28]} computed while" in error
    assert f"atlas, cms: {SECOND} to {DAYS[-1]} never computed" in error
    assert query(engine, "SELECT * FROM report_seal") == []


def test_a_month_in_which_results_began_is_sealed_from_its_first_result_on(
    engine: Engine, sam_report: SamReport
) -> None:
    month_computed(engine, but=DAYS[:24])  # type: ignore[arg-type]
    insert(engine, "metricOutput", metric_result(timestamp=f"{DAYS[23]}T10:00:00Z"))
    fold_all(engine)

    refused = sam_report(*SEAL, code=USAGE)
    month_computed(engine, but=(*DAYS[:23], *DAYS[24:]))
    sealed = sam_report(*SEAL)

    assert f"test: {DAYS[23]} never computed" in refused.err
    assert "8 of 31 days" in sealed.out


@only_on("sqlite")
def test_a_month_must_be_over_and_known(engine: Engine, sam_report: SamReport) -> None:
    month_computed(engine)
    this_month = f"{datetime.now(UTC):%Y-%m}"
    assert sam_report("seal", "list").out == "no sealed months\n"
    assert "is not sealed" in sam_report("seal", "show", "--month", MONTH, code=USAGE).err

    for arguments, problem in (
        (("--month", this_month, "--who", "J"), f"{this_month} is not over"),
        (("--month", "2024-02", "--who", "J"), "nothing is published for 2024-02-01"),
        (("--month", MONTH, "--who", "J", "--report", "x"), "no report x"),
        (("--month", MONTH), "--who NAME"),
        (("--month", MONTH, "--who", " "), "--who"),
    ):
        assert problem in sam_report("seal", "add", *arguments, code=USAGE).err
    assert query(engine, "SELECT * FROM report_seal") == []


@only_on("postgresql")
def test_a_seal_binds_the_role_that_writes_reports(
    engine: Engine, sam_report: SamReport, report: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    month_computed(engine, but=(FIRST,))
    run, _ = computed(engine, report, day_facts(FIRST), ok_h=20)
    sam_report(*SEAL)
    other, _ = computed(engine, report, day_facts(FIRST, **LATE), ok_h=19)
    before = published(engine)

    with acting_as("reporter", engine) as reporter:
        for statement in (
            f"UPDATE published_run SET run_id = {other} WHERE day = '{FIRST}'",
            f"UPDATE published_run SET day = '2020-01-01' WHERE day = '{FIRST}'",
            (
                f"INSERT INTO published_run VALUES ('test', '{FIRST}', {other})"
                " ON CONFLICT (report, day) DO UPDATE SET run_id = excluded.run_id"
            ),
            f"UPDATE run SET state = 'failed' WHERE run_id = {run}",
            "UPDATE run SET state = 'running'",
            f"DELETE FROM figure WHERE run_id = {run}",
            (
                f"INSERT INTO figure VALUES ({run}, 'site', 'B', '', '', '',"
                " 100, 100, 86400, 0, 0, 0, 0, 0, 0)"
            ),
            f"UPDATE figure SET availability = 100 WHERE run_id = {run}",
            f"DELETE FROM run WHERE run_id = {run}",
            f"DELETE FROM published_run WHERE run_id = {run}",
            "TRUNCATE figure",
            (
                "INSERT INTO timeline_segment VALUES"
                f" ({run}, 'site', 'A', '', '', '', '', '{FIRST}', '{FIRST}T12:00Z', 'OK')"
            ),
            (
                "INSERT INTO report_change_row (run_id, level, names, reason)"
                f" VALUES ({run}, 'site', '{{}}', 'results changed')"
            ),
            "UPDATE seal SET who = 'somebody else'",
            "DELETE FROM seal",
            "DELETE FROM revision_run",
            f"UPDATE revision_run SET run_id = {other}",
        ):
            with pytest.raises(DatabaseRefused), writing(reporter) as connection:
                connection.execute(text(statement))
        with writing(reporter) as connection:
            connection.execute(text("SELECT sweep_runs()"))

    assert published(engine) == before
    assert states(engine, run, other) == ["published", "candidate"]
    # A login that may only read learns which role the command needs.
    monkeypatch.setattr("tests.support.commands.ROLES", [("sam-report", "reader")])
    assert "sam_reporter" in sam_report(*AGAIN, code=NO_PERMISSION).err


# Changed figures have their own reasons, which the page of changes shows --------------------------


START = day_start(FIRST)
NOON = START + DAY_S // 2
EXCLUSIONS = [
    Exclusion(1, "metric", "", "ping", "EXCLUDED", "", "", START, NOON, "wrong <probe>", "jane"),
    Exclusion(2, "site", "", "", "BOTH", "", "", START, NOON, "agreed", "me"),
]
DOWNTIME = Downtime("D1", "", "down", "", START, NOON, "SCHEDULED", "OUTAGE", "new switch")
GOOD: Timeline = {"00:00": "OK"}
OAK, HALF = "OAK CE ce1", {"00:00": "OK", "12:00": "CRITICAL"}


def mornings(**statuses: str) -> dict[str, Timeline]:
    """Sites with the status of their endpoint until noon; they are OK after noon."""
    return {
        f"{site} CE {site.lower()}": {"00:00": status, "12:00": "OK"}
        for site, status in statuses.items()
    }


def reasons(engine: Engine) -> dict[str, set[str]]:
    """The reasons of all figures of each site, and of each group."""
    found: dict[str, set[str]] = {}
    for names, reason in query(engine, "SELECT names, reason FROM report_change"):
        of = json.loads(names)
        found.setdefault(of.get("site", of.get("group_name")), set()).add(reason)
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


# Groups change with their members -----------------------------------------------------------------


def in_group(name: str, **weights: int | None) -> list[GroupMember]:
    return [GroupMember("tier", name, site, weight) for site, weight in weights.items()]


TWO_SITES = {"A CE a": GOOD, "B CE b": HALF}


def group_changes(engine: Engine) -> list[tuple[str, Any, Any, str]]:
    rows = query(engine, "SELECT names, old, new, reason FROM report_change WHERE level = 'group'")
    return [
        (json.loads(names)["group_name"], old and json.loads(old), new and json.loads(new), reason)
        for names, old, new, reason in rows
    ]


def test_a_changed_weight_in_a_sealed_month_is_a_candidate_with_its_effect_on_the_month(
    engine: Engine, sam_report: SamReport, report: Profile, tmp_path: Path
) -> None:
    month_computed(engine, but=(FIRST, SECOND))
    for day in (FIRST, SECOND):
        members = in_group("2", A=None, B=3)
        computed(engine, report, day_facts(day, members=members), TWO_SITES)
    sam_report(*SEAL)
    before = query(engine, "SELECT * FROM group_month")

    heavier = day_facts(FIRST, members=in_group("2", A=None, B=10))
    _, result = computed(engine, report, heavier, TWO_SITES)

    assert result == Published(sealed_days=1, candidates=1)
    assert query(engine, "SELECT * FROM group_month") == before
    [(name, old, new, reason)] = group_changes(engine)
    assert (name, reason) == ("2", "topology changed")
    assert (old["availability"], old["weights"]) == (62.5, {"B": 3})
    assert (new["availability"], new["weights"]) == (54.54545, {"B": 10})
    [listed] = sam_report("seal", "list", "--json").json
    [document] = sam_report(*OF_MONTH, "--dry-run", "--json").json
    assert [day["figures_changed"] for day in listed["candidates"]] == [1]
    assert document["figures_changed"] == 1
    [effect] = document["moved"]
    # A has 100 with the weight 2, B 50 with the weights 3 and 10 instead of 3 and 3.
    assert (effect["group_name"], effect["availability_before"]) == ("2", 62.5)
    assert effect["availability_after"] == 56.66667
    assert effect["because"] == [f"weight of B 3 → 10, {FIRST}"]
    warning = sam_report("show", "--level", "group", "--month", MONTH).err
    assert "1 figure of 1 day would change" in warning
    page = page_of_changes(sam_report, tmp_path / "pages")
    assert "weight of B 3 → 10" in page and 'href="groups/tier.html#group-2"' in page
    # Another seal publishes what was announced.
    sam_report(*SEAL, "--reason", "a corrected weight")
    [row] = sam_report("show", "--level", "group", "--month", MONTH, "--json").json
    assert row["availability"] == effect["availability_after"]


def test_groups_have_the_reasons_of_their_members_and_of_their_membership(
    engine: Engine, report: Profile
) -> None:
    members = in_group("same", OTHER=1) + in_group("late", LATE=2) + in_group("left", A=1, B=1)
    members += in_group("heavier", A=1)
    before = {f"{site} CE {site.lower()}": GOOD for site in ("OTHER", "LATE", "A", "B", "NEW")}
    computed(engine, report, day_facts(FIRST, members=members), before)
    members = in_group("same", OTHER=1) + in_group("late", LATE=2)
    members += in_group("left", A=1, NEW=4) + in_group("new", B=None) + in_group("heavier", A=9)
    facts = day_facts(FIRST, members=members, **LATE)

    _, done = computed(engine, report, facts, before | {"LATE CE late": HALF})

    assert done == Published(changes=AT_FOUR_LEVELS + 4)
    assert reasons(engine) == {
        "LATE": {"results changed"},
        "late": {"results changed"},
        "left": {"topology changed"},
        "new": {"topology changed"},
        "heavier": {"topology changed"},
    }
    weights = {
        name: [side and side["weights"] for side in sides]
        for name, *sides, _ in group_changes(engine)
    }
    assert weights == {
        "late": [{"LATE": 2}, {"LATE": 2}],
        "left": [{"B": 1}, {"NEW": 4}],
        "new": [None, {"B": 1}],
        "heavier": [{"A": 1}, {"A": 9}],
    }


def test_a_member_that_changes_no_figure_of_the_day_but_may_change_the_month_is_noted(
    engine: Engine, report: Profile
) -> None:
    """Both sites are OK, so their weights do not matter on this day."""
    both = {"A CE a": GOOD, "B CE b": GOOD}
    computed(engine, report, day_facts(FIRST, members=in_group("2", A=1, B=1)), both)

    computed(engine, report, day_facts(FIRST, members=in_group("2", A=1, B=5)), both)
    computed(engine, report, day_facts(FIRST, members=in_group("2", A=1, B=5)), both)

    [(_, old, new, _)] = group_changes(engine)
    assert old == {**new, "weights": {"B": 1}} and new["weights"] == {"B": 5}


@only_on("sqlite")
@pytest.mark.parametrize("seed", range(6))
def test_a_random_change_of_a_day_is_noted_for_each_group_of_which_anything_differs(
    engine: Engine, report: Profile, seed: int
) -> None:
    """Sites and members come and go, and weights and statuses change, or nothing does."""
    chance = random.Random(seed)

    def drawn() -> tuple[dict[str, Timeline], list[GroupMember]]:
        """A day of few differences: most sites are OK and most weights none."""
        endpoints = {
            f"{site} CE {site.lower()}": chance.choice([GOOD, GOOD, GOOD, HALF])
            for site in "ABCD"
            if chance.random() < 0.9
        }
        members = [
            GroupMember("tier", name, site, chance.choice([None, None, 1, 0, 5]))
            for name in "1234567"
            for site in chance.sample("ABCD", 2)
        ]
        return endpoints, members

    def by_group(
        endpoints: dict[str, Timeline], members: list[GroupMember]
    ) -> dict[str, dict[str, Any]]:
        """The members that the report expects: the weight that counts, and the timeline."""
        of_site = {name.split()[0]: timeline for name, timeline in endpoints.items()}
        groups: dict[str, dict[str, Any]] = {}
        for _, name, site, weight in members:
            if site in of_site:
                counts = 1 if weight is None else weight
                groups.setdefault(name, {})[site] = (counts, of_site[site])
        return groups

    old, new = drawn(), drawn()
    kept = {name for name in "1234567" if chance.random() < 0.6}
    new = (
        {
            name: old[0].get(name, of) if chance.random() < 0.6 else of
            for name, of in new[0].items()
        },
        [member for member in old[1] if member.group_name in kept]
        + [member for member in new[1] if member.group_name not in kept],
    )
    for endpoints, members in (old, new):
        computed(engine, report, day_facts(FIRST, members=members), endpoints)

    before, after = by_group(*old), by_group(*new)
    expected = {
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }
    changes = {name: rest for name, *rest in group_changes(engine)}
    assert changes.keys() == expected
    for name, (old_row, new_row, _) in changes.items():
        for row, groups, others in ((old_row, before, after), (new_row, after, before)):
            members_now, members_then = groups.get(name, {}), others.get(name, {})
            assert (row is None) == (name not in groups)
            assert (row or {"weights": {}})["weights"] == {
                site: weight
                for site, (weight, timeline) in members_now.items()
                if members_then.get(site) != (weight, timeline)
            }


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
    sam_report("pages", "--month", f"{FIRST:%Y-%m}", "--out", out)
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
