"""Days that are due, exclusions that make them due, commands that wait, and refused requests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from sam_pipeline.schema.program.command import NO_INPUT, USAGE
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period, as_day
from sam_pipeline.spark_jobs.runs.due import DueReport, due_days, horizon, requested_reports
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import fold_all, take_changes
from tests.integration.spark_jobs.conftest import SamReport
from tests.services.postgres import as_role, fresh_database
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import Values, insert, query, site_group
from tests.support.reports.database import DAY, PROFILE, Grid, profile, url_of
from tests.support.reports.published_days import publish

TODAY = date(2026, 11, 20)


def november(*numbers: int) -> list[date]:
    return [date(2026, 11, number) for number in numbers]


def changed(engine: Engine, number: int, change_no: int | None = None) -> None:
    """Mark a day as loaders do (without a number) or as runs do (with one)."""
    _write(engine, "changed_day", day=f"2026-11-{number:02}", change_no=change_no)


def published(
    engine: Engine,
    number: int,
    change_no: int | None = 1,
    report: str = "test",
    state: str = "published",
    was_open: bool = False,
    look_back: int = 1,
) -> None:
    second = 0 if engine.dialect.name == "sqlite" else "1970-01-01T00:00:00Z"
    more = {"state": state, "change_no": change_no, "until": second if was_open else None}
    more["look_back"] = look_back
    day = f"2026-11-{number:02}"
    _write(engine, "run", report=report, day=day, started_at=second, **more)


def frozen_before(engine: Engine, number: int) -> None:
    _write(engine, "horizon", day=f"2026-11-{number:02}")


def _write(engine: Engine, table: str, **values: object) -> None:
    names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    with writing(engine) as connection:
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)


def taken(engine: Engine) -> int:
    with writing(engine) as connection:
        return take_changes(connection)


def due(engine: Engine, report: str = "test") -> list[date]:
    with reading(engine) as connection:
        return due_days(connection, report, TODAY)


def test_every_closed_day_since_the_first_result_is_due_once(engine: Engine) -> None:
    assert due(engine) == []
    changed(engine, 20)  # still open
    changed(engine, 21)
    assert due(engine) == []
    changed(engine, 16, change_no=1)
    published(engine, 18)
    assert due(engine) == november(16, 17, 19)
    frozen_before(engine, 17)
    assert due(engine) == november(17, 19)


def test_only_a_published_run_of_the_report_and_of_the_whole_day_counts(engine: Engine) -> None:
    changed(engine, 16, change_no=1)
    published(engine, 16, was_open=True)
    published(engine, 17, state="failed")
    published(engine, 18, state="superseded")
    published(engine, 19)
    for number in (16, 17, 18):
        published(engine, number, report="other")

    assert (due(engine), due(engine, "other")) == (november(16, 17, 18), november(19))


def test_status_names_the_days_of_each_report_that_are_published_and_due(
    engine: Engine, sam_report: SamReport
) -> None:
    assert sam_report("status").out == "no reports: none is configured or published\n"
    changed(engine, 16, change_no=1)
    for report, number in (("test", 16), ("test", 18), ("other", 17)):
        published(engine, number, report=report)
    sam_report.workplace.write("test.toml", PROFILE)
    sam_report.configure('[report]\nprofiles = ["test.toml"]\n')

    other, configured = sam_report("status", "--json").json["reports"]
    _, _, line_of_other, _ = sam_report("status").out.splitlines()

    assert (other["report"], other["configured"], other["due_days"]) == ("other", False, [])
    assert "not configured" in line_of_other
    ends = [configured[name] for name in ("first_day", "last_day", "days")]
    assert ends == ["2026-11-16", "2026-11-18", 2]
    assert configured["due_days"][:2] == ["2026-11-17", "2026-11-19"]
    assert (configured["sealed_months"], configured["candidate_days"]) == ([], [])


def test_a_day_that_changes_again_while_or_after_a_run_reads_it_is_due_again(
    engine: Engine,
) -> None:
    changed(engine, 18)
    published(engine, 19, change_no=0)
    number = taken(engine)
    published(engine, 18, change_no=number)
    at_rest = due(engine)

    with writing(engine) as connection:
        connection.execute(text("UPDATE changed_day SET change_no = NULL"))
    before = due(engine)
    taken(engine)  # no row has the last number any more: it must not be used twice

    assert (at_rest, before, due(engine)) == ([], november(18), november(18))


def said(site: str, start: int, end: int | None = None, hour: int = 0, **more: object) -> Values:
    """A site is in the group from a day on, or until another one."""
    until = None if end is None else f"2026-11-{end}T00:00:00Z"
    times = {"validFrom": f"2026-11-{start}T00:00:00Z", "validTo": until}
    return site_group(siteName=site, timestamp=f"2026-11-19T{hour:02}:00:00Z", **times, **more)


@pytest.mark.parametrize(
    ("statements", "days"),
    [
        ([said("C", 18)], (18, 19)),
        ([said("C", 17, end=18)], (17,)),
        ([said("A", 16, end=18, hour=1)], (18, 19)),
        ([said("A", 16, hour=1, weight=4)], (16, 17, 18, 19)),
        ([said("A", 16, hour=1, weight=None)], (16, 17, 18, 19)),
        # A weight from the 18th on.
        ([said("A", 16, end=18, hour=1), said("A", 18, hour=1, weight=4)], (18, 19)),
        # A is renamed to D on the 19th.
        ([said("A", 16, end=19, hour=1), said("D", 19)], (19,)),
        ([said("A", 16, hour=1)], ()),
    ],
)
def test_every_day_of_which_a_group_changes_is_due(
    engine: Engine, statements: list[Values], days: tuple[int, ...]
) -> None:
    for number in (16, 17, 18, 19):
        changed(engine, number)
    insert(engine, "siteGroup", said("A", 16), said("B", 16))
    change_no = taken(engine)
    for number in (16, 17, 18, 19):
        published(engine, number, change_no=change_no)
    at_rest = due(engine)

    insert(engine, "siteGroup", *statements)

    assert (at_rest, due(engine)) == ([], november(*days))


def test_days_before_the_horizon_are_refused_without_force(engine: Engine, tmp_path: Path) -> None:
    frozen_before(engine, 10)
    report = profile(tmp_path)
    frozen, others = Period(*november(8, 12)), Period(*november(10, 12))

    with reading(engine) as connection:
        assert horizon(connection) == date(2026, 11, 10)
        with pytest.raises(ReportUsage, match=r"^2026-11-08 to 2026-11-09: .*--force"):
            requested_reports(connection, [report], frozen, force=False)
        for period, force in ((frozen, True), (others, False)):
            requested = requested_reports(connection, [report], period, force=force)
            assert requested == [DueReport(report, period)]


def test_a_late_result_makes_its_day_and_the_next_due_once_its_endpoint_is_known(
    grid: Grid,
) -> None:
    day = november(14)[0]
    grid.endpoint("A", "CE", "ce.A", validFrom="2026-11-13T00:00:00Z")
    grid.result("CE ce.A ping", "12:00", "OK", day=day)
    change_no = taken(grid.engine)
    for number in range(14, 20):
        published(grid.engine, number, change_no=change_no)

    def due_after() -> list[date]:
        """After changes are numbered as a run does, which folds new results first."""
        taken(grid.engine)
        return due(grid.engine)

    grid.result("CE ce.new ping", "13:00", "CRITICAL", day=day)
    assert due_after() == []
    grid.result("CE ce.A ping", "13:00", "CRITICAL", day=day)
    assert due_after() == november(14, 15)
    grid.endpoint("B", "CE", "ce.new", validFrom="2026-11-15T00:00:00Z")
    assert set(november(15, 16)) <= set(due_after())


def test_a_late_result_makes_each_report_due_for_as_many_days_as_it_looked_back(grid: Grid) -> None:
    grid.endpoint("A", "CE", "ce.A")
    grid.result("CE ce.A ping", "12:00", "OK", day=november(8)[0])
    change_no = taken(grid.engine)
    for number in range(8, 20):
        published(grid.engine, number, change_no=change_no)
        published(grid.engine, number, change_no=change_no, report="long", look_back=6)
        published(grid.engine, number, change_no=change_no, report="all", look_back=24_856)
    before = due(grid.engine), due(grid.engine, "long"), due(grid.engine, "all")

    grid.result("CE ce.A ping", "13:00", "CRITICAL", day=november(12)[0])
    taken(grid.engine)

    assert before == ([], [], [])
    assert due(grid.engine) == november(12, 13)
    assert due(grid.engine, "long") == november(*range(12, 19))
    assert due(grid.engine, "all") == november(*range(12, 20))


# Of two concurrent commands for a report the second waits, and logs for whom ----------------------


TIMEOUT_S = 60
HOLD = """
import sys
from sam_pipeline.spark_jobs.runs.record import run_lock
from sam_pipeline.sql.database.engine import make_engine

with run_lock(make_engine(sys.argv[1]), sys.argv[2:], print):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def started(engine: Engine, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of the reporter; killed if it still runs when the block ends."""
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "SAM_DATABASE_URL": as_role(url_of(engine), "reporter")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


@contextmanager
def holding(engine: Engine, *reports: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the reports while the block runs."""
    url = as_role(url_of(engine), "reporter")
    with started(engine, "-c", HOLD, url, *reports) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@pytest.mark.parametrize("command", ["run", "seal add"])
def test_a_second_command_waits_until_the_first_ends_or_is_killed(
    engine: Engine, tmp_path: Path, command: str
) -> None:
    """Both end without Spark: no day is due, and the month is not complete."""
    (tmp_path / "test.toml").write_text(PROFILE)
    arguments = ["--due", "--profile", str(tmp_path / "test.toml")]
    if command == "seal add":
        publish(engine, profile(tmp_path), DAY.replace(year=2025), {"A CE h1": {"00:00": "OK"}})
        arguments = ["--month", "2025-11", "--who", "Jane"]
    program = ("-m", "sam_pipeline.spark_jobs", *command.split(), *arguments)
    with holding(engine, "test") as first, started(engine, *program) as second:
        assert second.stderr is not None
        message = second.stderr.readline()
        waits = second.poll() is None
        if command == "run":
            first.communicate("", timeout=TIMEOUT_S)
        else:
            first.kill()
        out, more = second.communicate(timeout=TIMEOUT_S)

    assert waits
    assert re.search(r"report test: another run .*process \d+ .*, since 20", message)
    if command == "run":
        assert (second.returncode, out, more) == (0, "test: nothing is due\n", "")
    else:
        assert (second.returncode, out) == (64, "") and "never computed" in more


# Exclusions: stored rows, days that become due, their effect, and refused options -----------------


ADD, REMOVE, LIST = (("exclusion", action) for action in ("add", "remove", "list"))
METRIC = ("--metric", "org.sam.Put")
MONITOR = ("--monitoring-host", "nagios.example.org")
SITE = ("--site", "A")
WHEN = ("--start", "2025-10-10T12:00Z", "--end", "2025-10-10T13:00Z", "--reason", "network down")


def reported(engine: Engine, first: str = "2025-10-08") -> None:
    """Pretend that results begin on that day, and that a run has taken all changes."""
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO changed_day VALUES (:day, 1, 1)"), {"day": first})


def marked(engine: Engine) -> list[str]:
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
    assert sam_report(*LIST).out == "no exclusions\n"
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
    after_adding = marked(engine)
    with writing(engine) as connection:
        connection.execute(text("UPDATE changed_day SET change_no = 2"))
    removed = sam_report(*REMOVE, added.out.split()[0], "--reason", "x")

    assert after_adding == marked(engine) == days
    assert bool(re.match(r"due: 2025-10", removed.out)) == bool(days)


def test_exclusion_of_a_monitoring_host_lists_the_days_on_which_its_results_would_count(
    engine: Engine, sam_report: SamReport, tmp_path: Path
) -> None:
    reported(engine)
    publish(engine, profile(tmp_path, ('"off"', "259200")), DAY, {})
    times = ("--start", "2025-10-10T12:00Z", "--end", "2025-10-10T13:00Z", "--reason", "x")

    of_host, of_metric = (sam_report(*ADD, *of, *times, "--json") for of in (MONITOR, METRIC))

    assert of_host.json["due_days"] == [f"2025-10-{number}" for number in (10, 11, 12, 13)]
    assert of_metric.json["due_days"] == ["2025-10-10"]


def test_frozen_days_are_not_marked_and_a_warning_names_their_end(
    engine: Engine, sam_report: SamReport
) -> None:
    reported(engine)
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO horizon VALUES ('2025-10-10')"))

    times = ("--start", "2025-10-09T00:00Z", "--end", "2025-10-11T00:00Z", "--reason", "x")
    added = sam_report(*ADD, *SITE, *times)

    assert marked(engine) == ["10-10"]
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
        ("--site PINE", 3, "", ""),
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
        ((*MONITOR, "--site", "A", "--flavour", "CE", *WHEN), "--site, --flavour: not with --mon"),
        ((*SITE, "--host", "h", *WHEN), "--host: only with --metric"),
        (("--host", "h", *WHEN), "expected one of --monitoring-host H, --metric M, --site S"),
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
