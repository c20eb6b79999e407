"""What readers are shown of published days: figures, targets, months, trends, incidents, causes."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.program.command import USAGE
from sam_pipeline.spark_jobs.explain.incidents import LOOK_AT
from sam_pipeline.spark_jobs.inputs.announced import Downtime
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, as_day, day_start, month_of
from sam_pipeline.spark_jobs.rules.figures import Figure, Member
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.rules.seconds import rounded
from sam_pipeline.spark_jobs.runs.months import MonthFigure, month_figures
from sam_pipeline.spark_jobs.runs.published import second_or_none
from sam_pipeline.spark_jobs.runs.summary import period_figures
from sam_pipeline.sql.database.engine import reading, writing
from tests.integration.spark_jobs.conftest import SamReport
from tests.oracle.duckdb_groups import exported_groups
from tests.support.commands import Answer
from tests.support.database.dialects import only_on
from tests.support.database.sql_rows import insert, service_endpoint, site_contact
from tests.support.reports.database import DAY, Grid, profile
from tests.support.reports.published_days import Timeline, publish
from tests.support.reports.stored import percentages

NEXT = DAY + timedelta(days=1)
END = day_start(NEXT) + 86_399
BOTH = ("--from", DAY, "--to", NEXT)
OF_DAY = ("--day", DAY)
PROFILE = """\
name = "test"
validity_s = "off"
vo = "ops"
[flavours.CE]
metrics = ["ping"]
[flavours.SRM]
metrics = ["ping"]
[functions.ce]
flavours = ["CE", "SRM"]
"""
TARGETS = """\
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
GOOD: Timeline = {"00:00": "OK"}
BAD: Timeline = {"00:00": "OK", "06:00": "CRITICAL"}
HALF: Timeline = {"00:00": "OK", "12:00": "CRITICAL"}
DOWN: Timeline = {"00:00": "CRITICAL"}
LATE: Timeline = {"00:00": "OK", "21:00": "CRITICAL"}


@pytest.fixture
def report(tmp_path: Path) -> Profile:
    return read_profile(write(tmp_path, PROFILE))


def write(directory: Path, text: str) -> Path:
    (directory / "profile.toml").write_text(text)
    return directory / "profile.toml"


def table(answer: Answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.out)))


# Targets and groups ------------------------------------------------------------------------------


def missed(sam_report: SamReport, *arguments: object) -> dict[str, list[str]]:
    """The targets that each thing missed, by its names."""
    rows: list[dict[str, Any]] = sam_report("show", "--json", *arguments).json
    names = ("group_type", "group_name", "site", "function")
    return {" ".join(row[n] for n in names if n in row): row["missed"] for row in rows}


def test_each_site_and_group_is_compared_with_its_own_targets(
    engine: Engine, sam_report: SamReport, tmp_path: Path
) -> None:
    tiers = read_profile(write(tmp_path, PROFILE + TARGETS))
    days = {"A CE a1": LATE, "B CE b1": LATE, "C CE c1": {"00:00": "OK", "18:00": "CRITICAL"}}
    members = [
        *(Member("federation", "NORTH", "A", 1), Member("tier", "1", "A", 1)),
        Member("tier", "2", "C", 1),
    ]
    publish(engine, tiers, DAY, days, members)
    lines = sam_report("show", *OF_DAY).out.splitlines()
    sam_report("pages", *OF_DAY, "--out", tmp_path / "out")
    page = (tmp_path / "out/test" / f"{DAY:%Y-%m}" / "A.html").read_text()

    # Of the two groups of A the stricter one counts; C has a target of its own, but misses another.
    assert missed(sam_report, *OF_DAY) == {"A": ["availability"], "B": [], "C": ["reliability"]}
    assert missed(sam_report, *OF_DAY, "--level", "function")["A ce"] == ["availability"]
    assert missed(sam_report, *OF_DAY, "--level", "group") == {
        "federation NORTH": [],
        "tier 1": ["availability"],
        "tier 2": ["availability", "reliability"],
    }
    assert "targets of tier 2: availability 95 %" in lines
    assert "the target is 99 %" in page
    # A site has the targets of its newest groups of the period.
    publish(engine, tiers, NEXT, days, [Member("tier", "3", "A", 1)])
    assert missed(sam_report, *BOTH)["A"] == []


# Months ------------------------------------------------------------------------------------------

AUTUMN = ("--by", "month", "--from", "2026-09-10", "--to", "2026-11-10")


@pytest.fixture
def autumn(engine: Engine, report: Profile, sam_report: SamReport) -> SamReport:
    """`sam-report` with four months, in one of which no day was computed."""
    north = [Member("federation", "North", site, 1) for site in "AB"]
    for day, endpoints in (
        (date(2026, 8, 31), {"A CE h1": DOWN}),
        (date(2026, 9, 10), {"A CE h1": HALF, "B CE h2": GOOD}),
        (date(2026, 9, 11), {"A CE h1": GOOD}),
        (date(2026, 11, 1), {"A CE h1": GOOD, "B CE h2": HALF}),
    ):
        publish(engine, report, day, endpoints, north)
    return sam_report


def test_each_month_is_compared_with_the_one_before(autumn: SamReport) -> None:
    keys = ("site", "month", "availability", "availability_change", "days")
    rows = [[row[key] for key in keys] for row in autumn("show", *AUTUMN, "--json").json]
    first, second = table(autumn("show", *AUTUMN, "--level", "group", "--format", "csv"))
    heading, _, columns, _, line, *_ = autumn("show", *AUTUMN).out.splitlines()

    assert rows == [
        ["A", "2026-09", 75, 75, 2],  # after August, which is not listed
        ["A", "2026-11", 100, None, 1],  # nothing is known of October
        ["B", "2026-09", 100, None, 1],
        ["B", "2026-11", 50, None, 1],
    ]
    # The mean of 75 on two days and 100 on one, after 0 of site A alone.
    assert (first["availability"], first["availability_change"]) == ("83.33333", "83.33333")
    assert (first["month"], first["sites_expected"], first["sites_known"]) == ("2026-09", "2", "2")
    assert second["missed"] == "availability reliability"
    assert heading == "test, 2026-09 to 2026-11"
    assert columns.split()[:4] == ["site", "month", "availability", "change"]
    assert line.split()[:4] == ["A", "2026-09", "75.00", "+75.00"] and "2 of 30" in line


@only_on("sqlite")
def test_the_table_has_the_worst_first_and_its_changes_add_up(
    engine: Engine, report: Profile, sam_report: SamReport
) -> None:
    """In files, things are in order of their names."""
    before = {"00:00": "CRITICAL", "15:59": "OK", "23:59": "CRITICAL"}
    day = {"A CE a": {"00:00": "OK", "18:31": "CRITICAL"}, "B CE b": GOOD, "C CE c": DOWN}
    publish(engine, report, date(2026, 10, 1), {"A CE a": before})
    publish(engine, report, DAY, day)

    worst_first = [line.split()[0] for line in sam_report("show", *OF_DAY).out.splitlines()[4:7]]
    rows = sam_report("show", *OF_DAY, "--json").json
    months = sam_report("show", "--by", "month", "--month", "2026-11").out.splitlines()

    assert worst_first == ["C", "A", "B"] and [row["site"] for row in rows] == ["A", "B", "C"]
    # 33.33333 and 77.15278
    assert months[4].split()[:4] == ["A", "2026-11", "77.15", "+43.82"]


@only_on("sqlite")
def test_a_month_that_is_not_over_is_not_the_third_bad_one(
    engine: Engine, report: Profile, sam_report: SamReport, tmp_path: Path
) -> None:
    for day in (date(2026, 8, 31), date(2026, 9, 30), date(2026, 10, 30)):
        publish(engine, report, day, {"A CE a": DOWN})
    october, last = ("--month", "2026-10"), date(2026, 10, 31)

    def in_a_row() -> tuple[object, bool]:
        [row] = sam_report("show", "--by", "month", *october, "--json").json
        sam_report("pages", *october, "--out", tmp_path)
        pages = [tmp_path / "index.html", tmp_path / "test/2026-10/index.html"]
        [on_pages] = {"bad months in a row" in page.read_text() for page in pages}
        return row["bad_months_in_a_row"], on_pages

    assert in_a_row() == (False, False)
    publish(engine, report, last, {"A CE a": DOWN}, until=day_start(last) + 60)
    assert in_a_row() == (False, False)
    publish(engine, report, last, {"A CE a": DOWN})
    assert in_a_row() == (True, True)


@only_on("sqlite")
def test_one_site_is_shown_alone_and_an_unknown_one_refused(autumn: SamReport) -> None:
    for level in ("site", "metric"):
        of_b = ("--day", "2026-09-10", "--level", level, "--site", "B", "--json")
        [row] = autumn("show", *of_b).json
        assert (row["site"], row["availability"], row["ok_s"]) == ("B", 100, 86_400)

    for arguments, message in (
        ("--day 2026-08-31 --site b", "did you mean B?"),
        ("--day 2026-08-31 --site B", "from 2026-09-10 to 2026-11-01"),
        ("--day 2026-09-10 --level group --site A", "--site"),
        (" ".join((*AUTUMN, "--level endpoint")), "--by month"),
    ):
        assert message in autumn("show", *arguments.split(), code=USAGE).err


# Trends ------------------------------------------------------------------------------------------


def test_changes_of_several_days_add_up_and_midnight_is_not_a_change(
    engine: Engine, report: Profile, sam_report: SamReport
) -> None:
    morning: Timeline = {"00:00": "OK", "06:00": "CRITICAL", "07:00": "OK"}
    changing: Timeline = {"00:00": "OK", "01:00": "WARNING", "02:00": "OK", "23:30": "CRITICAL"}
    late: Timeline = {"00:00": "MISSING", "09:00": "OK"}
    publish(engine, report, DAY, {"A CE h1": morning, "B CE h3": late})
    publish(engine, report, NEXT, {"A CE h1": GOOD, "B CE h3": changing}, until=END)

    first, second = sam_report("trends", "--json", *BOTH).json
    [metric, _] = sam_report("trends", "--json", "--level", "metric", *OF_DAY).json

    assert (first["site"], first["changes"], first["days"]) == ("B", 4, 2)
    assert (first["first_change"], first["last_change"]) == (
        f"{DAY}T09:00:00Z",
        f"{NEXT}T23:30:00Z",
    )
    seconds = [first[f"{status}_s"] for status in ("ok", "warning", "critical", "missing")]
    assert seconds == [15 * 3600 + 22 * 3600 + 1800, 3600, 1799, 9 * 3600]
    assert (second["site"], second["changes"]) == ("A", 2)
    names = {"service_flavour": "CE", "host_name": "h1", "metric_name": "ping"}
    assert {"site": "A", "changes": 2, **names}.items() <= metric.items()
    assert metric["last_change"] == f"{DAY}T07:00:00Z"


# Incidents ---------------------------------------------------------------------------------------

FIRST, LAST = date(2026, 10, 31), date(2026, 11, 1)
BOTH_MONTHS = ("--from", FIRST, "--to", LAST)


@pytest.fixture
def failing(engine: Engine, report: Profile, grid: Grid, sam_report: SamReport) -> SamReport:
    """`sam-report` with the last day of a month and the first of the next one."""
    members = [Member("region", "north", "A", 1), Member("region", "south", "C", 1)]
    evening: dict[str, Timeline] = {
        "A CE h1": {"00:00": "OK", "22:00": "CRITICAL"},
        "B CE h2": {"00:00": "OK", "23:00": "CRITICAL", "23:30": "OK"},
        "C CE h3": GOOD,
    }
    morning: dict[str, Timeline] = {
        "A CE h1": {"00:00": "CRITICAL", "02:00": "OK"},
        "B CE h2": GOOD,
        "C CE h3": BAD,
    }
    publish(engine, report, FIRST, evening, members)
    publish(engine, report, LAST, morning, members)
    for host, time, day in (("h1", "22:00", FIRST), ("h2", "23:00", FIRST), ("h3", "06:00", LAST)):
        text = f"no route to {host}.example.org (try {len(time)})"
        grid.result(f"CE {host} ping", time, "CRITICAL", day=day, summaryData=text)
    return sam_report


def test_an_incident_over_the_end_of_a_month_is_one_and_each_month_shows_its_part(
    failing: SamReport,
) -> None:
    of_a = ("incidents", "--json", "--site", "A")

    [incident] = failing(*of_a, *BOTH_MONTHS).json
    parts = [*failing(*of_a, "--month", "2026-10").json, *failing(*of_a, "--day", LAST).json]

    assert (incident["start"], incident["end"]) == (f"{FIRST}T22:00:00Z", f"{LAST}T02:00:00Z")
    assert (incident["metric_name"], incident["endpoints"]) == ("ping", "h1")
    assert incident["example"].startswith("no route to h1")
    marks = [(i["began_before"], i["open"], i["duration_s"]) for i in parts]
    assert marks == [(False, True, 7200), (True, False, 7200)]


def test_figures_of_sites_groups_and_the_report_count_the_same_incidents(
    failing: SamReport,
) -> None:
    def by(level: str) -> Any:
        return failing("incidents", "--json", "--by", level, *BOTH_MONTHS).json

    sites, groups, [total] = map(by, ("site", "group", "report"))

    assert [row["site"] for row in sites] == ["C", "A", "B"]
    assert [(row["group_name"], row["number"]) for row in groups] == [("south", 1), ("north", 1)]
    assert (total["number"], total["open"]) == (3, 1)
    assert total["mttr_s"] == (4 * 3600 + 1800) // 2
    assert total["mtbf_s"] == (6 * 86_400 - 22 * 3600 - 1800) // 3
    for level in ("incident", "cause", "site", "group", "report"):
        form = ("incidents", "--by", level, *BOTH_MONTHS)
        cells = table(failing(*form, "--format", "csv"))
        assert [list(row) for row in cells] == [list(row) for row in by(level)]
    unknown = failing("incidents", "--site", "b", "--day", f"{LAST}", code=USAGE)
    assert "did you mean B" in unknown.err


def test_incidents_are_listed_in_time_or_the_longest_first_and_only_the_first_ones(
    failing: SamReport,
) -> None:
    def sites(*options: object) -> list[str]:
        rows = failing("incidents", "--json", *options, *BOTH_MONTHS).json
        return [row["site"] for row in rows]

    assert sites() == sites("--sort", "start") == ["A", "B", "C"]
    assert sites("--sort", "duration") == ["C", "A", "B"]
    assert sites("--sort", "duration", "--limit", 2) == ["C", "A"]
    assert sites("--by", "site", "--limit", 1) == ["C"]
    refused = failing("incidents", "--sort", "duration", "--by", "site", *OF_DAY, code=USAGE)
    assert "--sort duration" in refused.err


def test_a_cause_that_sites_share_points_to_the_monitoring_host(
    engine: Engine, report: Profile, grid: Grid, sam_report: SamReport, tmp_path: Path
) -> None:
    sites = "ABCD"
    hour: Timeline = {"00:00": "OK", "09:30": "CRITICAL", "09:45": "OK"}
    publish(engine, report, DAY, {f"{site} CE h{site.lower()}": hour for site in sites})
    for site in sites:
        said = {"summaryData": f"no route to {site.lower()}.org", "monitoringHost": "nagios2"}
        grid.result(f"CE h{site.lower()} ping", "09:30", "CRITICAL", **said)

    [shared] = sam_report("incidents", "--by", "cause", "--json", *OF_DAY).json
    shown = sam_report("incidents", *OF_DAY).out
    only_a = sam_report("incidents", "--site", "A", *OF_DAY).out

    assert (shared["number"], shared["sites"]) == (4, list(sites))
    assert shared["monitoring_hosts"] == ["nagios2"]
    assert (shared["start"], shared["end"]) == (f"{DAY}T09:30:00Z", f"{DAY}T09:45:00Z")
    assert "up to 4 sites at once, measured by nagios2" in shown and LOOK_AT in shown
    assert LOOK_AT not in only_a


# Explanations of a month, and contacts -----------------------------------------------------------


def test_the_explanation_of_a_month_starts_with_its_worst_days_and_merges_causes(
    engine: Engine, report: Profile, sam_report: SamReport
) -> None:
    missing_from: Mapping[int, str] = {1: "", 2: "18:00", 3: "06:00", 4: "12:00", 6: "23:00"}
    for day, time in missing_from.items():
        timeline = {"00:00": "OK", time: "MISSING"} if time else GOOD
        publish(engine, report, date(2026, 10, day), {"A CE h1": timeline, "B CE h2": GOOD})
    month = ("explain", "--month", "2026-10", "--site", "A")

    lines = sam_report(*month).out.splitlines()
    days = sam_report(*month, "--json").json

    assert lines[0] == "test, 2026-10-01 to 2026-10-06: A"
    title = next(index for index, line in enumerate(lines) if line.startswith("worst days"))
    listed = [line.split()[0] for line in lines[title + 3 : title + 7]]
    assert listed == [f"2026-10-{day:02}" for day in (3, 4, 2, 6)]
    [of_cause] = [line.strip() for line in lines if line.startswith("    on ")]
    assert of_cause == "on 2026-10-02 to 2026-10-04, 2026-10-06"
    assert [len(day["causes"]) for day in days] == [int(day > 1) for day in missing_from]
    assert "--day" in sam_report(*month, "--ticket", code=USAGE).err


def test_the_explanation_of_a_month_tells_what_was_announced(
    engine: Engine, report: Profile, sam_report: SamReport, tmp_path: Path
) -> None:
    """A site that was in downtime has no failures that would explain its figure."""
    days = [date(2026, 10, 1), date(2026, 10, 2)]
    for day in days:
        publish(engine, report, day, {"A CE h1": {"00:00": "DOWNTIME"}})
    downtime = Downtime("G3", "A", "", "", 0, 2**31, "SCHEDULED", "OUTAGE", "A <new> room")
    with writing(engine) as connection:
        announced = {"downtimes": json.dumps([asdict(downtime)])}
        connection.execute(text("UPDATE run SET downtimes = :downtimes"), announced)
    month = ("--month", "2026-10", "--site", "A")

    lines = [line.strip() for line in sam_report("explain", *month).out.splitlines()]
    [first, _] = sam_report("explain", *month, "--json").json
    sam_report("pages", "--month", "2026-10", "--out", tmp_path)

    topic = "in downtime G3: A <new> room"
    assert next(line for line in lines if line.startswith("2026-10-01")).endswith(topic)
    at = lines.index("downtimes")
    assert "A <new> room (counts)" in lines[at + 1]
    assert lines[at + 2] == "on 2026-10-01 to 2026-10-02"
    assert [(of["downtime_id"], of["counts"]) for of in first["downtimes"]] == [("G3", True)]
    page = (tmp_path / "test/2026-10/A.html").read_text()
    # Two equal days are drawn once.
    assert 'As on <a href="#2026-10-02">' in page and page.count("<h3>When exactly") == 1
    assert "2 days: in downtime G3: A &lt;new&gt; room" in page


def test_pages_tickets_and_the_current_status_say_who_to_call(
    engine: Engine, report: Profile, sam_report: SamReport, tmp_path: Path
) -> None:
    site, jane = "EXAMPLE-LCG2", "Jane <grid@example.org>"
    publish(engine, report, DAY, {f"{name} CE c1": BAD for name in (site, "B")})
    insert(engine, "serviceEndpoint", service_endpoint(), service_endpoint(siteName="B"))
    insert(engine, "siteContact", site_contact(contact=jane))

    def page_of(site: str) -> str:
        sam_report("pages", *OF_DAY, "--out", tmp_path / "out")
        return (tmp_path / "out/test" / f"{DAY:%Y-%m}" / f"{site}.html").read_text()

    tickets = [sam_report("explain", *OF_DAY, "--ticket", "--site", s).out for s in (site, "B")]
    now = [sam_report("now", "--site", s, "--json").json["contact"] for s in (site, "B")]

    mail = '<a href="mailto:grid@example.org">grid@example.org</a>'
    assert f"Jane &lt;{mail}&gt;" in page_of(site) and "Who to call" not in page_of("B")
    assert f"contact: {jane}" in tickets[0].splitlines() and "contact" not in tickets[1]
    assert now == [jane, None]
    # A new contact changes the page, and a removed one is shown no more.
    insert(engine, "siteContact", site_contact(contact="Bob", timestamp="2026-12-01T00:00:00Z"))
    assert "Who to call: <b>Bob</b>" in page_of(site)
    insert(engine, "siteContact", site_contact(contact="", timestamp="2026-12-02T00:00:00Z"))
    assert not re.search("Jane|Bob", sam_report("now", "--site", site).out)


# The views by calendar month agree with what is shown ---------------------------------------------


YEAR = Period(date(2026, 1, 1), date(2026, 12, 31))
SITES = "ABCDE"
STATUSES = ("OK", "WARNING", "CRITICAL", "UNKNOWN", "MISSING", "DOWNTIME", "EXCLUDED")


@pytest.mark.parametrize("seed", range(2))
def test_the_months_of_random_worlds_are_those_that_show_adds_up(
    engine: Engine, tmp_path: Path, seed: int
) -> None:
    write_random_world(engine, tmp_path, random.Random(seed))

    with reading(engine) as connection:
        for level in (SITE, GROUP):
            shown = {
                (month.first, figure.names): comparable(figure)
                for month in YEAR.months()
                for figure in period_figures(connection, "test", level, month)
            }
            in_view = dict(rows_of(connection, level))
            assert in_view == shown
            read = month_figures(connection, "test", level, YEAR)
            assert {(m.month, m.figure.names): comparable(m.figure) for m in read} == shown
            assert [key(month) for month in read] == sorted(map(key, read))


def test_the_groups_of_an_export_are_those_that_show_adds_up(
    engine: Engine, sam_report: SamReport, tmp_path: Path
) -> None:
    """Over random periods DuckDB computes them from the exported members alone."""
    chance = random.Random(3)
    write_random_world(engine, tmp_path, chance)
    whole = ("--from", "2026-09-20", "--to", "2026-11-15")
    sam_report("export", "--format", "parquet", *whole, "--out", tmp_path / "out")
    days = list(Period(date(2026, 9, 20), date(2026, 11, 15)).days())

    for _ in range(20):
        first, last = sorted(chance.choices(days, k=2))
        with reading(engine) as connection:
            shown = {
                figure.names: (
                    *(
                        None if percent is None else int(percent * 100_000)
                        for percent in (rounded(figure.availability), rounded(figure.reliability))
                    ),
                    figure.sites_expected,
                    figure.sites_known,
                )
                for figure in period_figures(connection, "test", GROUP, Period(first, last))
            }
        assert exported_groups(tmp_path / "out", first, last) == shown


def write_random_world(engine: Engine, directory: Path, chance: random.Random) -> None:
    """Some days of three months, on which sites come and go, change weights and groups."""
    report = profile(directory)
    first = date(2026, 9, 20)
    days = sorted(chance.sample([first + timedelta(days=n) for n in range(56)], 20))
    for day in days:
        endpoints: dict[str, Timeline] = {
            f"{site} CE h-{site}": random_timeline(chance)
            for site in SITES
            if chance.random() < 0.85
        }
        members = [
            Member(kind, name, site, chance.choice([0, 0, 1, 2, 6, 99]))
            for kind, name in (("federation", "North"), ("federation", "South"), ("tier", "2"))
            for site in SITES
            if chance.random() < 0.6
        ]
        open_until = day_start(day) + 86_399 if day == days[-1] else None
        publish(engine, report, day, endpoints, members, open_until)


def random_timeline(chance: random.Random) -> Timeline:
    starts = sorted(chance.sample(range(1, 24 * 60), chance.choice([0, 0, 1, 3])))
    return {
        f"{minute // 60:02}:{minute % 60:02}": chance.choice(STATUSES) for minute in [0, *starts]
    }


def rows_of(connection: Connection, level: str) -> Iterator[tuple[object, object]]:
    for row in connection.execute(text(f"SELECT * FROM {level}_month")).mappings():
        names = tuple(row[name] for name in NAMES[level])
        assert row["report"] == "test"
        if level == GROUP:
            more = [row["sites_expected"], row["sites_known"]]
        else:
            seconds = tuple(int(row[f"{status.lower()}_s"]) for status in STATUSES)
            unknown = Decimal(str(row["unknown"])).quantize(Decimal("0.00001"))
            more = [unknown, row["days"], seconds, second_or_none(row["until"])]
        yield (as_day(row["month"]), names), [*percentages(row), *more]


def comparable(figure: Figure) -> list[object]:
    """What `sam-report show` prints of a figure."""
    figures = [rounded(figure.availability), rounded(figure.reliability)]
    if figure.seconds is None:
        return [*figures, figure.sites_expected, figure.sites_known]
    seconds = tuple(vars(figure.seconds).values())
    return [*figures, rounded(figure.unknown), figure.days, seconds, figure.until]


def key(month: MonthFigure) -> tuple[tuple[str, ...], date]:
    assert month.month == month_of(month.month).first
    return month.figure.names, month.month
