"""What is wrong with a profile: every problem with its line and key."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sam_pipeline.schema.program.toml_lines import KeyPath
from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.spark_jobs.errors import ProfileError

_HINTS, _NAMES = 20, 1000  # problems that get one, names to choose from: it takes time
_SHOWN = 60  # characters of a wrong value


class Problems:
    """Collects what is wrong with the profile of one file."""

    def __init__(self, file: str, lines: Mapping[KeyPath, int]) -> None:
        self._file = file
        self._lines = lines
        self._found: list[tuple[int, str]] = []

    def add(self, place: KeyPath, words: str) -> None:
        line = self.line(place)
        where = f"{self._file}:{line}" if line else self._file
        key = _told(place)
        self._found.append((line, f"{where}: {key}: {words}" if key else f"{where}: {words}"))

    def line(self, place: KeyPath) -> int:
        """Where a place stands, or what it would stand in; 0 if the file doesn't have that."""
        around = (place[:length] for length in range(len(place), 0, -1))
        return next((self._lines[each] for each in around if each in self._lines), 0)

    def refuse(self) -> None:
        """
        Raises:
            ProfileError: the problems, if there are some, from top to bottom.
        """
        if self._found:
            raise ProfileError([text for _, text in sorted(self._found, key=lambda each: each[0])])

    def unknown_keys(self, table: Mapping[str, Any], known: Iterable[str], place: KeyPath) -> None:
        names = dict.fromkeys(known)
        for key in table:
            if key not in names:
                self.add((*place, key), f"unknown key{self.hint(key, names)}")

    def hint(self, name: str, known: Collection[str]) -> str:
        """The known name that was meant, perhaps."""
        if len(self._found) >= _HINTS or len(known) > _NAMES:
            return ""
        meant = did_you_mean(name, known)
        return f", {meant}" if meant else ""

    def table(self, document: Mapping[str, Any], key: str) -> dict[str, Any]:
        found = document.get(key, {})
        if isinstance(found, dict):
            return found
        self.add((key,), f"want a table [{key}]")
        return {}

    def tables(self, document: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
        """The tables in a table, by name."""
        found = self.table(document, key)
        for name, table in found.items():
            if not isinstance(table, dict):
                self.add((key, name), f"want a table [{key}.{name}]")
            elif not is_text(name):
                self.add((key, name), "no name")
        return {name: table for name, table in found.items() if isinstance(table, dict)}

    def names(
        self, table: Mapping[str, Any], key: str, place: KeyPath, what: str
    ) -> tuple[str, ...]:
        """A list of names, each once."""
        found = table.get(key)
        if not isinstance(found, list) or not found:
            self.add((*place, key), f"want a list of {what}, at least one")
            return ()
        for number, name in enumerate(found, 1):
            if not is_text(name):
                self.add((*place, key, number), f"want a text, not {shown(name)}")
        return tuple(dict.fromkeys(filter(is_text, found)))

    def text(self, table: Mapping[str, Any], key: str, place: KeyPath, what: str) -> str:
        """A text that must be there; empty if it isn't."""
        found = table.get(key)
        if is_text(found):
            return str(found)
        words = (
            f"want {what}, a text{instead(table, key)}" if key in table else f"is required: {what}"
        )
        self.add((*place, key), words)
        return ""

    def text_or_empty(self, table: Mapping[str, Any], key: str, place: KeyPath = ()) -> str | None:
        """A text, which may be empty; None if there is none."""
        found = table.get(key)
        if found in (None, "") or is_text(found):
            return found
        self.add((*place, key), f"want a text, not {shown(found)}")
        return None


def is_text(found: object) -> bool:
    """Whether it names something: not empty, all of it visible."""
    return isinstance(found, str) and found == found.strip() != "" and found.isprintable()


def instead(table: Mapping[str, Any], key: str) -> str:
    """What is there instead of what is wanted, if anything."""
    return f", not {shown(table[key])}" if key in table else ""


def shown(value: Any) -> str:
    """A wrong value, short enough for a line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _told(place: KeyPath) -> str:
    """`thresholds[2].warning`: items are counted from 1 on."""
    return "".join(_parts(place)).removeprefix(".")


def _parts(place: KeyPath) -> Iterator[str]:
    for part in place:
        if isinstance(part, int):
            yield f"[{part}]"
        else:
            yield (
                f".{part}"
                if is_text(part) and len(part) <= _SHOWN
                else f".{json.dumps(part)[:_SHOWN]}"
            )
