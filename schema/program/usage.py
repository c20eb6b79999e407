"""What a usage error probably means; imported only to report one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from sam_pipeline.schema.program.wording import did_you_mean

UNRECOGNIZED = "unrecognized arguments"


def explained(
    parser: argparse.ArgumentParser, given: Sequence[str], message: str, advice: str
) -> str:
    """The message of argparse, and the name that was probably meant.

    `advice` says what to write instead of unknown options that no `--` precedes.
    """
    commands = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
    if commands:
        command = next((argument for argument in given if argument in commands.choices), "")
        for option in _unknown_options(parser, given, end=command):
            if near_option := _near_option(parser, option):
                return f"unknown option {option}: {near_option}"
            name = command or commands.metavar
            return f"{option} belongs after the command: {parser.prog} {name} {option} …"
        suggestions = [
            did_you_mean(argument, commands.choices)
            for argument in given
            if message.startswith(f"argument {commands.metavar}: invalid choice: {argument!r}")
        ]
        return "; ".join([message, *filter(None, suggestions)])
    unknown = _unknown_options(parser, given, end="--")
    hints = [f"{option}: {near}" for option in unknown if (near := _near_option(parser, option))]
    if advice and UNRECOGNIZED in message and "--" not in given:
        hints.append(advice)
    return "; ".join([message, *hints])


def _unknown_options(
    parser: argparse.ArgumentParser, given: Sequence[str], end: str
) -> Iterator[str]:
    """The long options before `end` that the parser does not know."""
    for argument in given:
        if argument == end:
            return
        name = argument.partition("=")[0]
        if name.startswith("--") and name not in parser._option_string_actions:
            yield name


def _near_option(parser: argparse.ArgumentParser, option: str) -> str:
    """`did you mean --flavour?`; empty if no option is similar."""
    known = [name[2:] for name in parser._option_string_actions if name.startswith("--")]
    return did_you_mean(option[2:], known).replace("mean ", "mean --", 1)
