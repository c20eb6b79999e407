"""What README.md tells a newcomer to type works, in the order of the page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.commands import Workplace

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TARGET = re.compile(r"^make ([a-z-]+)", re.MULTILINE)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(README) if name == language]


def test_every_command_of_the_tour_succeeds(tmp_path: Path) -> None:
    """One shell for all blocks, as one person would type them."""
    place = Workplace(tmp_path, broker="", database="")
    script = "\n".join(["set -euo pipefail", *blocks("sh")])

    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=place.clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert "sam-report" in script  # the blocks were found
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "pages" / "index.html").exists()


def test_every_make_target_it_names_is_there() -> None:
    named = {target for block in blocks("") for target in TARGET.findall(block)}
    makefile = (ROOT / "Makefile").read_text()

    assert {"demo", "test"} <= named
    assert {target for target in named if f"\n{target}:" not in makefile} == set()
