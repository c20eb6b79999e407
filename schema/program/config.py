"""`sam.toml`: one file, one section per program. Flag beats environment beats file beats default.

Each program describes its section as a frozen dataclass, or a NamedTuple, and calls `load`; all
problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import (
    Any,
    Callable,
    NamedTuple,
    Optional,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from sam_pipeline.schema.errors import ConfigError

SECTIONS = ("database", "publisher", "consumer", "report")

_LINE_OF_ERROR = r"\(at line (\d+), column \d+\)"

T = TypeVar("T")
ParseToml = Callable[[str], dict[str, Any]]


class Findings(NamedTuple):
    """What a section holds: `values` by field name, those that are good, and all `problems`."""

    values: Mapping[str, Any]
    problems: tuple[str, ...]
    bad: frozenset[str]
    """Fields whose value is no good, or missing."""
    rejected: Mapping[str, Any]
    """Values of the right type that their check rejected, by field name."""
    place: Callable[[str], str]
    """Where the value of a field stands: `sam.toml:7: [publisher] spool`, a variable, an option."""


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

    A field's metadata (of a NamedTuple: what its `metadata()` says of it) may give its `key` in
    the file (None: only a flag sets it), and a `check` from the value to the words of its
    problems, a line each. A flag that is None was not given.
    A relative path in the file is relative to the file.

    Raises:
        ConfigError: all problems of the file and the section at once.
    """
    found = examine(
        config_class, section, flags=flags, path=path, environ=environ, parse_toml=parse_toml
    )
    if found.problems:
        raise ConfigError(found.problems)
    return config_class(**found.values)


def examine(
    config_class: Any,
    section: str,
    *,
    flags: Mapping[str, Any],
    path: Optional[str],
    environ: Mapping[str, str],
    parse_toml: ParseToml,
) -> Findings:
    """The same, for who wants to look on where something is wrong.

    Raises:
        ConfigError: there is no such file, or it is no TOML.
    """
    problems: list[str] = []
    file = find_file(path, environ)
    table = _Table(file, (section,), f"[{section}]")
    found = _Reader(problems).section(table, parse_toml)
    values = _Reader(problems, file.parent if file else None).table(config_class, found, table)
    places: dict[str, str] = {}
    for item in _keys(config_class):
        variable = f"SAM_{section}_{_key(item)}".upper()
        if environ.get(variable):
            values.update(_Reader(problems).variable(config_class, item, environ, variable))
            places[item.name] = variable
    for item in _fields(config_class):
        if flags.get(item.name) is not None:
            values[item.name] = flags[item.name]
            places[item.name] = f"command line: {_key(item)}"
    keys = {item.name: _key(item) for item in _fields(config_class)}

    def place(name: str) -> str:
        return places.get(name) or table.at(keys[name])

    given = {name for name, key in keys.items() if key in found or name in places}
    bad = given - set(values) | _check(config_class, values, given, place, problems)
    good = {name: value for name, value in values.items() if name not in bad}
    rejected = {name: value for name, value in values.items() if name in bad}
    return Findings(good, tuple(problems), frozenset(bad), rejected, place)


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


class _Table(NamedTuple):
    """A table of the file: its `path` in TOML, and its `name` in messages."""

    file: Optional[Path]
    path: tuple[Union[str, int], ...]
    name: str

    def at(self, key: str, word: str = "") -> str:
        """File, line and name of a key, with `word` before the name; of the table if key is ""."""
        what = f"{self.name} {word}{key}"
        if self.file is None:
            return what
        from sam_pipeline.schema.program.toml_lines import lines_of

        lines = lines_of(self.file.read_text(encoding="utf-8"))
        line = lines.get((*self.path, key) if key else self.path)
        return f"{self.file}:{line}: {what}" if line else f"{self.file}: {what}"

    def item(self, key: str, number: int) -> _Table:
        """A table of the array that is the value of a key."""
        return _Table(self.file, (*self.path, key, number), f"{self.name} {key}[{number}]")


class _Reader:
    """Reads values into the types of a dataclass, and collects what is wrong with them."""

    def __init__(self, problems: list[str], base: Optional[Path] = None) -> None:
        self._problems = problems
        self._base = base or Path()

    def section(self, table: _Table, parse_toml: ParseToml) -> dict[str, Any]:
        file, name = table.file, str(table.path[0])
        if file is None:
            return {}
        try:
            document = parse_toml(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            import re

            line = re.search(_LINE_OF_ERROR, str(error))
            where = f"{file}:{line[1]}" if line else f"{file}"
            raise ConfigError([f"{where}: {error}"]) from None
        for other in document:
            if other not in SECTIONS:
                where = _Table(file, (other,), "unknown section").at("", f"[{other}]")
                self._problems.append(f"{where}{_meant(other, SECTIONS)}")
        found = document.get(name, {})
        if isinstance(found, dict):
            return found
        self._problems.append(f"{file}: {name} is no section")
        return {}

    def table(self, config_class: Any, found: Mapping[str, Any], table: _Table) -> dict[str, Any]:
        known = {_key(item): item for item in _keys(config_class)}
        hints = get_type_hints(config_class)
        values: dict[str, Any] = {}
        for key, value in found.items():
            if key not in known:
                where = table.at(key, "unknown key ")
                self._problems.append(f"{where}{_meant(key, known)}")
                continue
            name = known[key].name
            try:
                values[name] = self._value(hints[name], value, table, key)
            except ValueError as error:
                self._problems.append(f"{table.at(key)}: {error}")
        return values

    def variable(
        self, config_class: Any, item: _Field, environ: Mapping[str, str], variable: str
    ) -> dict[str, Any]:
        try:
            hint = get_type_hints(config_class)[item.name]
            return {item.name: _from_text(_plain_type(hint), environ[variable])}
        except ValueError as error:
            self._problems.append(f"{variable}: {error}")
            return {}

    def _value(self, hint: Any, value: Any, table: _Table, key: str) -> Any:
        kind = _plain_type(hint)
        if get_origin(kind) is tuple:
            return self._items(get_args(kind)[0], value, table, key)
        if get_origin(kind) is dict:
            return _texts(value)
        if kind is Path and isinstance(value, str):
            return self._base / Path(value).expanduser()
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise ValueError(f"want {_words(kind)}, not {_shown(value)}")
        return value

    def _items(self, kind: Any, value: Any, table: _Table, key: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"want a list, not {_shown(value)}")
        if not _is_dataclass(kind):
            return tuple(self._value(kind, item, table, key) for item in value)
        return tuple(
            self._nested(kind, item, table.item(key, at)) for at, item in enumerate(value, 1)
        )

    def _nested(self, kind: Any, item: Any, table: _Table) -> Any:
        if not isinstance(item, dict):
            raise ValueError(f"want a list of tables, not {_shown(item)}")
        before = len(self._problems)
        values = self.table(kind, item, table)
        keys = {each.name: _key(each) for each in _fields(kind)}
        given = {name for name, key in keys.items() if key in item}
        _check(kind, values, given, lambda name: table.at(keys[name]), self._problems)
        return kind(**values) if len(self._problems) == before else None


def _check(
    config_class: Any,
    values: Mapping[str, Any],
    given: Collection[str],
    place: Callable[[str], str],
    problems: list[str],
) -> set[str]:
    """The names of fields whose value is missing or no good; why is added to the problems."""
    bad = set()
    for item in _fields(config_class):
        check = item.metadata.get("check")
        words = None
        if item.name not in values:
            if item.required and item.name not in given:
                problems.append(f"{place(item.name)} is missing")
                bad.add(item.name)
        elif check and values[item.name] is not None:
            words = check(values[item.name])
        for line in words.splitlines() if words else ():
            problems.append(f"{place(item.name)}: {line}")
            bad.add(item.name)
    return bad


class _Field(NamedTuple):
    name: str
    metadata: Mapping[str, Any]
    required: bool


def _fields(config_class: Any) -> list[_Field]:
    if not _is_dataclass(config_class):
        metadata, optional = config_class.metadata(), config_class._field_defaults
        return [
            _Field(name, metadata.get(name, {}), name not in optional)
            for name in config_class._fields
        ]
    from dataclasses import MISSING, fields

    return [
        _Field(it.name, it.metadata, it.default is MISSING and it.default_factory is MISSING)
        for it in fields(config_class)
    ]


def _is_dataclass(kind: Any) -> bool:
    """Asked without the module, whose import takes as long as Python's own start."""
    return hasattr(kind, "__dataclass_fields__")


def _keys(config_class: Any) -> list[_Field]:
    """The fields that a file or a variable may set: those whose `key` is not None."""
    return [item for item in _fields(config_class) if item.metadata.get("key", "") is not None]


def _key(item: _Field) -> str:
    return str(item.metadata.get("key", item.name))


def _plain_type(hint: Any) -> Any:
    """The type itself of an optional one, however that is spelled."""
    if type(None) in get_args(hint):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def _from_text(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        if _is_dataclass(inner):
            raise ValueError("can only be set in the file")
        return tuple(_from_text(inner, part.strip()) for part in text.split(",") if part.strip())
    if get_origin(kind) is dict:
        raise ValueError("can only be set in the file")
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise ValueError(f"want true or false, not {text!r}")
        return words[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"want {_words(kind)}, not {text!r}") from None


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"want a table of texts, not {_shown(value)}")
    wrong = [f"{name} = {_shown(each)}" for name, each in value.items() if type(each) is not str]
    if wrong:
        raise ValueError(f"want text for each name, not {', '.join(wrong)}")
    return dict(value)


def _words(kind: Any) -> str:
    names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind, "a path")


def _shown(value: Any) -> str:
    """The value, but for a URL that may hold a password."""
    return "…@…" if "@" in repr(value) else repr(value)


def _meant(name: str, known: Iterable[str]) -> str:
    from sam_pipeline.schema.program.wording import did_you_mean

    meant = did_you_mean(name, known)
    return f" ({meant})" if meant else ""
