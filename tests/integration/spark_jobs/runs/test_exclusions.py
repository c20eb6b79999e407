"""`sam-report exclusion`: stored rows, days that become due, their effect, and refused options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from sam_pipeline.schema.program.command import NO_INPUT, USAGE
from sam_pipeline.spark_jobs.rules.days import as_day
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.loading.fold import fold_all
from tests.integration.spark_jobs.conftest import SamReport
from tests.services.postgres import fresh_database
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query
from tests.support.reports.database import DAY, Grid, url_of

ADD, REMOVE, LIST = (("exclusion", action) for action in ("add", "remove", "list"))
METRIC = ("--metric", "org.sam.Put")
MONITOR = ("--monitoring-host", "nagios.example.org")
SITE = ("--group", "A")
WHEN = ("--start", "2025-10-10T12:00Z", "--end", "2025-10-10T13:00Z", "--reason", "network down")


def reported(engine: Engine, first: str = "2025-10-08") -> None:
    """Pretend that results begin on that day, and that a run has taken all changes."""
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO changed_day VALUES (:day, 1)"), {"day": first})


def changed(engine: Engine) -> list[str]:
    rows = query(engine, "SELECT day FROM report_changed_day WHERE change_no IS NULL ORDER BY day")
    return [f"{as_day(day):%m-%d}" for (day,) in rows]


def test_an_exclusion_is_entered_listed_and_removed_once_and_stays_on_record(
    engine: Engine, sam_report: SamReport
) -> None:
    where = ("--site", "A", "--flavour", "CE", "--host", "CE01.example.org.")
    number = int(sam_report(*ADD, *METRIC, *where, *WHEN, "--who", "Jane").out.split()[0])

    [listed] = sam_report(*LIST, "--json").json
    times = query(engine, "SELECT start_s, end_s FROM report_exclusion")
    sam_report(*REMOVE, number, "--who", "Joe", "--reason", "it had failed")

    assert listed.pop("added_at") <= datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kept = {
        "exclusion_id": number,
        "kind": "metric",
        "monitoring_host": "",
        "metric_name": "org.sam.Put",
        "site": "A",
        "service_flavour": "CE",
        "host_name": "ce01.example.org",
        "start_time": "2025-10-10T12:00:00Z",
        "end_time": "2025-10-10T13:00:00Z",
        "reason": "network down",
        "who": "Jane",
    }
    removal = {"removed_at": None, "removed_by": None, "removed_because": None}
    assert listed == {**kept, **removal}
    assert times == [(1760097600, 1760101200)]
    assert query(engine, "SELECT * FROM report_exclusion") == []
    assert sam_report(*LIST).out == ""
    [of_all] = sam_report(*LIST, "--all", "--json").json
    assert kept.items() <= of_all.items()
    assert (of_all["removed_by"], of_all["removed_because"]) == ("Joe", "it had failed")
    again = sam_report(*REMOVE, number, "--reason", "x", code=USAGE).err
    assert re.search(rf"exclusion {number} .*removed.* Joe", again)
    assert "no exclusion 4711" in sam_report(*REMOVE, 4711, "--reason", "x", code=NO_INPUT).err


@pytest.mark.parametrize(
    ("selector", "start", "end", "days"),
    [
        (METRIC, "10-10T12:00Z", "10-11T00:00Z", ["10-10"]),
        (METRIC, "10-10T12:00Z", "10-11T00:00:01Z", ["10-10", "10-11"]),
        (SITE, "10-01T00:00Z", "10-09T00:00Z", ["10-08"]),  # results begin on the 8th
        # Results of the last second no longer count, and they were carried into the day after.
        (MONITOR, "10-10T12:00Z", "10-10T23:59:59Z", ["10-10", "10-11"]),
        (MONITOR, "10-10T12:00Z", "10-11T00:00Z", ["10-10", "10-11", "10-12"]),
        (MONITOR, "10-07T12:00Z", "10-07T13:00Z", ["10-08"]),
    ],
)
def test_the_days_that_an_exclusion_touches_are_due_and_again_when_it_is_removed(
    engine: Engine,
    sam_report: SamReport,
    selector: tuple[str, str],
    start: str,
    end: str,
    days: list[str],
) -> None:
    reported(engine)
    times = ("--start", f"2025-{start}", "--end", f"2025-{end}", "--reason", "x")

    added = sam_report(*ADD, *selector, *times)
    after_adding = changed(engine)
    with writing(engine) as connection:
        connection.execute(text("UPDATE changed_day SET change_no = 2"))
    removed = sam_report(*REMOVE, added.out.split()[0], "--reason", "x")

    assert after_adding == changed(engine) == days
    assert bool(re.match(r"due: 2025-10", removed.out)) == bool(days)


def test_an_exclusion_until_further_notice_marks_no_future_day(
    engine: Engine, sam_report: SamReport
) -> None:
    today = datetime.now(UTC).date()
    reported(engine, today.isoformat())

    times = ("--start", f"{today}T00:00Z", "--end", "9999-12-31T23:59:59Z", "--reason", "gone")
    sam_report(*ADD, *MONITOR, *times)

    # Midnight may pass in between.
    assert changed(engine)[0] == f"{today:%m-%d}"
    assert len(changed(engine)) <= 2


def test_frozen_days_are_not_marked_and_a_warning_names_their_end(
    engine: Engine, sam_report: SamReport
) -> None:
    reported(engine)
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO horizon VALUES ('2025-10-10')"))

    times = ("--start", "2025-10-09T00:00Z", "--end", "2025-10-11T00:00Z", "--reason", "x")
    added = sam_report(*ADD, *SITE, *times)

    assert changed(engine) == ["10-10"]
    assert "days before 2025-10-10" in added.err


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def add(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    """Two sites with three results each between 10:00 and 12:00, and one later."""
    url = f"sqlite:///{tmp_path_factory.mktemp('effect')}/sam.db"
    if request.param == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    sites = Grid(url)
    for site, host in (("OAK", "ce1"), ("PINE", "ce2")):
        sites.endpoint(site, "CE", host)
        for metric, time in (
            *(("ping", "10:00"), ("ping", "11:00")),
            *(("put", "11:30"), ("ping", "12:00")),
        ):
            sites.result(f"CE {host} {metric}", time, "OK", monitoringHost=f"nagios.{host}")
    fold_all(sites.loader)
    yield sites
    sites.dispose()


@pytest.mark.parametrize(
    ("selectors", "results", "unknown", "nearest"),
    [
        ("--metric ping --site OAK", 2, "", ""),
        ("--metric put --host ce1 --flavour CE", 1, "", ""),
        ("--group PINE", 3, "", ""),
        ("--monitoring-host nagios.ce1", 4, "", ""),  # that of the second of the end as well
        # Of an unknown name the nearest known one is shown, and it is excluded anyway.
        ("--metric pingg", 0, "metric pingg", "ping?"),
        ("--metric ping --site OAK --host ce11", 0, "host ce11", "ce1?"),
        ("--monitoring-host nagios.ce3", 0, "monitoring host nagios.ce3", "nagios.ce"),
    ],
)
def test_an_exclusion_prints_how_many_results_it_affects_and_warns_of_unknown_names(
    add: Grid, tmp_path: Path, selectors: str, results: int, unknown: str, nearest: str
) -> None:
    sam_report = SamReport(url_of(add.engine), tmp_path)
    times = ("--start", f"{DAY}T10:00Z", "--end", f"{DAY}T12:00Z", "--reason", "x")

    printed = sam_report(*ADD, *selectors.split(), *times)
    document = sam_report(*ADD, *selectors.split(), *times, "--json").json

    number, affects, due = printed.out.splitlines()
    assert number.isdigit() and due.startswith(f"due: {DAY}")
    assert re.match(rf"affects {results} results?$", affects)
    assert document["results"] == results and str(DAY) in document["due_days"]
    if unknown:
        assert unknown in printed.err and f"did you mean {nearest}" in printed.err
    else:
        assert printed.err == ""


@only_on("sqlite")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((*MONITOR, "--site", "A", "--flavour", "CE", *WHEN), "--site, --flavour: only with --met"),
        ((*SITE, *WHEN[:4], "--reason", " "), "--reason: is empty"),
        ((*METRIC, "--host", "", *WHEN), "--host: is empty"),
        ((*SITE, "--start", "2025-10-10T13:00Z", *WHEN[2:]), "--end 2025-10-10T13:00:00Z is not"),
        ((*SITE, "--start", "2025-10-10T12:00", *WHEN[2:]), "has no time zone"),
        ((*SITE, *WHEN[:4], "--reason", "\udcff"), "--reason: is not valid UTF-8"),
    ],
)
def test_contradictory_or_malformed_options_are_refused(
    sam_report: SamReport, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in sam_report(*ADD, *arguments, code=USAGE).err


@only_on("postgresql")
def test_a_reporter_may_neither_change_nor_delete_an_exclusion(
    engine: Engine, sam_report: SamReport
) -> None:
    sam_report(*ADD, *SITE, *WHEN)

    with acting_as("reporter", engine) as reporter:
        for statement in ("DELETE FROM exclusion", "UPDATE exclusion SET reason = 'other'"):
            with (
                pytest.raises(ProgrammingError, match="permission denied"),
                reporter.begin() as connection,
            ):
                connection.execute(text(statement))
