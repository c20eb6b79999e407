"""`sam.toml`: one file, one section per program. Flag beats environment beats file beats default.

Each program describes its section as a frozen dataclass or a NamedTuple and calls `load`, which
reports all problems at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, TypeVar

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.settings.files import (
    TomlDocument,
    find_file,
    no_file_found,
    read_configuration,
)
from sam_pipeline.schema.settings.reader import (
    Reader,
    TomlTable,
    check_fields,
    fields_of,
    suggestion,
)

SECTIONS = ("database", "publisher", "consumer", "report", "import", "archive")
SECRETS: Mapping[str, tuple[str, ...]] = {
    "publisher": ("password", "token", "proxy_password"),
    "consumer": ("password", "proxy_password"),
}
"""By section: secrets that a variable may hold, but no key of the file."""

_NAMES_OF_SECRETS = ("password", "passwd", "passcode", "secret", "token")
"""How keys end whose value is a secret; that of `password_file` is not."""

T = TypeVar("T")


class Findings:
    """The contents of a section: its good `values` by field name, and all its `problems`."""

    # As a NamedTuple, this would make publishing a result 0.3 % slower.
    def __init__(
        self,
        values: dict[str, Any],
        problems: Sequence[str],
        bad: Collection[str],
        rejected: Mapping[str, Any],
        locate: Callable[[str], str],
        origin: Callable[..., str],
        document: TomlDocument,
    ) -> None:
        self.values = values
        self.problems = tuple(problems)
        self.bad = frozenset(bad)
        """Fields whose value is bad or missing."""
        self.rejected = rejected
        """Values of the right type that their check rejected, by field name."""
        self.locate = locate
        """Where a field is set, for messages: `sam.toml:7: [publisher] spool`, or a variable."""
        self.origin = origin
        """`FILE:LINE`, a variable, "command line" or "default": of a field, or of a path in it."""
        self.document = document


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
        ConfigError: a file does not exist, can't be read, or is not TOML; or a key is in two files.
    """
    document = read_configuration(find_file(path, environ))
    problems: list[str] = []
    content = _section_of(document, section, problems)
    table = TomlTable(document, (section,), f"[{section}]")
    values = Reader(problems).table(config_class, content, table)
    overrides: dict[str, str] = {}
    if any(name.startswith("SAM_") for name in environ):
        from sam_pipeline.schema.settings.variables import read_variables

        variables = read_variables(config_class, section, SECRETS.get(section, ()), environ)
        values.update(variables.values)
        overrides.update(variables.names)
        problems += variables.problems
    fields = fields_of(config_class)
    for field in fields:
        if flags.get(field.name) is not None:
            values[field.name] = flags[field.name]
            overrides[field.name] = f"command line: {field.key or field.name}"
    keys = {field.name: field.key or field.name for field in fields}

    def locate(name: str) -> str:
        return overrides.get(name) or table.locate(keys[name])

    def origin(name: str, *path: str | int) -> str:
        override = overrides.get(name, "").partition(":")[0]
        return override or table.position(keys.get(name, name), *path) or "default"

    given = {field.name for field in fields if field.key in content or field.name in overrides}
    if document.problems:  # a missing key may be in a file that can't be read
        check_fields(fields, values, {*keys}, locate, problems)
        raise ConfigError([*document.problems, *problems], document.exit_code)
    bad = given - set(values) | check_fields(fields, values, given, locate, problems)
    if document.path is None and bad - given:  # keys are missing
        problems.append(no_file_found(environ))
    good = {name: value for name, value in values.items() if name not in bad}
    rejected = {name: value for name, value in values.items() if name in bad}
    return Findings(good, problems, bad, rejected, locate, origin, document)


def examine_file(config_class: Any, file: Path) -> FileFindings:
    """Like `examine`, for a file of its own that only one program reads.

    A table of an array of tables that has problems is None.

    Raises:
        ConfigError: the file can't be read, or is not TOML.
    """
    problems: list[str] = []
    document = TomlDocument(file)
    if document.problems:
        raise ConfigError(document.problems)
    table = TomlTable(document, (), "")
    values = Reader(problems).table(config_class, document.values, table)
    fields = fields_of(config_class)
    keys = {field.name: field.key or field.name for field in fields}
    given = {field.name for field in fields if field.key in document.values}
    bad = check_fields(fields, values, given, lambda name: table.locate(keys[name]), problems)
    good = {name: value for name, value in values.items() if name not in bad}
    return FileFindings(good, problems, lambda *path: document.position(*path) or str(file))


def _section_of(document: TomlDocument, section: str, problems: list[str]) -> dict[str, Any]:
    for name in document.values:
        if name not in SECTIONS:
            location = TomlTable(document, (name,), "unknown section").locate("", f"[{name}]")
            problems.append(f"{location}{suggestion(name, SECTIONS)}")
    if any(file.exposed for file in document.files):
        for name, values in document.values.items():
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
                exposed = table.document.owner(*table.path, key).exposed
                if exposed and _is_secret(key, item):
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
