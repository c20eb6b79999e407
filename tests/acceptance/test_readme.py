"""The commands of README.md, in the order of the page."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.commands import Workplace
from tests.support.page import ROOT, Page, shell

README = Page("README.md")
MAKE = [line for block in README.texts("") for line in block.splitlines() if line[:5] == "make "]


def test_every_command_of_the_tour_succeeds(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path, broker="", database="")

    answer = shell(workplace, *README.texts("sh"))

    assert answer.code == 0, str(answer)
    assert (tmp_path / "pages" / "index.html").exists()


@pytest.mark.parametrize("line", MAKE)
def test_make_knows_every_target(line: str) -> None:
    completed = subprocess.run(["sh", "-c", f"{line.partition('#')[0]} --dry-run"], cwd=ROOT)

    assert completed.returncode == 0
