"""Every command of docs/reports.md works, in the order of the page, and prints what it shows."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import month_of
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.fold import fold
from tests.support.commands import Workplace, embedded
from tests.support.page import ROOT, Page, shell
from tests.support.reports.database import Grid
from tests.support.reports.published_days import publish
from tests.support.reports.stored import execute, query

PAGE = Page("docs/reports.md")
UNITS = ROOT / "deploy/systemd/reports"
SITE, HOST = "EXAMPLE-SITE", "ce01.example.org"
RED_DAY = date(2026, 10, 14)
PROFILE = """
name = "critical"
validity_s = "off"
[flavours.CE]
metrics = ["ping"]
[functions.ce]
flavours = ["CE"]
"""
RESULTS = {
    "00:00": "OK",
    "06:00": "CRITICAL",
    "07:30": "CRITICAL",
    "09:00": "OK",
    "20:00": "UNKNOWN",
}


def with_profile(directory: Path) -> Workplace:
    workplace = embedded(directory)
    with (directory / "sam.toml").open("a") as file:
        file.write('[report]\nprofiles = ["critical.toml"]\n')
    workplace.write("critical.toml", PROFILE)
    return workplace


def fill_october(workplace: Workplace) -> None:
    """A computed month, and the results of its one red day."""
    grid = Grid(workplace.database)
    grid.endpoint(SITE, "CE", HOST)
    for time, status in RESULTS.items():
        grid.result(f"CE {HOST} ping", time, status, day=RED_DAY)
    times = {"startTime": f"{RED_DAY}T10:00:00Z", "endTime": f"{RED_DAY}T12:00:00Z"}
    grid.downtime("10:00", "12:00", siteName=SITE, **times)
    grid.group(SITE, "NORTH")
    grid.dispose()
    engine = make_engine(workplace.database)
    report = read_profile(workplace.directory / "critical.toml")
    for day in month_of(RED_DAY).days():
        timeline = {"00:00": "OK"}
        if day == RED_DAY:
            timeline = {**RESULTS, "10:00": "DOWNTIME", "12:00": "OK"}
            timeline = {at: timeline[at] for at in sorted(timeline) if at != "07:30"}
        members = [Member("federation", "NORTH", SITE, 0)]
        publish(engine, report, day, {f"{SITE} CE {HOST}": timeline}, members)
    while fold(engine):
        pass
    engine.dispose()
    execute(workplace.database, "DELETE FROM changed_day")  # as after the night


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    """One shell for all blocks; Spark runs for two of them. For archives see test_archive.py."""
    of_archives = PAGE.texts("sh", "From the archive")
    workplace = with_profile(tmp_path)
    without_downtimes = PROFILE.replace("[flavours", "downtimes = []\n[flavours", 1)
    workplace.write("no-downtimes.toml", without_downtimes)
    fill_october(workplace)

    done = shell(workplace, *(text for text in PAGE.texts("sh") if text not in of_archives))

    assert done.code == 0, str(done)
    output = squeezed(done.out)
    shown = [line for text in PAGE.texts("text") for line in squeezed(text)]
    assert len(shown) == 17
    assert [line for line in shown if line not in output] == []
    assert "critical: nothing is due" in output
    assert f"critical {RED_DAY}: 5 results, 1 metric instance," in done.out
    assert "critical 2026-10: sealed by Jane Doe, revision 1" in output
    assert len((tmp_path / "ticket.txt").read_text().splitlines()) <= 40
    assert f'id="{RED_DAY}"' in (tmp_path / f"pages/critical/2026-10/{SITE}.html").read_text()
    changes = query(workplace.database, "SELECT level, reason FROM report_change")
    assert {"site", "endpoint"} <= {row["level"] for row in changes}
    assert all("exclusions changed" in row["reason"] for row in changes)


def test_the_systemd_unit_computes_and_writes_the_pages_as_the_cron_line_does(
    tmp_path: Path,
) -> None:
    workplace = with_profile(tmp_path)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    engine = make_engine(workplace.database)
    report = read_profile(workplace.directory / "critical.toml")
    publish(engine, report, yesterday, {f"{SITE} CE {HOST}": {"00:00": "OK"}})
    engine.dispose()
    execute(workplace.database, "DELETE FROM changed_day")
    out = tmp_path / "reports"
    services = [UNITS / f"{name}.service" for name in ("sam-report", "sam-report-pages")]
    unit = (
        "".join(path.read_text() for path in services)
        .replace("%%", "%")
        .replace("$$", "$")
        .replace("/usr/bin/", "")
    )
    unit = unit.replace("/etc/sam/report.toml", "sam.toml").replace(
        "/var/lib/sam/reports", f"{out}"
    )
    run, write = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)

    outputs = []
    for command in (run, write):
        done = shell(workplace, command)
        assert done.code == 0, str(done)
        outputs.append(done.out)

    assert outputs == ["critical: nothing is due\n", ""]
    assert (out / f"critical/{yesterday:%Y-%m}/{SITE}.html").exists()
    [cron] = [text for text in PAGE.texts("") if "run --due && " in text]
    for date_option in re.findall(r'--(?:from|to) "[^"]+"', cron.replace("\\%", "%")):
        assert date_option in write
