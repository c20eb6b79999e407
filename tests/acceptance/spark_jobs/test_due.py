"""`sam-report run --due` on consecutive nights, on either database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.services.postgres import fresh_database
from tests.support.commands import Answer, Workplace
from tests.support.reports.database import PROFILE, Grid

# Fixed once, because midnight may pass while the tests run.
YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
FIRST = YESTERDAY - timedelta(days=3)


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    if request.param == "sqlite":
        database = f"sqlite:///{tmp_path}/sam.db"
    else:
        database = fresh_database(request.getfixturevalue("postgres"))
    workplace = Workplace(tmp_path, f"spool://{tmp_path}/queue", database)
    workplace.write_configuration()
    workplace.write("test.toml", PROFILE)
    return workplace


def run_due(workplace: Workplace, *more: str) -> Answer:
    return workplace.run("sam-report", "run", "--profile", "test.toml", "--due", *more)


def test_a_nightly_run_computes_new_and_changed_days(workplace: Workplace) -> None:
    grid = Grid(workplace.database)
    grid.endpoint("A", "SRM", "h1")
    grid.result("SRM h1 put", "00:00", "OK", day=FIRST)

    first_night = run_due(workplace)
    idle_night = run_due(workplace)
    grid.result("SRM h1 put", "12:00", "CRITICAL", day=FIRST)
    grid.engine.dispose()
    times = ("--start", f"{YESTERDAY}T00:00Z", "--end", f"{YESTERDAY}T12:00Z")
    workplace.succeed("sam-report", "exclusion", "add", "--group", "A", *times, "--reason", "x")
    third_night = run_due(workplace, "--json")

    assert first_night.code == 0, str(first_night)
    assert first_night.out.startswith(f"test {FIRST} to {YESTERDAY}: 1 result,")
    assert (idle_night.code, idle_night.out) == (0, "test: nothing is due\n")
    assert third_night.code == 0, str(third_night)
    late, excluded = third_night.json
    touched = FIRST + timedelta(days=1)  # a result holds until the next day's first
    assert (late["first_day"], late["last_day"]) == (str(FIRST), str(touched))
    assert (excluded["first_day"], excluded["last_day"]) == (str(YESTERDAY), str(YESTERDAY))
    assert late["figures_changed"] > 0
    assert excluded["figures_changed"] > 0
