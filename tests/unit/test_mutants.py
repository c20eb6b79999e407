"""Each deliberate error of tests/mutants still finds the line that it changes."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.mutant import all_mutants

ROOT = Path(__file__).parents[2]


def test_each_mutant_finds_its_line() -> None:
    for mutant in all_mutants():
        mutant.line(ROOT)
