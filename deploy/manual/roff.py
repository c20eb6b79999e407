"""Text for man(7), from plain text and from the little Markdown of our tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sam_pipeline.schema.program.help import EXAMPLES, Section, example_lines

SPECIAL = {
    "\\": r"\e",
    "-": r"\-",
    "'": r"\(aq",
    '"': r"\(dq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
}
MARK = re.compile(r"`(?P<code>[^`]+)`|(?<!\w)\*(?P<name>[\w-]+)\*|\[(?P<text>[^]]+)\]\([^)]*\)")
"""Inline Markdown: code, the name of a thing, a link."""
WIDTH = 69
"""Of examples, so that they fit in 80 columns."""


def plain(text: str) -> str:
    """The text as it is, in the current font."""
    escaped = "".join(
        SPECIAL.get(char) or (char if char.isascii() else rf"\[u{ord(char):04X}]") for char in text
    )
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def bold(text: str) -> str:
    return rf"\fB{plain(text)}\fR"


def inline(markdown: str) -> str:
    """A text with code in bold, names in italics, and only the text of links."""
    parts, end = [], 0
    for mark in MARK.finditer(markdown):
        shown = bold(mark["code"]) if mark["code"] else plain(mark["text"] or "")
        shown = rf"\fI{plain(mark['name'])}\fR" if mark["name"] else shown
        parts += [plain(markdown[end : mark.start()]), shown]
        end = mark.end()
    return "".join([*parts, plain(markdown[end:])])


def usage(text: str) -> str:
    """The term of an option, or a part of a synopsis: placeholders are in italics."""
    words = re.split(r"(-*\w[\w-]*)", text)
    return "".join(
        plain(word)
        if number % 2 == 0
        else rf"\fI{plain(word)}\fR"
        if word.isupper()
        else bold(word)
        for number, word in enumerate(words)
    )


def definition(term: str, markdown: str) -> list[str]:
    """A term, which is roff already, and its indented explanation."""
    return [".TP", term, inline(markdown)]


def literal(lines: Iterable[str]) -> list[str]:
    """Lines that are shown as they are, indented."""
    return [".PP", ".RS 4", ".EX", *map(plain, lines), ".EE", ".RE"]


def rendered(section: Section) -> list[str]:
    """A part of the help: its title, paragraphs, and items or examples."""
    title, paragraphs, items = section
    lines = [".PP", f"{plain(title.capitalize())}:"] if title else []
    lines += [line for text in paragraphs for line in (".PP", inline(text))]
    if title not in EXAMPLES:
        return lines + [line for item in items for line in definition(usage(item.term), item.text)]
    return lines + literal(line[2:] for line in example_lines(items, WIDTH))


def markdown(text: str) -> Iterator[str]:
    """A page of docs/ without its title: sections, paragraphs, lists and code."""
    for number, part in enumerate(re.split(r"^```\w*\n(.*?)^```$", text, flags=re.M | re.S)):
        if number % 2:
            yield from literal(part.splitlines())
            continue
        for block in part.strip().split("\n\n"):
            head, *items = re.split(r"^- ", block, flags=re.M)
            if head.startswith("## "):
                yield f'.SS "{plain(head[3:])}"'
            elif head and not head.startswith("# "):
                yield from (".PP", inline(" ".join(head.split())))
            for item in items:
                yield from (r".IP \(bu 2", inline(" ".join(item.split())))


def joined(lines: Sequence[str]) -> str:
    """The text of a page; a heading begins a paragraph by itself."""
    kept = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if line != ".PP" or not before.startswith((".SH", ".SS"))
    ]
    return "\n".join([*kept, ""])
