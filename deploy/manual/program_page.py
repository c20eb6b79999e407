"""The page of a program in section 1, from its parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from textwrap import wrap

from deploy.manual import help_text
from deploy.manual.options import option_list, synopsis
from deploy.manual.parsers import commands, parser_of
from deploy.manual.roff import (
    bold,
    definition,
    heading,
    literal,
    paragraph,
    plain,
    subheading,
)
from docs.environment import ENVIRONMENT, FILES
from docs.exit_codes import EXIT_CODES

EXIT_CODES_OF: Mapping[str, str] = {
    "sam-publish": "publisher",
    "sam-consume": "consumer",
    "sam-db": "database",
    "sam-report": "reports",
}
"""The table of exit codes of a program; plugins describe theirs in their help."""
RELATED: Mapping[str, str] = {
    "sam-publish": "check_sam_publisher(1) sam-consume(1) sam.toml(5)",
    "check_sam_publisher": "sam-publish(1) sam.toml(5)",
    "sam-consume": "check_sam_consumer(1) sam-db(1) sam-publish(1) sam.toml(5)",
    "check_sam_consumer": "sam-consume(1) sam.toml(5)",
    "sam-db": "sam-consume(1) sam-report(1) sam.toml(5)",
    "sam-report": "sam-db(1) spark-submit(1) sam.toml(5)",
}


def program_page(program: str) -> Iterator[str]:
    parser = parser_of(program)
    summary = str(parser.description).removesuffix(".")
    text = help_text.parse(parser.epilog or "")
    subcommands = list(commands(parser))
    yield from name(program, f"{summary[0].lower()}{summary[1:]}")
    yield heading("Synopsis")
    yield from synopsis(parser)
    yield heading("Description")
    yield from description(parser)
    yield from others(text)
    yield heading("Options")
    if subcommands:
        yield from paragraph("Each command accepts these options as well.")
    yield from option_list(parser, common=True)
    yield from option_list(parser, common=False)
    if subcommands:
        yield heading("Commands")
        shown = {parser.epilog}
        for command in subcommands:
            yield from of_command(command, command.epilog not in shown)
            shown.add(command.epilog)
    if program in EXIT_CODES_OF:
        yield heading("Exit status")
        for code, meaning in EXIT_CODES[EXIT_CODES_OF[program]].items():
            yield from definition(bold(str(code)), meaning)
    yield heading("Environment")
    for variables, meaning in ENVIRONMENT[program].items():
        yield from definition(bold(variables), meaning)
    yield heading("Files")
    for path, meaning in FILES[program].items():
        yield from definition(bold(path), meaning)
    yield heading("Examples")
    yield from examples(text)
    yield heading("See also")
    yield from see_also(RELATED[program])


def name(page: str, summary: str) -> list[str]:
    """The line that whatis(1) and apropos(1) find."""
    return [heading("Name"), rf"{plain(page)} \- {plain(summary)}"]


def of_command(parser: argparse.ArgumentParser, with_notes: bool) -> Iterator[str]:
    """A subcommand; notes and examples of a group stand only once, at the group."""
    text = help_text.parse(parser.epilog or "" if with_notes else "")
    yield subheading(parser.prog)
    yield from synopsis(parser)
    yield from description(parser)
    yield from option_list(parser, common=False)
    yield from others(text)
    if text.examples:
        yield from paragraph("Examples:")
        yield from examples(text)


def description(parser: argparse.ArgumentParser) -> Iterator[str]:
    for text in str(parser.description).strip().split("\n\n"):
        yield from paragraph(" ".join(text.split()))


def others(text: help_text.HelpText) -> Iterator[str]:
    """The paragraphs and lists."""
    for block in text.others:
        if isinstance(block, str):
            yield from paragraph(block)
        else:
            for item in block:
                yield from definition(bold(item.term), item.text)


def examples(text: help_text.HelpText) -> Iterator[str]:
    """Commands, each below a comment that explains it, if it has one."""
    lines: list[str] = []
    for command, comment in text.examples:
        if comment:
            lines += [
                "",
                *wrap(comment, help_text.WIDTH, initial_indent="# ", subsequent_indent="# "),
            ]
        lines += help_text.folded(command)
    return literal(lines[1:] if lines[:1] == [""] else lines)


def see_also(pages: str) -> list[str]:
    """References to pages, such as `sam.toml(5)`."""
    shown = (page.partition("(") for page in pages.split())
    return [".PP", ", ".join(f"{bold(page)}({section}" for page, _, section in shown)]
