"""Help texts and usage errors; imported only to print them.

The text after the options (`epilog`) consists of paragraphs and lists, such as examples:

    examples:
      sam-consume status
      sam-consume run --drain       load all waiting messages, then stop
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from textwrap import wrap
from typing import NamedTuple

from sam_pipeline.schema.program.moments import FORMS
from sam_pipeline.schema.program.wording import did_you_mean

COMMON = "common options"
EXAMPLES = ("examples", "example")
MAX_WIDTH = 100
TERM_WIDTH = 24
_GAP = r"\s{2,}"
"""Between the term of an item and its explanation."""
_WORD = r"""(?:"[^"]*"|'[^']*'|\S)+"""


class Item(NamedTuple):
    """A command or a term, and its explanation."""

    term: str
    text: str


class Section(NamedTuple):
    """Paragraphs, then items; the title may be empty."""

    title: str
    paragraphs: Sequence[str]
    items: Sequence[Item] = ()


ABOUT_PROGRAMS = """\
environment:
  SAM_CONFIG           the configuration file, unless --config names one
  SAM_<SECTION>_<KEY>  a key of it in capitals, such as SAM_DATABASE_URL; lists are separated by
                       commas

files:
  ./sam.toml, ~/.config/sam/sam.toml, /etc/sam/sam.toml  the configuration: the first of them that
                       exists, and conf.d/*.toml beside it

exit codes:
  0       success
  64      wrong usage
  65      some input was bad; the rest was done
  66      no such file
  69      a service cannot be reached
  70      a bug
  73, 74  a file cannot be created; cannot be written
  75      not now: try again later
  77      no permission
  78      the configuration or the schema is wrong
"""


def help_text(parser: argparse.ArgumentParser) -> str:
    """The complete help of a program or a command."""
    shown = [*sections(parser)]
    if any(subparsers(parser)):
        shown += [*_more(parser), *parsed("" if " " in parser.prog else ABOUT_PROGRAMS)]
    return _shown(parser, shown)


def commands_text(parser: argparse.ArgumentParser) -> str:
    """The usage of a program, and its commands."""
    return _shown(parser, [*command_sections(parser), *_more(parser)])


def _more(parser: argparse.ArgumentParser) -> Iterator[Section]:
    return parsed(f"`{parser.prog} help COMMAND` describes one of them.")


def usage(parser: argparse.ArgumentParser, width: int = 100_000) -> str:
    """The usage of a command, without the common options."""
    formatter = _formatter(parser, width)
    groups = [group for group in parser._action_groups if group.title != COMMON]
    actions = [action for group in groups for action in group._group_actions]
    formatter.add_usage(parser.usage, actions, parser._mutually_exclusive_groups)
    return formatter.format_help().strip()


def _formatter(parser: argparse.ArgumentParser, width: int = 80) -> argparse.HelpFormatter:
    parser.formatter_class = partial(argparse.HelpFormatter, width=width)
    parser.color = False  # type: ignore[attr-defined]  # Python 3.14 would colour single words
    return parser._get_formatter()


def sections(parser: argparse.ArgumentParser) -> Iterator[Section]:
    """Description, commands, and options, the common ones last; then the text after the options."""
    yield from parsed(str(parser.description or ""))
    yield from command_sections(parser)
    groups = {str(group.title): group for group in parser._action_groups}
    common = groups.pop(COMMON, None)
    for title, group in groups.items():
        if items := _options(parser, group):
            title = title.removeprefix("positional ")
            yield Section(title, [group.description] if group.description else [], items)
    metavars = [action.metavar for action in parser._actions]
    if forms := [Item(name, text) for name, text in FORMS.items() if name in metavars]:
        yield Section("dates and times", (), forms)
    if common:
        yield Section(COMMON, (), _options(parser, common))
    for section in parsed(parser.epilog or ""):
        if section.title in EXAMPLES and parser.prog.count(" ") > 1:  # those of all verbs of a noun
            own = [item for item in section.items if parser.prog in item.term]
            section = section._replace(items=own)
        if section.items or section.paragraphs:
            yield section


def _options(parser: argparse.ArgumentParser, group: argparse._ArgumentGroup) -> list[Item]:
    """The arguments or options of a group, such as `-q, --quiet` or `--config FILE`."""
    formatter, items = _formatter(parser), []
    for action in group._group_actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        term, text = action.metavar or action.dest, formatter._expand_help(action)
        if action.option_strings:
            value = formatter._format_args(action, action.dest.upper())
            term = f"{', '.join(action.option_strings)} {value}".rstrip()
        if isinstance(action, argparse._AppendAction):
            text += "; may be repeated"
        items.append(Item(str(term), text))
    return items


def command_sections(parser: argparse.ArgumentParser) -> Iterator[Section]:
    """The commands by their groups."""
    for action in subparsers(parser):
        texts = {command.dest: command.help or "" for command in action._choices_actions}
        groups = getattr(action, "groups", {"commands": texts})
        for title, names in groups.items():
            yield Section(title, (), [Item(name, texts[name]) for name in names])


def subparsers(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction]:  # type: ignore[type-arg]
    return (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def parsed(text: str) -> Iterator[Section]:
    """The paragraphs and lists of a text; a list has the line before it as its title."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        title = ""
        for indented, group in groupby(block.splitlines(), lambda line: line.startswith("  ")):
            lines = list(group)
            if indented:
                yield Section(title, (), list(_items(lines)))
            elif len(lines) == 1 and lines[0].endswith(":"):
                title = lines[0][:-1]
            else:
                yield Section("", [" ".join(lines)])


def _items(lines: Sequence[str]) -> Iterator[Item]:
    """The items of an indented block: lines that are indented deeper continue the one before."""
    item = Item("", "")
    for line in lines:
        if item.term.endswith("\\"):
            item = Item(f"{item.term[:-1].rstrip()} {line.strip()}", "")
        elif re.match(r"  \S", line):
            if item.term:
                yield item
            item = Item(*[*re.split(_GAP, line.strip(), maxsplit=1), ""][:2])
        else:
            item = Item(item.term, f"{item.text} {line.strip()}".strip())
    yield item


def _shown(parser: argparse.ArgumentParser, shown: Sequence[Section]) -> str:
    try:
        width = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns) or 80
    except (OSError, ValueError):
        width = 80
    width = min(max(width, 40), MAX_WIDTH)
    terms = [term for title, _, items in shown for term, _ in items if title not in EXAMPLES]
    column = min(max(map(len, terms), default=0) + 4, TERM_WIDTH)
    lines = [usage(parser, width)]
    for title, paragraphs, items in shown:
        lines += ["", *([f"{title}:"] if title else [])]
        lines += [line for text in paragraphs for line in wrap(text, width, break_on_hyphens=False)]
        if title in EXAMPLES:
            lines += example_lines(items, width)
        else:
            for term, text in items:
                head, rest = f"  {term}", wrap(text, width - column, break_on_hyphens=False)
                if rest and len(head) < column - 1:
                    head = head.ljust(column) + rest.pop(0)
                lines += [head, *(" " * column + line for line in rest)]
    return "\n".join([*lines, ""])


def example_lines(items: Sequence[Item], width: int) -> list[str]:
    """Commands, with comments at the right if all fit there, otherwise above."""
    column = max((len(term) for term, text in items if text), default=0) + 4
    if all(len(term) + 2 <= width and column + len(text) <= width for term, text in items):
        return [f"  {term}".ljust(column * bool(text)) + text for term, text in items]
    return [
        f"  {line}"
        for term, text in items
        for line in [*[f"# {line}" for line in wrap(text, width - 4)], *folded(term, width - 2)]
    ]


def folded(command: str, width: int) -> list[str]:
    """A shell command in lines that fit, each but the last ended by a backslash.

    A line is broken before an option, a redirection or a pipe if possible, never inside quotes.
    """
    units: list[str] = []
    for word in re.findall(_WORD, command):
        is_value = units and units[-1].startswith("-") and not word.startswith(("-", "|", "<", ">"))
        if is_value and len(units[-1]) + len(word) < width - 7:
            units[-1] += f" {word}"
        else:
            units.append(word)
    lines = [""]
    for unit in units:
        if lines[-1] and len(lines[-1]) + len(unit) > width - 3:
            lines[-1] += " \\"
            lines.append(f"    {unit}")
        else:
            lines[-1] += f" {unit}" if lines[-1] else unit
    return lines


def explained(
    parser: argparse.ArgumentParser, given: Sequence[str], message: str, advice: str
) -> str:
    """The message of argparse, and the name that was probably meant.

    `advice` says what to write instead of unknown options that no `--` precedes.
    """
    if commands := next(subparsers(parser), None):
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
    if advice and "unrecognized arguments" in message and "--" not in given:
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
