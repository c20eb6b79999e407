"""The options and arguments of a parser, as a man page shows them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from deploy.manual.parsers import COMMON
from deploy.manual.roff import bold, definition, italic, plain


def synopsis(parser: argparse.ArgumentParser) -> list[str]:
    """How the command is called, without the options that all commands have."""
    if parser.usage:
        return [".PP", plain(parser.usage)]
    exclusive = {
        id(action): group
        for group in parser._mutually_exclusive_groups
        for action in group._group_actions
    }
    options, arguments = [], []
    for action in parser._actions:
        group = exclusive.get(id(action))
        if is_common(action) or (group and action is not group._group_actions[0]):
            continue
        if not action.option_strings:
            arguments.append(usage(action))
        elif group:
            shown = r"\ | ".join(map(usage, group._group_actions))
            options.append(f"{{{shown}}}" if group.required else f"[{shown}]")
        else:
            options.append(usage(action) if action.required else f"[{usage(action)}]")
    parts = [rf"{part}\&" for part in (*options, *arguments)]  # "..." ends no sentence
    return [f'.SY "{plain(parser.prog)}"', *parts, ".YS"]


def is_common(action: argparse.Action) -> bool:
    """Whether an option is one of the program, which its subcommands have as well."""
    return action.dest in COMMON


def usage(action: argparse.Action) -> str:
    """An option or argument in a synopsis, which no line end divides."""
    shown = bold(action.option_strings[0]) if action.option_strings else ""
    return f"{shown} {_values(action)}".strip().replace(" ", r"\ ")


def option_list(parser: argparse.ArgumentParser, *, common: bool) -> Iterator[str]:
    """The options and arguments with their help: the common ones, or all others."""
    for action in parser._actions:
        if is_common(action) == common and not isinstance(action, argparse._SubParsersAction):
            text = parser._get_formatter()._expand_help(action)
            yield from definition(_term(action), text)


def _term(action: argparse.Action) -> str:
    if not action.option_strings:
        return _value(action)
    return f"{', '.join(map(bold, action.option_strings))} {_values(action)}".strip()


def _values(action: argparse.Action) -> str:
    """The values of an option or argument, and how many there may be."""
    if action.nargs == 0:
        return ""
    value = _value(action)
    if action.nargs == argparse.REMAINDER:
        return f"{bold('--')} {value} ..."
    if action.nargs in (argparse.ONE_OR_MORE, argparse.PARSER):
        return f"{value} ..."
    if action.nargs == argparse.ZERO_OR_MORE:
        return f"[{value} ...]"
    return f"[{value}]" if action.nargs == argparse.OPTIONAL else value


def _value(action: argparse.Action) -> str:
    """The choices of a value in bold, or its placeholder in italics."""
    if action.choices and action.metavar is None:
        return f"{{{'|'.join(map(bold, map(str, action.choices)))}}}"
    return italic(str(action.metavar or action.dest.upper()))
