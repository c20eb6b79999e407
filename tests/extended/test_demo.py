"""The demo, run twice, as newcomers see it first."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.demo.files import demo_world
from tests.demo.road import figures_table
from tests.oracle.oracle import day_report, period
from tests.support.commands import Workplace
from tests.worlds.small import PROFILE

ROOT = Path(__file__).parents[2]
TABLE = re.compile(r"^(\d{4}-\d\d-\d\d) to \d{4}-\d\d-\d\d:\n\n((?:   .*\n)+)", re.MULTILINE)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The output of the first and of the second run."""
    directory = tmp_path_factory.mktemp("demo")
    return run_demo(directory), run_demo(directory)


def test_both_runs_give_the_figures_of_the_oracle_and_one_dead_letter(
    outputs: tuple[str, str],
) -> None:
    first_day, table = printed_table(outputs[0])

    assert table == oracles_table(first_day)
    assert printed_table(outputs[1]) == (first_day, table)
    assert "exit 65" not in outputs[1]  # no new dead letter
    for output in outputs:
        assert output.count("Dead letter ") == 1
        assert "SPLENDID" in output


def run_demo(directory: Path) -> str:
    workplace = Workplace(directory, broker="", database="")
    completed = subprocess.run(
        [sys.executable, "-m", "tests.demo"],
        cwd=directory,
        env={**workplace.clean_environment(), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert completed.returncode == 0, completed.stdout
    return completed.stdout


def printed_table(output: str) -> tuple[date, list[str]]:
    """The first of the seven days, and the lines of the last table."""
    match = TABLE.search(output)
    assert match, output
    return date.fromisoformat(match[1]), [line.strip() for line in match[2].splitlines()]


def oracles_table(first_day: date) -> list[str]:
    world = demo_world(first_day)
    days = [day_report(world, PROFILE, day).figures("sites") for day in world.all_days]
    sites = {site: period([day[(site,)] for day in days]) for (site,) in days[0]}
    rows = [
        {"site": site, "availability": week.availability, "reliability": week.reliability}
        for site, week in sites.items()
    ]
    return [line.strip() for line in figures_table(rows)]
