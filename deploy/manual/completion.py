"""Completion in bash, zsh and fish: scripts that shtab writes from the parsers.

The parsers say nothing about completion, which a start of the publisher would pay for: what a value
is follows from its placeholder or its option.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

import shtab

from deploy.manual.parsers import commands, parser_of
from docs.reasons import dead_letter_reasons
from sam_pipeline.schema.program.command import add_action
from sam_pipeline.schema.program.help import subparsers
from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.schema.records.normalise import STATUSES

FILE_NAMES: Mapping[str, str] = {
    "bash": "bash/{}",
    "zsh": "zsh/_{}",
    "fish": "fish/{}.fish",
}
"""By shell, the file in which it looks for the completion of a program."""
FILES = ("FILE", "PATH", "XML", "JSON", "PLUGIN")
DIRECTORIES = ("DIR", "DIRECTORY")


def scripts(program: str) -> Mapping[str, str]:
    """The scripts of a program by shell."""
    parser = parser_of(program)
    for actions in subparsers(parser):
        names = [*actions.choices]
        add_action(actions, "help", None, "describe a command").add_argument("of", choices=names)
    for command in [parser, *commands(parser)]:
        for action in command._actions:
            describe(action)
    # In zsh shtab completes only the first of several arguments: `(*)` is a list of exclusions.
    return {shell: shtab.complete(parser, shell).replace('"(*):', '"*:') for shell in FILE_NAMES}


def describe(action: argparse.Action) -> None:
    """Say how the values of an option or argument are completed."""
    if action.metavar in FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    elif action.metavar in DIRECTORIES:
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif names := known_values(action):
        action.choices = list(names)


def known_values(action: argparse.Action) -> Iterable[str]:
    """The usual values of an option that also accepts others."""
    return {
        "--class": [known.name for known in BUILT_IN.values()],
        "--status": STATUSES,
        "--reason": dead_letter_reasons() if action.metavar == "R" else (),
    }.get("".join(action.option_strings), ())
