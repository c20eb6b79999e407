"""Deliberate errors in the product, as data: the files `*.toml` of this directory.

["consumer/core/loop.py"]
'line of the file' = ['its replacement', "what is wrong then"]

A line must occur once in its file; if it occurs more often, the lines above it precede it in the
key. The last line of a key is replaced.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


class NotFound(Exception):
    """The line of a mutant is not in its file, or there more than once."""


@dataclass(frozen=True)
class Mutant:
    file: str
    text: str
    """One or more stripped lines, of which the last is replaced."""
    replacement: str
    why: str
    drawn: bool
    """Whether a program chose it."""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.text.splitlines()[-1]}"

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]

    def line(self, root: Path) -> int:
        """The number of the line to replace, from 1.

        Raises:
            NotFound: aim the mutant at the code that decides it now.
        """
        wanted = self.text.splitlines()
        lines = [line.strip() for line in (root / self.file).read_text().splitlines()]
        ends = [
            end
            for end in range(len(wanted), len(lines) + 1)
            if lines[end - len(wanted) : end] == wanted
        ]
        if len(ends) != 1:
            raise NotFound(f"{self.file}: found {len(ends)} times: {self.text}")
        return ends[0]

    def mutated(self, root: Path) -> str:
        """The text of the file with the error."""
        number = self.line(root)
        lines = (root / self.file).read_text().splitlines()
        old = lines[number - 1]
        indent = old[: len(old) - len(old.lstrip())]
        lines[number - 1] = indent + self.replacement.replace("\n", f"\n{indent}")
        text = "\n".join([*lines, ""])
        if self.file.endswith(".py"):
            compile(text, self.file, "exec")
        return text


def all_mutants() -> Iterator[Mutant]:
    for path in sorted(HERE.glob("*.toml")):
        for file, entries in tomllib.loads(path.read_text()).items():
            for text, (replacement, why) in entries.items():
                yield Mutant(file, text, replacement, why, path.stem == "drawn")
