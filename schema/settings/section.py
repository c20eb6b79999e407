"""`sam.toml`: one file, one section per program. Flag beats environment beats file beats default.

Each program describes its sections as classes of `Settings` and calls `load`, which reports all
problems at once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.secret_file import exposure
from sam_pipeline.schema.settings.files import (
    TomlDocument,
    find_file,
    no_file_found,
    read_configuration,
)
from sam_pipeline.schema.settings.key import (
    REQUIRED,
    SECTIONS,
    Settings,
    is_table,
    redacted,
    suggestion,
    type_name,
)

_NAMES_OF_SECRETS = ("password", "passwd", "passcode", "secret", "token")
"""How keys end whose value is a secret; that of `password_file` is not."""

ALIKE = 0.85
"""How similar a variable without our prefix must be to one of ours."""

logger = lazy_logger(__name__)
_warned: set[str] = set()
"""Variables that nothing reads; each is mentioned once."""
T = TypeVar("T", bound=Settings)


class TomlTable(NamedTuple):
    """A table of the file: its `path` of TOML keys, and its `name` in messages."""

    document: TomlDocument
    path: tuple[str | int, ...]
    name: str

    def locate(self, key: str, adjective: str = "") -> str:
        """`FILE:LINE: TABLE [adjective] KEY`, for messages; of the table itself if key is ""."""
        name = f"{self.name} {adjective}{key}".strip()
        location = (key and self.position(key)) or self.position() or self.document.path
        return f"{location}: {name}" if location else name

    def position(self, *path: str | int) -> str | None:
        """`FILE:LINE` of a key, if the file sets it; of the table itself without a path."""
        return self.document.position(*self.path, *path)

    def child(self, key: str) -> TomlTable:
        """The table under a key: `[consumer.door]` in `[consumer]`."""
        return TomlTable(self.document, (*self.path, key), f"{self.name[:-1]}.{key}]")

    def item(self, key: str, number: int) -> TomlTable:
        """One table of the array of tables under a key; numbers start at 1."""
        name = f"{self.name} {key}[{number}]".strip()
        return TomlTable(self.document, (*self.path, key, number), name)


class Findings(Generic[T]):
    """The contents of a section: its good `values` by attribute, and all its `problems`."""

    def __init__(self, settings: type[T], document: TomlDocument) -> None:
        section = settings.SECTION
        self.settings = settings
        self.document = document
        self.table = TomlTable(document, (section,) if section else (), section and f"[{section}]")
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self.bad: set[str] = set()
        """Attributes whose value is bad or missing."""
        self.rejected: dict[str, Any] = {}
        """Values of the right type that their check rejected, by attribute."""
        self.overrides: dict[str, str] = {}
        """The variable or the option that sets an attribute."""

    def config(self) -> T:
        """The settings; raises ConfigError with all problems."""
        if problems := self.all_problems():
            raise ConfigError(problems)
        return self.settings(**self.values)

    def only(self, *names: str) -> T:
        """The settings with some of the keys, whatever the problems of the others.

        Raises:
            ConfigError: one of these values is bad.
        """
        if self.bad & {*names}:
            raise ConfigError(self.problems)
        others = self.settings.KEYS.keys() - {*names}
        return self.settings(**{name: v for name, v in self.values.items() if name not in others})

    def all_problems(self) -> list[str]:
        """The problems; if no value is bad by itself, of values that don't go together."""
        if self.problems:
            return self.problems
        return [f"{self.table.name} {text}" for text in self.settings(**self.values).problems()]

    def locate(self, name: str) -> str:
        """Where a key is set, for messages: `sam.toml:7: [publisher] spool`, or a variable."""
        return self.overrides.get(name) or self.table.locate(self._key(name))

    def origin(self, name: str, *path: str | int) -> str:
        """`FILE:LINE`, a variable, "command line" or "default": of a key, or of a path in it."""
        override = self.overrides.get(name, "").partition(":")[0]
        return override or self.table.position(self._key(name), *path) or "default"

    def _key(self, name: str) -> str:
        return self.settings.KEYS[name].name if name in self.settings.KEYS else name

    def check(self, given: Collection[str]) -> None:
        """Move values that are bad to `rejected`, and note which are missing."""
        self.bad |= given - self.values.keys()
        self.bad |= _check(self.settings, self.values, given, self.locate, self.problems)
        self.rejected = {n: self.values.pop(n) for n in [*self.values] if n in self.bad}

    def add_missing(self, name: str) -> None:
        """Report that a key is missing, and where a file was searched for if there is none."""
        self.bad.add(name)
        self.problems.append(f"{self.locate(name)} is missing")
        if self.document.path is None:
            self.problems.append(no_file_found())


def load(
    settings: type[T], path: str | None, environ: Mapping[str, str] = os.environ, /, **flags: Any
) -> T:
    """The section as its settings.

    A flag sets the attribute of its name; one that is None was not given. A relative path in the
    file is relative to the file.

    Raises:
        ConfigError: all problems of the file and the section at once.
    """
    return examine(settings, path, environ, **flags).config()


def examine(
    settings: type[T], path: str | None, environ: Mapping[str, str] = os.environ, /, **flags: Any
) -> Findings[T]:
    """Like `load`, but collects problems instead of raising them.

    Raises:
        ConfigError: a file does not exist, can't be read, or is not TOML; or a key is in two files.
    """
    document = read_configuration(find_file(path, environ))
    findings = Findings(settings, document)
    values, problems, overrides = findings.values, findings.problems, findings.overrides
    content = _section_of(document, settings.SECTION, problems)
    values.update(_read(settings, content, findings.table, problems))
    if any(name.startswith("SAM_") for name in environ):
        _read_variables(findings, environ)
    keys = settings.KEYS
    for name in settings.DEFAULTS:
        if flags.get(name) is not None:
            values[name] = flags[name]
            overrides[name] = f"command line: {keys[name].name if name in keys else name}"
    if document.problems:  # a missing key may be in a file that can't be read
        _check(settings, values, keys, findings.locate, problems)
        raise ConfigError([*document.problems, *problems], document.exit_code)
    given = {name for name, key in keys.items() if key.name in content or name in overrides}
    findings.check(given)
    if document.path is None and findings.bad - given:  # keys are missing
        problems.append(no_file_found(environ))
    return findings


def examine_file(settings: type[T], file: Path) -> Findings[T]:
    """Like `examine`, for a file of its own that only one program reads.

    A table of an array of tables that has problems is None.

    Raises:
        ConfigError: the file can't be read, or is not TOML.
    """
    document = TomlDocument(file)
    if document.problems:
        raise ConfigError(document.problems)
    findings = Findings(settings, document)
    findings.values.update(_read(settings, document.values, findings.table, findings.problems))
    findings.check({name for name, key in settings.KEYS.items() if key.name in document.values})
    return findings


def _read(
    settings: type[Settings], content: Mapping[str, Any], table: TomlTable, problems: list[str]
) -> dict[str, Any]:
    """The values of the right type in a table, by attribute; adds the problems of the others."""
    if not content:  # saves 1 % of publishing a result
        return {}
    keys = {key.name: key for key in settings.KEYS.values()}
    values: dict[str, Any] = {}
    for name, value in content.items():
        if name not in keys:
            problems.append(f"{table.locate(name, 'unknown key ')}{suggestion(name, keys)}")
            continue
        key = keys[name]
        kind = str if key.read else key.kind
        try:
            if key.unit_s and type(value) is not str:
                raise ValueError(f'expected a duration such as "30s" or "30d", not {value!r}')
            value = _value(kind, value, table, name, problems)
            if key.read:
                value = key.read(value, table.document.directory(*table.path, name))
            if value is not None:  # the table under the key has no problems
                values[key.attribute] = value
        except ValueError as error:
            holds_tables = get_origin(kind) is tuple and is_table(get_args(kind)[0])
            advice = suggestion(name, keys.keys() - {name} if holds_tables else ())
            problems.append(f"{table.locate(name)}: {error}{advice}")
    return values


def _value(kind: Any, value: Any, table: TomlTable, key: str, problems: list[str]) -> Any:
    """The value as its type; raises ValueError if it has another one."""
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, not {redacted(value)}")
        kind = get_args(kind)[0]
        if not is_table(kind):
            return tuple(_value(kind, item, table, key, problems) for item in value)
        tables = ((table.item(key, number), item) for number, item in enumerate(value, 1))
        return tuple(_table(kind, item, place, problems) for place, item in tables)
    if is_table(kind):
        if not isinstance(value, dict):
            raise ValueError(f"expected a table, not {redacted(value)}")
        return _table(kind, value, table.child(key), problems)
    if get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise ValueError(f"expected a table of strings, not {redacted(value)}")
        wrong = [f"{name} = {redacted(v)}" for name, v in value.items() if type(v) is not str]
        if wrong:
            raise ValueError(f"expected a string for each name, not {', '.join(wrong)}")
        return dict(value)
    if kind is Path and isinstance(value, str):
        try:
            return table.document.directory(*table.path, key) / Path(value).expanduser()
        except RuntimeError:  # this account has no home directory
            raise ValueError(f"{value}: the home directory is unknown") from None
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"expected {type_name(kind)}, not {redacted(value)}")
    return value


def _table(
    settings: type[Settings], content: Any, table: TomlTable, problems: list[str]
) -> Settings | None:
    """A table in the section; None if there are problems."""
    if not isinstance(content, dict):
        raise ValueError(f"expected a list of tables, not {redacted(content)}")
    before = len(problems)
    values = _read(settings, content, table, problems)
    keys = settings.KEYS
    given = {name for name, key in keys.items() if key.name in content}
    _check(settings, values, given, lambda name: table.locate(keys[name].name), problems)
    return settings(**values) if len(problems) == before else None


def _check(
    settings: type[Settings],
    values: Mapping[str, Any],
    given: Collection[str],
    locate: Any,
    problems: list[str],
) -> set[str]:
    """The attributes whose value is missing or bad; adds the reasons to `problems`."""
    bad = set()
    for name, key in settings.KEYS.items():
        reasons = None
        if name not in values:
            if key.default is REQUIRED and name not in given:
                problems.append(f"{locate(name)} is missing")
                bad.add(name)
        elif key.check and values[name] is not None:
            reasons = key.check(values[name])
        for reason in reasons.splitlines() if reasons else ():
            problems.append(f"{locate(name)}: {reason}")
            bad.add(name)
    return bad


def _read_variables(findings: Findings[Any], environ: Mapping[str, str]) -> None:
    """Add the variables of the section; those of secrets are only named, their values not read."""
    keys, ours = findings.settings.KEYS, f"SAM_{findings.settings.SECTION}_".upper()
    variables = {name: ours + name.upper() for name in findings.settings.SECRETS}
    variables.update({name: ours + key.name.upper() for name, key in keys.items()})
    names = {name: variable for name, variable in variables.items() if environ.get(variable)}
    findings.overrides.update(names)
    for name in (name for name in names if name in keys):
        variable, key = names[name], keys[name]
        try:
            text = environ[variable]
            value = key.read(text, Path()) if key.read else _from_text(key.kind, text)
            findings.values[name] = value
        except ValueError as error:
            is_list = f"{variable}S" in variables.values()
            hint = f" (did you mean {variable}S?)" if is_list else ""
            findings.problems.append(f"{variable}: {error}{hint}")
    # Other software has variables that begin with SAM_ as well: SAM_EXPERIMENT, SAM_CLI_TELEMETRY.
    sections = tuple(f"SAM_{section}_".upper() for section in SECTIONS)
    known = [*variables.values(), "SAM_CONFIG"]
    for name in (name for name in environ if name not in _warned.union(known)):
        is_ours = name.startswith(ours)
        # The reader of another section checks the variables of that section.
        if is_ours or (name.startswith("SAM_") and not name.startswith(sections)):
            near = did_you_mean(name, known, cutoff=0.5 if is_ours else ALIKE)
            if near or is_ours:
                _warned.add(name)
                logger.warning("%s: no program reads this variable%s", name, near and f" ({near})")


def _from_text(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple and not is_table(get_args(kind)[0]):
        parts = filter(None, map(str.strip, text.split(",")))
        return tuple(_from_text(get_args(kind)[0], part) for part in parts)
    if get_origin(kind) in (tuple, dict) or is_table(kind):
        raise ValueError("can only be set in the file")
    if kind is bool:
        values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in values:
            raise ValueError(f"expected true or false, not {text!r}")
        return values[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"expected {type_name(kind)}, not {text!r}") from None


def _section_of(document: TomlDocument, section: str, problems: list[str]) -> dict[str, Any]:
    for name, values in document.values.items():
        if name not in SECTIONS:
            location = TomlTable(document, (name,), "unknown section").locate("", f"[{name}]")
            problems.append(f"{location}{suggestion(name, SECTIONS)}")
        problems += _exposed_secrets(values, TomlTable(document, (name,), f"[{name}]"))
    content = document.values.get(section, {})
    if isinstance(content, dict):
        return content
    problems.append(f"{document.position(section)}: {section} must be a section, [{section}]")
    return {}


def _exposed_secrets(values: Any, table: TomlTable) -> Iterator[str]:
    """The problems of secrets, in a table and its arrays of tables, that others can read."""
    for key, value in values.items() if isinstance(values, dict) else ():
        is_list = isinstance(value, list)
        for number, item in enumerate(value if is_list else [value], 1):
            if isinstance(item, str):
                file = _is_secret(key, item) and table.document.owner(*table.path, key)
                if file and (exposed := exposure(file.status)):
                    yield f"{table.locate(key)}: contains a secret, but the file {exposed}"
            elif is_list:
                yield from _exposed_secrets(item, table.item(key, number))


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
