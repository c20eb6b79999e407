"""`sam.toml`: one file, one section per program. Flag beats environment beats file beats default.

Each program describes its section as a frozen dataclass or a NamedTuple and calls `load`, which
reports all problems at once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from sam_pipeline.schema.errors import CONFIG, NO_PERMISSION, USAGE, ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.secret_file import exposure

SECTIONS = ("database", "publisher", "consumer", "report", "import")
SECRETS: Mapping[str, tuple[str, ...]] = {
    "publisher": ("password", "token", "proxy_password"),
    "consumer": ("password", "proxy_password"),
}
"""By section: secrets that a variable may hold, but no key of the file."""

_SHARED_VARIABLES = (
    "SAM_CONFIG",
    "SAM_DATABASE_URL",
    "SAM_REPORT_PROFILES",
    "SAM_REPORT_START_TIMEOUT_S",
)
_PREFIXES = ("SAM_PUBLISHER_", "SAM_CONSUMER_")
"""Variables of these sections are checked by the program that reads the section."""

_NAMES_OF_SECRETS = ("password", "passwd", "passcode", "secret", "token")
"""How keys end whose value is a secret; that of `password_file` is not."""

_LINE_OF_ERROR = r"\(at line (\d+), column \d+\)"

T = TypeVar("T")

logger = lazy_logger(__name__)
_skipped: set[str] = set()
"""Default files that were skipped with a warning; each is mentioned once."""


class Findings:
    """The contents of a section: its good `values` by field name, and all its `problems`."""

    # As a NamedTuple, this would make publishing a result 0.3 % slower.
    def __init__(
        self,
        values: dict[str, Any],
        problems: Sequence[str],
        bad: Collection[str],
        rejected: Mapping[str, Any],
        origin: Callable[[str], str],
        source: Callable[..., str],
        unknown_variables: Sequence[str],
        file: Path | None,
    ) -> None:
        self.values = values
        self.problems = tuple(problems)
        self.bad = frozenset(bad)
        """Fields whose value is bad or missing."""
        self.rejected = rejected
        """Values of the right type that their check rejected, by field name."""
        self.origin = origin
        """Where a field is set: `sam.toml:7: [publisher] spool`, a variable, the command line."""
        self.source = source
        """The same for a field, or a path in it, without its name; "default" if it is not set."""
        self.unknown_variables = tuple(unknown_variables)
        """The problems of variables whose name begins with SAM_; part of `problems`."""
        self.file = file


class OnlyInFile(Exception):
    """A variable can't hold a table."""


class FileFindings(NamedTuple):
    """The contents of a file without sections: its good `values` by field name, and all `problems`.

    `locate` returns where a path of keys is set, for messages: `publishers.toml:7`.
    """

    values: dict[str, Any]
    problems: list[str]
    locate: Callable[..., str]


def load(
    config_class: type[T],
    section: str,
    path: str | None,
    environ: Mapping[str, str],
    /,
    **flags: Any,
) -> T:
    """The section as an instance of `config_class`, whose fields are its keys.

    The metadata of a field (a NamedTuple's are returned by its `metadata()`) may name its `key` in
    the file, if that differs (None: only a flag sets the field), and a `check` that returns the
    problems of a value, one per line. A flag that is None was not given. A relative path in the
    file is relative to the file.

    Raises:
        ConfigError: all problems of the file and the section at once.
    """
    findings = examine(config_class, section, path, environ, **flags)
    if findings.problems:
        raise ConfigError(findings.problems)
    return config_class(**findings.values)


def examine(
    config_class: Any, section: str, path: str | None, environ: Mapping[str, str], /, **flags: Any
) -> Findings:
    """Like `load`, but collects problems instead of raising them.

    Raises:
        ConfigError: the file does not exist, can't be read, or is not TOML.
    """
    problems: list[str] = []
    file = find_file(path, environ)
    table = _Table(file, (section,), f"[{section}]")
    document = _read_section(file, section, problems) if file else {}
    reader = _Reader(problems, file.parent if file else Path())
    values = reader.table(config_class, document, table)
    fields = fields_of(config_class)
    overrides: dict[str, str] = {}
    variables = {name: f"SAM_{section}_{name}".upper() for name in SECRETS.get(section, ())}
    overrides.update({name: text for name, text in variables.items() if environ.get(text)})
    for field in fields:
        if field.key:
            variable = variables[field.name] = f"SAM_{section}_{field.key}".upper()
        if field.key and environ.get(variable):
            overrides[field.name] = variable
            try:
                values[field.name] = _from_text(_kind(config_class, field), environ[variable])
            except OnlyInFile:
                others = {f"SAM_{section}_{other.key}".upper() for other in fields} - {variable}
                advice = _suggestion(variable, others)
                problems.append(f"{variable}: can only be set in the file{advice}")
            except ValueError as error:
                is_list = any(other.key == f"{field.key}s" for other in fields)
                hint = f" (did you mean {variable}S?)" if is_list else ""
                problems.append(f"{variable}: {error}{hint}")
        if flags.get(field.name) is not None:
            overrides[field.name] = f"command line: {field.key or field.name}"
            values[field.name] = flags[field.name]
    keys = {field.name: field.key or field.name for field in fields}

    def origin(name: str) -> str:
        return overrides.get(name) or table.locate(keys[name])

    def source(name: str, *path: str | int) -> str:
        override = overrides.get(name, "").partition(":")[0]
        return override or table.position(keys.get(name, name), *path) or "default"

    given = {field.name for field in fields if field.key in document or field.name in overrides}
    bad = given - set(values) | _check(fields, values, given, origin, problems)
    if file is None and bad - given:  # keys are missing
        problems.append(no_file_found(environ))
    unknown = [*_unknown_variables(variables.values(), section, environ)]
    problems += unknown
    good = {name: value for name, value in values.items() if name not in bad}
    rejected = {name: value for name, value in values.items() if name in bad}
    return Findings(good, problems, bad, rejected, origin, source, unknown, file)


def examine_file(config_class: Any, file: Path) -> FileFindings:
    """Like `examine`, for a file of its own that only one program reads.

    A table of an array of tables that has problems is None.

    Raises:
        ConfigError: the file can't be read, or is not TOML.
    """
    problems: list[str] = []
    document, _ = _parse(file)
    table = _Table(file, (), "")
    values = _Reader(problems, file.parent).table(config_class, document, table)
    fields = fields_of(config_class)
    keys = {field.name: field.key or field.name for field in fields}
    given = {field.name for field in fields if field.key in document}
    bad = _check(fields, values, given, lambda name: table.locate(keys[name]), problems)
    good = {name: value for name, value in values.items() if name not in bad}
    return FileFindings(good, problems, lambda *path: table.position(*path) or str(file))


def find_file(path: str | None, environ: Mapping[str, str]) -> Path | None:
    """The sam.toml to read; None if there is none.

    A default file that can't be read, such as one in the home directory of another account, is
    skipped with a warning.

    Raises:
        ConfigError: the file named by the flag or `$SAM_CONFIG` does not exist or can't be read.
    """
    if path == "":
        raise ConfigError(["--config is empty"], USAGE)
    name = path or environ.get("SAM_CONFIG")
    if name:
        try:
            _require_readable(name)
        except FileNotFoundError:
            raise ConfigError([f"{name}: no such configuration file"]) from None
        except OSError as error:
            code = NO_PERMISSION if isinstance(error, PermissionError) else CONFIG
            raise ConfigError([f"{name}: {_reason(error)}"], code) from None
        return Path(name).absolute()
    for default in _default_files(environ):
        try:
            _require_readable(default)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            _skip(default, _reason(error))
            continue
        return Path(default)
    return None


def no_file_found(environ: Mapping[str, str] = os.environ) -> str:
    """The places that were searched for a configuration file, for messages."""
    searched = ", ".join(_default_files(environ))
    return f"no configuration file was found (searched: {searched}; --config names another one)"


def state_dir(environ: Mapping[str, str]) -> Path:
    """The directory of state files: `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/sam`."""
    if environ.get("STATE_DIRECTORY"):
        return Path(environ["STATE_DIRECTORY"].split(":")[0])
    home = Path(environ.get("HOME") or "/")
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "sam"


def _default_files(environ: Mapping[str, str]) -> list[str]:
    """Where a file is searched for if none is named, in this order."""
    home = environ.get("HOME") or ""
    user = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    paths = [f"{user}/sam/sam.toml", "/etc/sam/sam.toml"]
    try:
        return [f"{os.getcwd()}/sam.toml", *paths]
    except OSError:
        _skip("./sam.toml", "the working directory was removed")
        return paths


def _require_readable(path: str | Path) -> None:
    """Raises OSError unless this is a file that can be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a named pipe would block
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(None, "Not a regular file")
    finally:
        os.close(descriptor)


def _skip(place: str, reason: str) -> None:
    if place not in _skipped:
        _skipped.add(place)
        logger.warning("%s: %s: this location of the configuration is skipped", place, reason)


def _reason(error: OSError) -> str:
    return (error.strerror or "can't be read").lower()


def _unknown_variables(
    known: Collection[str], section: str, environ: Mapping[str, str]
) -> Iterator[str]:
    """The problems of variables that no program reads; `known` are those of the section."""
    names = [name for name in environ if name.startswith("SAM_") and name not in known]
    if not names:
        return
    others = tuple(prefix for prefix in _PREFIXES if prefix != f"SAM_{section}_".upper())
    for name in names:
        if name not in _SHARED_VARIABLES and not name.startswith(others):
            rest = name.split("_", 2)[2:]
            of_others = [f"{prefix}{key}" for prefix in others for key in rest]
            candidates = [*known, *_SHARED_VARIABLES, *of_others]
            suggestion = _suggestion(name, candidates) or ": names with SAM_ are reserved"
            yield f"{name}: unknown variable{suggestion}"


@lru_cache(maxsize=1)
def _lines(text: str) -> Mapping[tuple[str | int, ...], int]:
    """The line of each path; a file with many problems is scanned once."""
    from sam_pipeline.schema.program.toml_lines import lines_of

    return lines_of(text)


class _Table(NamedTuple):
    """A table of the file: its `path` of TOML keys, and its `name` in messages."""

    file: Path | None
    path: tuple[str | int, ...]
    name: str

    def locate(self, key: str, adjective: str = "") -> str:
        """`FILE:LINE: TABLE [adjective] KEY`, for messages; of the table itself if key is ""."""
        name = f"{self.name} {adjective}{key}".strip()
        if self.file is None:
            return name
        position = self.position(key) if key else self.position()
        return f"{position or self.file}: {name}"

    def position(self, *path: str | int) -> str | None:
        """`FILE:LINE` of a key, if the file sets it; of the table itself without a path."""
        if self.file is None:
            return None
        line = _lines(self.file.read_text(encoding="utf-8")).get((*self.path, *path))
        return f"{self.file}:{line}" if line else None

    def child(self, key: str) -> _Table:
        """The table under a key: `[consumer.door]` in `[consumer]`."""
        return _Table(self.file, (*self.path, key), f"{self.name[:-1]}.{key}]")

    def item(self, key: str, number: int) -> _Table:
        """One table of the array of tables under a key; numbers start at 1."""
        name = f"{self.name} {key}[{number}]".strip()
        return _Table(self.file, (*self.path, key, number), name)


def _parse(file: Path) -> tuple[dict[str, Any], str | None]:
    """The document of a TOML file, and whether other users can read it."""
    from importlib import import_module

    try:
        toml = import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.9 and 3.10
        toml = import_module("tomli")
    try:
        with file.open(encoding="utf-8") as opened:
            exposed = exposure(os.fstat(opened.fileno()))
            return toml.loads(opened.read()), exposed
    except (OSError, ValueError) as error:
        import re

        line = re.search(_LINE_OF_ERROR, str(error))
        location = f"{file}:{line[1]}" if line else f"{file}"
        raise ConfigError([f"{location}: {error}"]) from None


def _read_section(file: Path, section: str, problems: list[str]) -> dict[str, Any]:
    document, exposed = _parse(file)
    for name in document:
        if name not in SECTIONS:
            location = _Table(file, (name,), "unknown section").locate("", f"[{name}]")
            problems.append(f"{location}{_suggestion(name, SECTIONS)}")
        for key in _secrets(document[name], _Table(file, (name,), f"[{name}]")) if exposed else ():
            problems.append(f"{key}: contains a secret, but the file {exposed}")
    values = document.get(section, {})
    if isinstance(values, dict):
        return values
    problems.append(f"{file}: {section} must be a section, [{section}]")
    return {}


def _secrets(values: Any, table: _Table) -> Iterator[str]:
    """Where a table and its arrays of tables contain a secret."""
    for key, value in values.items() if isinstance(values, dict) else ():
        is_list = isinstance(value, list)
        for number, item in enumerate(value if is_list else [value], 1):
            if isinstance(item, str):
                if _is_secret(key, item):
                    yield table.locate(key)
            elif is_list:
                yield from _secrets(item, table.item(key, number))


def names_a_secret(key: str) -> bool:
    """Whether the value of such a key is a secret."""
    return key.lower().endswith(_NAMES_OF_SECRETS)


def _is_secret(key: str, value: str) -> bool:
    """Whether a value is a secret, or a URL that contains one."""
    if names_a_secret(key):
        return bool(value)
    _, scheme, rest = value.partition("://")
    user, _, password = (rest if scheme else value).rpartition("@")[0].partition(":")
    return bool(password and "/" not in user) or "password=" in value.partition("?")[2]


class _Reader:
    """Converts values of the file to the types of a config class, and collects problems."""

    def __init__(self, problems: list[str], base: Path) -> None:
        self._problems = problems
        self._base = base

    def table(
        self, config_class: Any, document: Mapping[str, Any], table: _Table
    ) -> dict[str, Any]:
        if not document:  # saves 1 % of publishing a result
            return {}
        fields = {field.key: field for field in fields_of(config_class) if field.key}
        values: dict[str, Any] = {}
        for key, value in document.items():
            if key not in fields:
                location = table.locate(key, "unknown key ")
                self._problems.append(f"{location}{_suggestion(key, fields)}")
                continue
            kind = _kind(config_class, fields[key])
            try:
                read = self._value(kind, value, table, key)
                if read is not None:  # the table under the key has no problems
                    values[fields[key].name] = read
            except ValueError as error:
                holds_tables = get_origin(kind) is tuple and is_table(get_args(kind)[0])
                others = [name for name in fields if name != key] if holds_tables else []
                advice = _suggestion(key, others)
                self._problems.append(f"{table.locate(key)}: {error}{advice}")
        return values

    def _value(self, kind: Any, value: Any, table: _Table, key: str) -> Any:
        if get_origin(kind) is tuple:
            if not isinstance(value, list):
                raise ValueError(f"expected a list, not {_redacted(value)}")
            kind = get_args(kind)[0]
            if not is_table(kind):
                return tuple(self._value(kind, item, table, key) for item in value)
            return tuple(
                self._nested(kind, item, table.item(key, number))
                for number, item in enumerate(value, 1)
            )
        if is_table(kind):
            if not isinstance(value, dict):
                raise ValueError(f"expected a table, not {_redacted(value)}")
            return self._nested(kind, value, table.child(key))
        if get_origin(kind) is dict:
            if not isinstance(value, dict):
                raise ValueError(f"expected a table of strings, not {_redacted(value)}")
            wrong = [f"{name} = {_redacted(v)}" for name, v in value.items() if type(v) is not str]
            if wrong:
                raise ValueError(f"expected a string for each name, not {', '.join(wrong)}")
            return dict(value)
        if kind is Path and isinstance(value, str):
            try:
                return self._base / Path(value).expanduser()
            except RuntimeError:  # this account has no home directory
                raise ValueError(f"{value}: the home directory is unknown") from None
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise ValueError(f"expected {_type_name(kind)}, not {_redacted(value)}")
        return value

    def _nested(self, kind: Any, document: Any, table: _Table) -> Any:
        """An instance of the class `kind`; None if there are problems."""
        if not isinstance(document, dict):
            raise ValueError(f"expected a list of tables, not {_redacted(document)}")
        before = len(self._problems)
        values = self.table(kind, document, table)
        fields = fields_of(kind)
        keys = {field.name: field.key or field.name for field in fields}
        given = {field.name for field in fields if field.key in document}
        _check(fields, values, given, lambda name: table.locate(keys[name]), self._problems)
        return kind(**values) if len(self._problems) == before else None


class Field(NamedTuple):
    """A key of a section, or None for a field that only a flag sets."""

    name: str
    key: str | None
    check: Callable[[Any], str | None] | None
    optional: bool
    default: Any
    tables: Callable[[], Any] | None = None
    """The class of an array of tables that is imported only if the file has one."""


def _check(
    fields: Iterable[Field],
    values: Mapping[str, Any],
    given: Collection[str],
    origin: Callable[[str], str],
    problems: list[str],
) -> set[str]:
    """The names of fields whose value is missing or bad; adds the reasons to `problems`."""
    bad = set()
    for field in fields:
        reasons = None
        if field.name not in values:
            if not field.optional and field.name not in given:
                problems.append(f"{origin(field.name)} is missing")
                bad.add(field.name)
        elif field.check and values[field.name] is not None:
            reasons = field.check(values[field.name])
        for reason in reasons.splitlines() if reasons else ():
            problems.append(f"{origin(field.name)}: {reason}")
            bad.add(field.name)
    return bad


def fields_of(config_class: Any) -> list[Field]:
    """The fields of the class of a section."""
    if is_dataclass(config_class):
        from dataclasses import MISSING, fields

        described = {item.name: item.metadata for item in fields(config_class)}
        defaults = {
            item.name: item.default if item.default_factory is MISSING else item.default_factory()
            for item in fields(config_class)
            if item.default is not MISSING or item.default_factory is not MISSING
        }
    else:
        metadata, defaults = config_class.metadata(), config_class._field_defaults
        described = {name: metadata.get(name, {}) for name in config_class._fields}
    return [
        Field(
            name,
            about.get("key", name),
            about.get("check"),
            name in defaults,
            defaults.get(name),
            about.get("tables"),
        )
        for name, about in described.items()
    ]


def _kind(config_class: Any, field: Field) -> Any:
    """The type of a field; of an optional one, the type inside `Optional`."""
    if field.tables:
        return tuple[field.tables(), ...]  # type: ignore[misc]
    return _plain_type(_hints(config_class)[field.name])


@lru_cache(maxsize=100)
def _hints(config_class: Any) -> Mapping[str, Any]:
    """The types of the fields; evaluating them takes longer than reading a table."""
    return get_type_hints(config_class)


def is_dataclass(kind: Any) -> bool:
    """Like `dataclasses.is_dataclass`, whose import takes as long as Python's own start."""
    return hasattr(kind, "__dataclass_fields__")


def is_table(kind: Any) -> bool:
    """Whether a class describes a table: a dataclass, or a NamedTuple with `metadata()`."""
    return is_dataclass(kind) or hasattr(kind, "metadata")


def _plain_type(hint: Any) -> Any:
    """The type inside `Optional[…]` or `… | None`; any other type unchanged."""
    if type(None) in get_args(hint):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def _from_text(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple and not is_table(get_args(kind)[0]):
        parts = filter(None, map(str.strip, text.split(",")))
        return tuple(_from_text(get_args(kind)[0], part) for part in parts)
    if get_origin(kind) in (tuple, dict) or is_table(kind):
        raise OnlyInFile
    if kind is bool:
        values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in values:
            raise ValueError(f"expected true or false, not {text!r}")
        return values[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"expected {_type_name(kind)}, not {text!r}") from None


def _type_name(kind: Any) -> str:
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind) or ("a path" if kind is Path else "a date such as 2027-06-01")


def _redacted(value: Any) -> str:
    """The value for a message, but not a URL that may contain a password."""
    return "…@…" if "@" in repr(value) else repr(value)


def _suggestion(name: str, known: Iterable[str]) -> str:
    from sam_pipeline.schema.program.wording import did_you_mean

    suggestion = did_you_mean(name, known)
    return f" ({suggestion})" if suggestion else ""
