"""Where a key stands in sam.toml, with its line: for what is told to a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

# Of lines of the file; compiled where there is a problem to tell, not at each start.
_HEADER = r"""\s*\[\[?([\w."' -]+)\]\]?\s*(?:#.*)?$"""
_KEY = r"""\s*(["']?)([\w-]+)\1\s*[=.]"""


class Table(NamedTuple):
    """One table of the file: its `path` in TOML, its `name` for people, its `number` in an array.

    Parsers forget lines, so a key is found again by its text; only problems need that.
    """

    file: Optional[Path]
    path: str
    name: str
    number: int = 1

    def at(self, key: str, word: str = "") -> str:
        """Where a key stands, `word` put before its name; without a key, the table itself."""
        what = f"{self.name} {word}{key}"
        if self.file is None:
            return what
        line = next((at for at, name in self._keys() if name == key), None)
        return f"{self.file}:{line}: {what}" if line else f"{self.file}: {what}"

    def item(self, key: str, number: int) -> Table:
        """A table of the array that is the value of a key."""
        return Table(self.file, f"{self.path}.{key}", f"{self.name} {key}[{number}]", number)

    def _keys(self) -> Iterator[tuple[int, str]]:
        """Line and name of each key of the table, and its own line with an empty name.

        A key may be a table with a header of its own: `[consumer.subscription.rename]`.
        """
        import re

        text = self.file.read_text(encoding="utf-8") if self.file else ""
        seen, inside = 0, False
        for at, line in enumerate(text.splitlines(), 1):
            header, key = re.match(_HEADER, line), re.match(_KEY, line)
            if header:
                inside = _bare(header[1]) == self.path
                seen += inside
                parent, _, own = _bare(header[1]).rpartition(".")
                if parent == self.path and seen == self.number:
                    yield at, own
            if inside and seen == self.number and (header or key):
                yield at, key[2] if key else ""


def _bare(name: str) -> str:
    """A name of the file without quotes and blanks."""
    return "".join(character for character in name if character not in "\"' ")
