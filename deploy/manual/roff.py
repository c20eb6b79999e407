"""Text for man(7), from plain text and from the little Markdown of our tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

SPECIAL = {
    "\\": r"\e",
    "-": r"\-",
    "'": r"\(aq",
    '"': r"\(dq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
}
HEADINGS = (".SH", ".SS")
MARK = re.compile(r"`(?P<code>[^`]+)`|(?<!\w)\*(?P<name>[\w-]+)\*|\[(?P<text>[^]]+)\]\([^)]*\)")
"""Inline Markdown: code, the name of a thing, a link."""


def plain(text: str) -> str:
    """The text as it is, in the current font."""
    escaped = "".join(
        SPECIAL.get(char) or (char if char.isascii() else rf"\[u{ord(char):04X}]") for char in text
    )
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def bold(text: str) -> str:
    return rf"\fB{plain(text)}\fR"


def italic(text: str) -> str:
    return rf"\fI{plain(text)}\fR"


def inline(markdown: str) -> str:
    """A text with code in bold, names in italics, and only the text of links."""
    parts, end = [], 0
    for mark in MARK.finditer(markdown):
        parts.append(plain(markdown[end : mark.start()]))
        end = mark.end()
        if mark["code"]:
            parts.append(bold(mark["code"]))
        else:
            parts.append(italic(mark["name"]) if mark["name"] else plain(mark["text"]))
    return "".join([*parts, plain(markdown[end:])])


def title(name: str, section: int, date: str, source: str) -> Iterator[str]:
    """The first lines of a page: no hyphens, as they change options, and no wide gaps."""
    yield ".nr HY 0"
    yield f'.TH "{plain(name)}" {section} "{date}" "{plain(source)}" "SAM Pipeline"'
    yield from (".nh", ".ad l")


def heading(text: str) -> str:
    return f'.SH "{plain(text.upper())}"'


def subheading(text: str) -> str:
    return f'.SS "{plain(text)}"'


def paragraph(markdown: str) -> list[str]:
    return [".PP", inline(markdown)]


def definition(term: str, markdown: str) -> list[str]:
    """A term, which is roff already, and its indented explanation."""
    return [".TP", term, inline(markdown)]


def literal(lines: Iterable[str]) -> list[str]:
    """Lines that are shown as they are, indented."""
    return [".PP", ".RS 4", ".EX", *map(plain, lines), ".EE", ".RE"]


def joined(lines: Iterable[str]) -> str:
    """The text of a page; a heading begins a paragraph by itself."""
    kept: list[str] = []
    for line in lines:
        if line != ".PP" or not kept[-1].startswith(HEADINGS):
            kept.append(line)
    return "\n".join([*kept, ""])
