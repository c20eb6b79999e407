"""Where each key, table and array item of a TOML text stands: what tomllib reads but doesn't tell.

A place is the way to a value: keys, and the numbers of array items from 1 on. So the second
`[[thresholds]]` is ("thresholds", 2), whichever way it is written.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

Place = tuple[str | int, ...]

_TOKEN = re.compile(
    r'''
    (?P<string> """(?:\\.|[^\\])*?"{3,5} | \'\'\'.*?\'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<skip> [ \t]+ | \#[^\n]* )
    | (?P<mark> [\[\]{},=.\n] )
    | (?P<bare> [^][{},=.\s"'\#]+ )
    ''',
    re.VERBOSE | re.DOTALL,
)


def lines_of(text: str) -> dict[Place, int]:
    """The line of each place, from 1 on; of a table that is named more than once, the first.

    `text` is TOML that tomllib has read, with plain newlines.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Token(NamedTuple):
    """A string or a bare word as written, or a mark; the end of the text is an empty mark."""

    text: str
    line: int
    is_mark: bool


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for found in _TOKEN.finditer(text):
        if found.lastgroup != "skip":
            yield _Token(found[0], line, found.lastgroup == "mark")
        line += found[0].count("\n")
    yield _Token("", line, True)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[Place, int] = {}
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._items: Counter[Place] = Counter()  # tables of each array of tables, so far

    def document(self) -> None:
        table: Place = ()
        while self._next.text:
            if self._at("\n"):
                self._take()
            elif self._at("["):
                table = self._header()
            else:
                self._pair(table)

    def _at(self, *marks: str) -> bool:
        return self._next.is_mark and self._next.text in marks

    def _take(self) -> _Token:
        token = self._next
        if token.text:
            self._next = next(self._tokens)
        return token

    def _header(self) -> Place:
        line = self._take().line
        is_item = self._at("[")
        if is_item:
            self._take()
        *parents, last = self._key("]")
        place: Place = ()
        for name in parents:
            place = (*place, name)
            self.lines.setdefault(place, line)
            if place in self._items:
                place = (*place, self._items[place])
        place = (*place, last)
        self.lines.setdefault(place, line)
        if is_item:
            self._take()
            self._items[place] += 1
            place = (*place, self._items[place])
            self.lines[place] = line
        return place

    def _pair(self, table: Place) -> None:
        line = self._next.line
        place = table
        for name in self._key("="):
            place = (*place, name)
            self.lines.setdefault(place, line)
        self._value(place)

    def _key(self, end: str) -> list[str]:
        """The parts of a key, up to the mark that ends it."""
        parts = []
        while not self._at(end, ""):
            token = self._take()
            if not token.is_mark:
                parts.append(_name(token.text))
        self._take()
        return parts

    def _value(self, place: Place) -> None:
        if self._at("["):
            self._array(place)
        elif self._at("{"):
            self._inline_table(place)
        else:  # one token, or several: 1.5, 1979-05-27 07:32:00
            while not self._at("\n", ",", "]", "}", ""):
                self._take()

    def _array(self, place: Place) -> None:
        self._take()
        number = 0
        while not self._at("]", ""):
            if self._at("\n", ","):
                self._take()
                continue
            number += 1
            self.lines[(*place, number)] = self._next.line
            self._value((*place, number))
        self._take()

    def _inline_table(self, place: Place) -> None:
        self._take()
        while not self._at("}", ""):
            if self._at("\n", ","):
                self._take()
            else:
                self._pair(place)
        self._take()


def _name(written: str) -> str:
    """A key without its quotes."""
    if written[0] not in "\"'":
        return written
    value: Any = tomllib.loads(f"name = {written}")["name"]
    return str(value)
