"""A table of a TOML file as the values of a class: their types, checks and relative paths."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, NamedTuple, get_args, get_origin, get_type_hints

from sam_pipeline.schema.settings.files import TomlDocument


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


class Reader:
    """Converts values of the file to the types of a config class, and collects problems."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems

    def table(
        self, config_class: Any, document: Mapping[str, Any], table: TomlTable
    ) -> dict[str, Any]:
        if not document:  # saves 1 % of publishing a result
            return {}
        fields = {field.key: field for field in fields_of(config_class) if field.key}
        values: dict[str, Any] = {}
        for key, value in document.items():
            if key not in fields:
                location = table.locate(key, "unknown key ")
                self._problems.append(f"{location}{suggestion(key, fields)}")
                continue
            kind = kind_of(config_class, fields[key])
            try:
                read = self._value(kind, value, table, key)
                if read is not None:  # the table under the key has no problems
                    values[fields[key].name] = read
            except ValueError as error:
                holds_tables = get_origin(kind) is tuple and is_table(get_args(kind)[0])
                others = [name for name in fields if name != key] if holds_tables else []
                advice = suggestion(key, others)
                self._problems.append(f"{table.locate(key)}: {error}{advice}")
        return values

    def _value(self, kind: Any, value: Any, table: TomlTable, key: str) -> Any:
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
                return table.document.directory(*table.path, key) / Path(value).expanduser()
            except RuntimeError:  # this account has no home directory
                raise ValueError(f"{value}: the home directory is unknown") from None
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise ValueError(f"expected {type_name(kind)}, not {_redacted(value)}")
        return value

    def _nested(self, kind: Any, document: Any, table: TomlTable) -> Any:
        """An instance of the class `kind`; None if there are problems."""
        if not isinstance(document, dict):
            raise ValueError(f"expected a list of tables, not {_redacted(document)}")
        before = len(self._problems)
        values = self.table(kind, document, table)
        fields = fields_of(kind)
        keys = {field.name: field.key or field.name for field in fields}
        given = {field.name for field in fields if field.key in document}
        check_fields(fields, values, given, lambda name: table.locate(keys[name]), self._problems)
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


def check_fields(
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


def kind_of(config_class: Any, field: Field) -> Any:
    """The type of a field; of an optional one, the type inside `Optional`."""
    if field.tables:
        return tuple[field.tables(), ...]  # type: ignore[misc]
    hint = _hints(config_class)[field.name]
    if type(None) in get_args(hint):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


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


def type_name(kind: Any) -> str:
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind) or ("a path" if kind is Path else "a date such as 2027-06-01")


def _redacted(value: Any) -> str:
    """The value for a message, but not a URL that may contain a password."""
    return "…@…" if "@" in repr(value) else repr(value)


def suggestion(name: str, known: Iterable[str]) -> str:
    from sam_pipeline.schema.program.wording import did_you_mean

    suggestion = did_you_mean(name, known)
    return f" ({suggestion})" if suggestion else ""
