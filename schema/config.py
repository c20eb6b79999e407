"""`sam.toml`: one file, one section per program. Flag beats environment beats file beats default.

Each program describes its section as a frozen dataclass and calls `load`; all problems are
reported at once.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import (
    Any,
    Callable,
    Optional,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from schema.errors import ConfigError

SECTIONS = ("database", "publisher", "consumer", "report")

T = TypeVar("T")
ParseToml = Callable[[str], dict[str, Any]]


def load(
    config_class: type[T],
    section: str,
    *,
    flags: Mapping[str, Any],
    path: Optional[str],
    environ: Mapping[str, str],
    parse_toml: ParseToml,
) -> T:
    """The section as an instance of `config_class`, whose fields are its keys.

    A field's metadata may give its `key` in the file, and a `check` from the value to the words
    of a problem. A flag that is None was not given. A relative path in the file is relative to
    the file.

    Raises:
        ConfigError: all problems of the file and the section at once.
    """
    problems: list[str] = []
    file = find_file(path, environ)
    found = _Reader(problems).section(file, section, parse_toml)
    where = f"{file}: [{section}]" if file else f"[{section}]"
    values = _Reader(problems, file.parent if file else None).table(config_class, found, where)
    for item in fields(config_class):  # type: ignore[arg-type]
        variable = f"SAM_{section}_{_key(item)}".upper()
        if environ.get(variable):
            values.update(_Reader(problems).variable(config_class, item, environ, variable))
        if flags.get(item.name) is not None:
            values[item.name] = flags[item.name]
    _check(config_class, values, where, problems)
    if problems:
        raise ConfigError(problems)
    return config_class(**values)


def find_file(path: Optional[str], environ: Mapping[str, str]) -> Optional[Path]:
    """The sam.toml to read; None if there is none.

    Raises:
        ConfigError: the one that was named by flag or variable does not exist.
    """
    named = path or environ.get("SAM_CONFIG")
    if named:
        if not Path(named).is_file():
            raise ConfigError([f"{named}: no such configuration file"])
        return Path(named).absolute()
    home = Path(environ.get("HOME") or "/")
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    places = [Path("sam.toml").absolute(), user / "sam" / "sam.toml", Path("/etc/sam/sam.toml")]
    return next((place for place in places if place.is_file()), None)


def state_dir(environ: Mapping[str, str]) -> Path:
    """Where a program remembers things: `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/sam`."""
    if environ.get("STATE_DIRECTORY"):
        return Path(environ["STATE_DIRECTORY"].split(":")[0])
    home = Path(environ.get("HOME") or "/")
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "sam"


class _Reader:
    """Reads values into the types of a dataclass, and collects what is wrong with them."""

    def __init__(self, problems: list[str], base: Optional[Path] = None) -> None:
        self._problems = problems
        self._base = base or Path()

    def section(self, file: Optional[Path], name: str, parse_toml: ParseToml) -> dict[str, Any]:
        if file is None:
            return {}
        try:
            document = parse_toml(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError([f"{file}: {error}"]) from None
        for other in document:
            if other not in SECTIONS:
                self._problems.append(
                    f"{file}: unknown section [{other}]{_nearest(other, SECTIONS)}"
                )
        found = document.get(name, {})
        if isinstance(found, dict):
            return found
        self._problems.append(f"{file}: {name} is no section")
        return {}

    def table(self, config_class: Any, found: Mapping[str, Any], where: str) -> dict[str, Any]:
        known = {_key(item): item for item in fields(config_class)}
        hints = get_type_hints(config_class)
        values: dict[str, Any] = {}
        for key, value in found.items():
            if key not in known:
                self._problems.append(f"{where} unknown key {key}{_nearest(key, known)}")
                continue
            name = known[key].name
            try:
                values[name] = self._value(hints[name], value, f"{where} {key}")
            except ValueError as error:
                self._problems.append(f"{where} {key}: {error}")
        return values

    def variable(
        self, config_class: Any, item: Field[Any], environ: Mapping[str, str], variable: str
    ) -> dict[str, Any]:
        try:
            hint = get_type_hints(config_class)[item.name]
            return {item.name: _from_text(_plain_type(hint), environ[variable])}
        except ValueError as error:
            self._problems.append(f"{variable}: {error}")
            return {}

    def _value(self, hint: Any, value: Any, where: str) -> Any:
        kind = _plain_type(hint)
        if get_origin(kind) is tuple:
            return self._items(get_args(kind)[0], value, where)
        if kind is Path and isinstance(value, str):
            return self._base / Path(value).expanduser()
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise ValueError(f"want {_words(kind)}, not {value!r}")
        return value

    def _items(self, kind: Any, value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"want a list, not {value!r}")
        if not is_dataclass(kind):
            return tuple(self._value(kind, item, where) for item in value)
        return tuple(self._nested(kind, item, f"{where}[{at}]") for at, item in enumerate(value, 1))

    def _nested(self, kind: Any, item: Any, where: str) -> Any:
        if not isinstance(item, dict):
            raise ValueError(f"want a list of tables, not {item!r}")
        before = len(self._problems)
        values = self.table(kind, item, where)
        _check(kind, values, where, self._problems)
        return kind(**values) if len(self._problems) == before else None


def _check(config_class: Any, values: Mapping[str, Any], where: str, problems: list[str]) -> None:
    for item in fields(config_class):
        check = item.metadata.get("check")
        missing = item.default is MISSING and item.default_factory is MISSING
        if item.name not in values:
            if missing:
                problems.append(f"{where} {_key(item)} is missing")
        elif check and values[item.name] is not None:
            words = check(values[item.name])
            if words:
                problems.append(f"{where} {_key(item)}: {words}")


def _key(item: Field[Any]) -> str:
    return str(item.metadata.get("key", item.name))


def _plain_type(hint: Any) -> Any:
    """The type itself of an optional one, however that is spelled."""
    if type(None) in get_args(hint):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def _from_text(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        if is_dataclass(inner):
            raise ValueError("can only be set in the file")
        return tuple(_from_text(inner, part.strip()) for part in text.split(",") if part.strip())
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise ValueError(f"want true or false, not {text!r}")
        return words[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"want {_words(kind)}, not {text!r}") from None


def _words(kind: Any) -> str:
    names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind, "a path")


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def read_secret(path: os.PathLike[str] | str) -> str:
    """The first line of a secret's file.

    Raises:
        ConfigError: it can't be read, or is empty.
    """
    try:
        secret = Path(path).read_text(encoding="utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {error}"]) from None
    if not secret:
        raise ConfigError([f"{path}: holds no secret"])
    return secret
