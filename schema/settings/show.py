"""`config`: each key with its value and its origin; passwords are masked."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import OK, print_json, print_lines, text_table
from sam_pipeline.schema.settings.files import no_file_found
from sam_pipeline.schema.settings.key import is_table
from sam_pipeline.schema.settings.section import Findings, names_a_secret

DESCRIPTION = """\
Show each key of the configuration, with the value that is in effect: from sam.toml, the files
conf.d/*.toml beside it, an environment variable, the command line, or the default. Passwords and
tokens are masked. Problems are reported after the table (exit code 78).
"""
MASK = "***"
COLUMNS = ("key", "value", "origin")

_SECRET_IN_QUERY = r"((?:password|passwd|passcode|secret|token)=)[^&]*"


class Setting(NamedTuple):
    """A key with its masked value."""

    key: str
    value: Any
    origin: str


def add_options(
    parser: argparse.ArgumentParser,
    sections_of: Callable[[argparse.Namespace], Iterable[Findings[Any]]],
) -> None:
    """The command `config` of a program, which reads these sections."""
    parser.description = DESCRIPTION
    commands = (parser.prog, f"{parser.prog} --origin", f"{parser.prog} --origin --json")
    parser.epilog = "\n  ".join(["examples:", *commands])
    parser.add_argument(
        "--origin",
        action="store_true",
        help="also print where each value is from: file and line, variable, option or default",
    )
    parser.set_defaults(handler=lambda args: show(args, *sections_of(args)))


def show(args: argparse.Namespace, *sections: Findings[Any]) -> int:
    """Print the settings of all sections.

    Raises:
        ConfigError: there are problems; raised after the settings were printed.
    """
    settings = [setting for findings in sections for setting in settings_of(findings)]
    problems = list(dict.fromkeys(p for findings in sections for p in findings.all_problems()))
    files = [str(file.path) for file in sections[0].document.files]
    shown = len(COLUMNS) if args.origin else len(COLUMNS) - 1
    if args.json:
        document = [dict(zip(COLUMNS[:shown], setting)) for setting in settings]
        print_json({"files": files, "settings": document, "problems": problems})
    else:
        print_lines(*[f"configuration file: {file}" for file in files] or [no_file_found()])
        rows = [(key, as_text(value), origin)[:shown] for key, value, origin in settings]
        print_lines(*text_table(COLUMNS[:shown], rows))
    if problems:
        raise ConfigError(problems)
    return OK


def settings_of(findings: Findings[Any]) -> Iterator[Setting]:
    """The settings of a section; of its secrets only whether a variable holds them."""
    section = findings.settings.SECTION
    given = {**findings.rejected, **findings.values}
    for attribute, key in findings.settings.KEYS.items():
        name = f"{section}.{key.name}"
        value = given.get(attribute, "invalid" if attribute in findings.bad else key.default)
        inside = [*_settings_in(value)]
        for path, setting in inside:
            steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
            yield Setting(name + "".join(steps), setting, findings.origin(attribute, *path))
        if not inside:
            origin = findings.origin(attribute)
            if origin == "default" and attribute in findings.bad:
                value, origin = None, "missing"
            yield Setting(name, masked(key.name, key.shown(value)), origin)
    for name in findings.settings.SECRETS:
        origin = findings.origin(name)
        yield Setting(f"{section}.{name}", None if origin == "default" else MASK, origin)


def _settings_in(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The path and the masked value of each key of a table, however deep; of another value none."""
    if is_table(type(value)):
        for attribute, key in type(value).KEYS.items():
            item = getattr(value, attribute)
            inside = [*_settings_in(item)] or [((), masked(key.name, key.shown(item)))]
            yield from (((key.name, *path), setting) for path, setting in inside)
    elif isinstance(value, tuple):
        for number, table in enumerate(value, 1):  # None is a bad one
            yield from (((number, *path), setting) for path, setting in _settings_in(table))
    elif isinstance(value, dict):
        yield from (((name,), masked("", item)) for name, item in value.items())


def masked(key: str, value: Any) -> Any:
    """A value as JSON has it, without the password of a URL."""
    if isinstance(value, (tuple, list)):
        return [masked(key, item) for item in value]
    if isinstance(value, dict):
        return {name: masked("", item) for name, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str):
        return value
    if names_a_secret(key):
        return MASK
    text = re.sub(_SECRET_IN_QUERY, rf"\1{MASK}", value, flags=re.IGNORECASE)
    login, at, rest = text.rpartition("@")  # a password may contain an @, a / or a ?
    scheme, slashes, login = login.partition("://") if "://" in login else ("", "", login)
    user, colon, _ = login.partition(":")
    if not colon or scheme == "spool":
        return text
    return f"{scheme}{slashes}{user}:{MASK}{at}{rest}"


def as_text(value: Any) -> str:
    """A masked value for the table."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(as_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={as_text(item)}" for name, item in value.items())
    return str(value)
