"""The page docs/archive.md, as typed, on both databases; and a pruned day that comes back."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.sql.archive.layout import SCHEMAS
from tests.services.postgres import PostgresServer, as_role, fresh_database
from tests.support.commands import Workplace
from tests.support.page import Page, shell
from tests.support.reports.stored import query

PAGE = Page("docs/archive.md")
OF_PAGE = ("2026-10-01", "2026-10-02", "2026-10-03")
DAYS = [datetime.now(UTC).date() - timedelta(days=age) for age in (6, 5, 4)]
"""The days that are used instead of those of the page."""
HOSTS = ("ce01.example.org", "ce02.example.org")


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    database = f"sqlite:///{tmp_path / 'sam.db'}"
    if request.param == "postgresql":
        database = fresh_database(request.getfixturevalue("postgres"))
    workplace = Workplace(tmp_path, broker=f"spool://{tmp_path / 'spool'}", database=database)
    workplace.write_configuration().succeed("sam-db", "upgrade")
    configuration = (tmp_path / "sam.toml").read_text()
    workplace.write("sam.toml", configuration + here(workplace, PAGE.texts("toml")[0]))
    (tmp_path / "archive").mkdir()
    return workplace


def here(workplace: Workplace, text: str) -> str:
    """A block of the page with the archive and the days of the workplace."""
    for of_page, day in zip(OF_PAGE, DAYS, strict=True):
        text = text.replace(of_page, str(day))
    return text.replace("/srv/sam/archive", str(workplace.directory / "archive"))


def load(workplace: Workplace) -> None:
    records = [
        f"hostName: {host}\nserviceFlavour: CE\nmetricName: org.example.Ping\n"
        f"metricStatus: {status}\ntimestamp: {day}T{hour:02}:00:00Z\ndetailsData: at {hour}\nEOT\n"
        for day in DAYS
        for host in HOSTS
        for hour, status in ((1, "OK"), (2, "CRITICAL"))
    ]
    workplace.succeed("sam-publish", "send", workplace.write("records.txt", "".join(records)))
    workplace.succeed("sam-consume", "run", "--drain")


def python(workplace: Workplace, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=workplace.directory,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def results(workplace: Workplace) -> list[dict[str, object]]:
    columns = "hostName, timestamp, metricStatus, detailsData, messageId, publisher"
    return query(
        workplace.database, f"SELECT {columns} FROM metricOutput ORDER BY hostName, timestamp"
    )


def test_the_page_works_as_typed(workplace: Workplace) -> None:
    load(workplace)
    before = results(workplace)
    scripts = [here(workplace, text) for text in PAGE.texts("sh") if "systemctl" not in text]

    answer = shell(workplace, *scripts)

    assert answer.code == 0, str(answer)
    # The first day was written again with --force.
    assert f"{DAYS[0]}: version 1, 4 results" in answer.out
    assert f"{DAYS[0]}: version 2, 4 results" in answer.out
    assert "0 rows restored, 4 known" in answer.out
    assert results(workplace) == before
    duckdb, pandas = (
        python(workplace, here(workplace, text).replace("v1.json", "v2.json"))
        for text in PAGE.texts("python", "Read it")
    )
    assert str(DAYS[0]) in duckdb
    assert "ce02.example.org" in duckdb
    assert "ce01.example.org" in pandas
    assert set(PAGE.unused("sh", "toml", "python")) <= {"Every night"}


def test_a_pruned_day_is_restored(workplace: Workplace) -> None:
    load(workplace)
    before = results(workplace)
    workplace.succeed("sam-db", "archive", "--due", "--verify")

    workplace.succeed("sam-db", "prune", "--keep-results", "3d")
    assert len(results(workplace)) < len(before)
    for day in DAYS:
        workplace.succeed("sam-db", "archive", "--restore", str(day))

    after = results(workplace)
    assert [row["timestamp"] for row in after] == [row["timestamp"] for row in before]
    listed = workplace.succeed("sam-db", "archive", "--list", "--json").json
    assert [row["state"] for row in listed[:2]] == ["pruned", "pruned"]


def test_the_page_lists_all_columns() -> None:
    text = (Path(__file__).parents[3] / "docs/archive.md").read_text()

    for schema in SCHEMAS.values():
        for name in schema.names:
            assert f"`{name}`" in text, name


def test_an_archiver_can_do_nothing_else(tmp_path: Path, postgres: PostgresServer) -> None:
    database = fresh_database(postgres)
    workplace = Workplace(tmp_path, broker=f"spool://{tmp_path / 'spool'}", database=database)
    workplace.write_configuration().succeed("sam-db", "upgrade")
    workplace.write("sam.toml", (tmp_path / "sam.toml").read_text() + '[archive]\nurl = "archive"')
    (tmp_path / "archive").mkdir()
    load(workplace)

    # As its role, which commands.py gives to `sam-db archive`.
    workplace.succeed("sam-db", "archive", "--due", "--verify")
    environment = {"SAM_DATABASE_URL": as_role(database, "archiver")}
    archiver = replace(workplace, environment=environment)
    refused = [
        shell(archiver, f"sam-db archive --restore {DAYS[0]}"),
        shell(archiver, "sam-db prune --keep-results 400d"),
    ]

    assert [answer.code for answer in refused] == [77, 77], refused
    workplace.succeed("sam-db", "check")
