"""Reports from the archive: without the database, and of pruned days."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.spark_jobs.config import find_java
from sam_pipeline.sql.database.engine import make_engine
from tests.services import missing
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.commands import Workplace
from tests.support.reports.database import PROFILE, Grid
from tests.support.reports.published import published_figures, published_timeline

# Fixed once, because midnight may pass while the tests run.
LAST = datetime.now(UTC).date() - timedelta(days=3)
FIRST = LAST - timedelta(days=2)
PERIOD = ("--from", str(FIRST), "--to", str(LAST))
RUN = ("sam-report", "run", "--profile", "test.toml", *PERIOD, "--json")


@dataclass(frozen=True)
class Archived:
    """An archive, and what its days are in a report from the database, which is gone."""

    root: Path
    results_read: int
    figures: set[Any]
    timeline: set[Any]


@pytest.fixture(scope="module")
def archived(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Archived]:
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    directory = tmp_path_factory.mktemp("archived")
    root = directory / "archive"
    root.mkdir()
    database = fresh_database(postgres)
    workplace = configured(Workplace(directory, f"spool://{directory}/queue", database), root)
    fill(database)
    workplace.succeed(
        "sam-db", "archive", "write", "--from", str(FIRST - timedelta(days=1)), *PERIOD[2:]
    )
    [summary] = workplace.succeed(*RUN, "--source", "database").json
    figures, timeline = published(database)
    postgres.execute(f"DROP DATABASE {database.rpartition('/')[2]} WITH (FORCE)")
    assert figures and timeline
    return Archived(root, summary["results_read"], figures, timeline)


def test_files_alone_are_enough_to_compute_show_and_explain_days(
    archived: Archived, tmp_path: Path
) -> None:
    workplace = new_figures(tmp_path, archived.root)

    [summary] = workplace.succeed(*RUN, "--source", "archive").json

    assert published(workplace.database) == (archived.figures, archived.timeline)
    assert summary["results_read"] == archived.results_read
    days = [FIRST + timedelta(days=number) for number in range(-1, 3)]
    assert summary["archive_versions"] == {str(day): 1 for day in days}
    shown = workplace.succeed("sam-report", "show", *PERIOD).out
    assert shown.startswith(f"test, {FIRST} to {LAST} (from the archive: {FIRST} to {LAST})\n")
    about = ("sam-report", "explain", "--day", str(FIRST), "--site", "A")
    [document] = workplace.succeed(*about, "--json").json
    assert document["results_from_archive"] == {str(FIRST): 1}
    [of_b] = workplace.succeed(*about[:-1], "B", "--json").json
    assert [downtime["publisher"] for downtime in of_b["downtimes"]] == [ANONYMOUS]
    workplace.succeed("sam-report", "pages", *PERIOD, "--out", "pages")
    page = next((workplace.directory / "pages").rglob("*/A*.html")).read_text()
    assert "CRITICAL says" in page


def test_a_pruned_day_is_computed_and_explained_from_the_archive(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    root.mkdir()
    database = f"sqlite:///{tmp_path}/sam.db"
    workplace = configured(Workplace(tmp_path, f"spool://{tmp_path}/queue", database), root)
    fill(database)
    day = ("--day", str(LAST - timedelta(days=1)))
    workplace.succeed(
        "sam-db", "archive", "write", "--from", str(FIRST - timedelta(days=1)), *PERIOD[2:]
    )
    workplace.succeed("sam-db", "archive", "verify")
    workplace.succeed("sam-db", "prune", "--keep-results", "3d")
    run = (*RUN[:4], *day)

    refused = workplace.run(*run, "--source", "database")
    computed = workplace.succeed(*run)
    explained = workplace.succeed("sam-report", "explain", *day, "--site", "A")

    assert refused.code == 64
    assert "were pruned" in refused.err
    assert "1 day from the archive" in computed.out
    assert "from the archive, version 1" in explained.out
    assert "CRITICAL says" in explained.out


def configured(workplace: Workplace, root: Path) -> Workplace:
    workplace.write_configuration()
    path = workplace.directory / "sam.toml"
    with path.open("a") as file:
        file.write(f'[archive]\nurl = "file://{root}"\n')
    workplace.write("test.toml", PROFILE)
    return workplace


def new_figures(directory: Path, root: Path) -> Workplace:
    """A workplace with a new SQLite database, for figures alone."""
    database = f"sqlite:///{directory}/figures.db"
    workplace = configured(Workplace(directory, f"spool://{directory}/queue", database), root)
    workplace.succeed("sam-db", "upgrade")
    return workplace


def fill(database: str) -> None:
    """Two sites with results throughout some days, a downtime, an exclusion and another VO."""
    grid = Grid(database)
    for site in ("A", "B"):
        grid.endpoint(site, "CE", f"ce.{site}")
        grid.endpoint(site, "SRM", f"se.{site}")
        grid.group(site, "NORTH", weight=3)
        for number in range(-1, 4):
            day = FIRST + timedelta(days=number)
            for hour in range(0, 24, 3):
                status = ("OK", "OK", "CRITICAL", "WARNING", "UNKNOWN")[
                    (hour + number) * len(site + "x") % 5
                ]
                at = f"{hour:02}:{hour:02}"
                for metric in ("CE ce.{} ping", "CE ce.{} submit", "SRM se.{} put"):
                    grid.result(metric.format(site), at, status, day=day)
                grid.result(f"SRM se.{site} put", f"{hour:02}:59", "OK", day=day, vo="physics")
    times = {"startTime": f"{FIRST}T13:00:00Z", "endTime": f"{FIRST}T14:30:00Z"}
    grid.downtime("13:00", "14:30", siteName="B", **times)
    grid.dispose()


def published(database: str) -> tuple[set[Any], set[Any]]:
    engine = make_engine(database)
    figures, timeline = published_figures(engine, "test"), published_timeline(engine, "test")
    engine.dispose()
    return figures, timeline
