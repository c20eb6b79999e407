"""The command lines of all programs: a file for each, whose changes could break a script.

`python -m tests.acceptance.help` writes them again.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

from deploy.manual.parsers import COMMON, MAKERS, commands, parser_of

FILES = Path(__file__).parent
PROGRAMS = tuple(MAKERS)
WIDTH = 100


def file_of(program: str) -> Path:
    return FILES / f"{program}.txt"


def text_of(program: str) -> str:
    """The arguments of the program, and of each command."""
    parser = parser_of(program)
    lines: list[str] = []
    for command in (parser, *commands(parser)):
        words = [command.prog, *_words(command, command is parser)]
        lines += textwrap.wrap(
            " ".join(words), WIDTH, subsequent_indent="    ", break_on_hyphens=False
        )
    return "\n".join([*lines, ""])


def _words(command: argparse.ArgumentParser, with_common: bool) -> Iterator[str]:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        if action.dest in COMMON and not with_common:
            continue
        word = "|".join(action.option_strings)
        if action.nargs != 0:
            default = action.dest.upper() if action.option_strings else action.dest
            word = f"{word} {action.metavar or _choices(action) or default}".strip()
        many = "…" if action.nargs in ("+", "*") else ""
        yield f"{word}{many}" if action.required else f"[{word}{many}]"


def _choices(action: argparse.Action) -> str:
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
