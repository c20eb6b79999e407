"""The line of each key, table and array item of a TOML text, which TOML parsers don't report.

Imported only to report a problem: it takes longer than reading a short sam.toml.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Union

KeyPath = tuple[Union[str, int], ...]
"""The keys that lead to a value, and the numbers of array items, from 1.

The second `[[thresholds]]` is ("thresholds", 2), and so is the second table of an inline array.
"""

_TOKEN = re.compile(
    r'''
    (?P<string> """(?:\\.|[^\\])*?"{3,5} | \'\'\'.*?\'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<skip> [ \t]+ | \#[^\n]* )
    | (?P<mark> [\[\]{},=.\n] )
    | (?P<bare> [^][{},=.\s"'\#]+ )
    ''',
    re.VERBOSE | re.DOTALL,
)


def lines_of(text: str) -> dict[KeyPath, int]:
    """The line of each path, from 1; of a table with several headers, the first.

    `text` is valid TOML with plain newlines.
    """
    return _Scanner(text).document()


class _Token(NamedTuple):
    """A string, a bare word or a mark, as written; the end of the text is an empty mark."""

    text: str
    line: int
    is_mark: bool


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            yield _Token(match[0], line, match.lastgroup == "mark")
        line += match[0].count("\n")
    yield _Token("", line, True)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._items: Counter[KeyPath] = Counter()  # by array of tables: its tables so far

    def document(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._next.text:
            if self._at("\n"):
                self._take()
            elif self._at("["):
                table = self._header()
            else:
                self._pair(table)
        return self.lines

    def _at(self, *marks: str) -> bool:
        return self._next.is_mark and self._next.text in marks

    def _take(self) -> _Token:
        token = self._next
        if token.text:
            self._next = next(self._tokens)
        return token

    def _header(self) -> KeyPath:
        line = self._take().line
        is_item = self._at("[")
        if is_item:
            self._take()
        *parents, last = self._key("]")
        path: KeyPath = ()
        for name in parents:
            path = (*path, name)
            self.lines.setdefault(path, line)
            if path in self._items:
                path = (*path, self._items[path])
        path = (*path, last)
        self.lines.setdefault(path, line)
        if is_item:
            self._take()
            self._items[path] += 1
            path = (*path, self._items[path])
            self.lines[path] = line
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._next.line
        path = table
        for name in self._key("="):
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._value(path)

    def _key(self, end: str) -> list[str]:
        """The parts of a key without their quotes, up to the mark that ends it."""
        parts = []
        while not self._at(end, ""):
            token = self._take()
            if token.text[0] == "'":
                parts.append(token.text[1:-1])
            elif token.text[0] == '"':
                from ast import literal_eval  # Python has all escapes of TOML

                parts.append(literal_eval(token.text))
            elif not token.is_mark:
                parts.append(token.text)
        self._take()
        return parts

    def _value(self, path: KeyPath) -> None:
        if self._at("["):
            self._take()
            number = 0
            while not self._at("]", ""):
                if self._at("\n", ","):
                    self._take()
                    continue
                number += 1
                self.lines[(*path, number)] = self._next.line
                self._value((*path, number))
            self._take()
        elif self._at("{"):
            self._take()
            while not self._at("}", ""):
                if self._at("\n", ","):
                    self._take()
                else:
                    self._pair(path)
            self._take()
        else:  # one token, or several: 1.5, 1979-05-27 07:32:00
            while not self._at("\n", ",", "]", "}", ""):
                self._take()
