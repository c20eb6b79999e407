"""The code blocks of the pages in docs/, run as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.commands import Answer, Workplace
from tests.support.invoke import call

ROOT = Path(__file__).parents[2]
HEADING_OR_BLOCK = re.compile(
    r"^#+ (?P<heading>[^\n]*)$|^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


class Page:
    """The code blocks of a page, by the headings above them."""

    def __init__(self, name: str) -> None:
        text = (ROOT / name).read_text(encoding="utf-8")
        self._blocks = list[tuple[str, str, str]]()
        heading = ""
        for found in HEADING_OR_BLOCK.finditer(text):
            heading = found["heading"] or heading
            if not found["heading"]:
                self._blocks.append((heading, found[2], found[3]))

    def texts(self, language: str, section: str = "") -> list[str]:
        """The blocks in a language, in order, of the sections whose headings contain `section`."""
        texts = [
            text
            for heading, own_language, text in self._blocks
            if own_language == language and section in heading
        ]
        assert texts, section
        return texts


def shell(workplace: Workplace, *scripts: str) -> Answer:
    """Run the scripts in one shell in the workplace, which stops at the first failure."""
    command = ["bash", "-c", "\n".join(["set -euo pipefail", *scripts])]
    return call(command, workplace.directory, workplace.clean_environment(), timeout_s=400)
