"""Keys of sam.toml: each is declared once, as an attribute of the class of its section or table.

    class ArchiveConfig(Settings):
        SECTION = "archive"
        region: str | None = config_key("by default that of the AWS configuration", None, None)

Files, variables and options are read and checked by these declarations; `config`, the tables
of the documentation and sam.toml(5) list them. A name ends with its unit, such as `_s`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Optional, TypeVar, get_args

from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.secret_file import (
    problem_of_certificate,
    problem_of_path,
    problem_of_secret,
)
from sam_pipeline.schema.times import format_duration, parse_duration

if TYPE_CHECKING:
    from typing import dataclass_transform  # novm - for the type checker, which is newer
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda decorated: decorated


SECTIONS = ("database", "publisher", "consumer", "report", "import", "archive", "prune")
REQUIRED: Any = object()
"""The default of a key that has none."""

Check = Callable[[Any], Optional[str]]
"""Returns the problems of a value, one per line."""
SettingsType = TypeVar("SettingsType", bound="Settings")


class Key:
    """A key: its `name` in the file, its default, and its `meaning` in Markdown."""

    def __init__(
        self,
        meaning: str,
        check: Optional[Check] = None,
        default: Any = REQUIRED,
        key: str = "",
        read: Optional[Callable[[str, Path], Any]] = None,
        unit_s: float = 0,
    ) -> None:
        """Without a `key` it is named like the attribute; without a `meaning` no page lists it.

        `read` makes the value from its text and the directory of relative paths, or raises
        ValueError.
        """
        self.meaning = meaning
        self.check = check
        self.default = default
        self.name = key
        self.read = read
        self.unit_s = unit_s
        """For a duration: the seconds in one unit of the value."""

    def __set_name__(self, owner: Any, attribute: str) -> None:
        self.owner = owner
        self.attribute = attribute
        self.name = self.name or attribute

    def shown(self, value: Any) -> Any:
        """The value as in the file, if it is a duration."""
        is_number = self.unit_s and isinstance(value, (int, float))
        return format_duration(value * self.unit_s) if is_number else value

    @property
    def kind(self) -> Any:
        """The type of its value, without None."""
        kind = self.owner.__annotations__[self.attribute]
        if isinstance(kind, str):
            kind = eval(kind, vars(sys.modules[self.owner.__module__]))
        kinds = get_args(kind)
        return next(one for one in kinds if one is not type(None)) if type(None) in kinds else kind


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings:
    """The values of a section or table, which never change; two are equal if all values are.

    Other attributes are set by an option or by the program, never by the file.
    """

    # A dataclass would be the same, but its module takes as long to import as Python to start.
    SECTION: ClassVar[str] = ""
    """The section of sam.toml; empty for a table, and for a file of its own."""
    SECRETS: ClassVar[Sequence[str]] = ()
    """Secrets of the section that a variable may hold, but no key of the file."""
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    """The default of each attribute; those of the class itself precede inherited ones."""
    KEYS: ClassVar[dict[str, Key]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: vars(cls)[name] for name in vars(cls).get("__annotations__", {})}
        keys = {name: value for name, value in own.items() if isinstance(value, Key)}
        defaults = {**own, **{name: key.default for name, key in keys.items()}}
        for base in cls.__bases__:
            if issubclass(base, Settings):
                keys.update({n: key for n, key in base.KEYS.items() if n not in own})
                defaults.update({n: v for n, v in base.DEFAULTS.items() if n not in own})
        cls.KEYS, cls.DEFAULTS = keys, defaults

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(self.DEFAULTS)
        self.__dict__.update(values)
        if REQUIRED in self.__dict__.values() or len(self.__dict__) > len(self.DEFAULTS):
            wrong = [name for name, value in self.__dict__.items() if value is REQUIRED]
            wrong += values.keys() - self.DEFAULTS.keys()
            raise TypeError(f"{type(self).__name__}: missing or unknown: {', '.join(wrong)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} can't be changed: use replace()")

    def problems(self) -> Iterable[str]:
        """Why values don't go together that are good by themselves."""
        return ()

    def replace(self: SettingsType, **changes: Any) -> SettingsType:
        """A copy with some changes."""
        return type(self)(**{**self._values(), **changes})

    def _values(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.DEFAULTS}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        """Without the logins of URLs, which may contain a password."""
        shown = (f"{name}={without_login(value)!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({', '.join(shown)})"


def is_table(kind: Any) -> bool:
    """Whether values of this type are tables of the file."""
    return hasattr(kind, "KEYS")


def type_name(kind: Any) -> str:
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind) or ("a path" if kind is Path else "a date such as 2027-06-01")


config_key: Callable[..., Any] = Key
"""A key of the file, whose attribute has the type of its value."""


def duration_key(
    key: str,
    meaning: str,
    default: Any = REQUIRED,
    low: str = "",
    high: str = "",
    unit_s: float = 1,
) -> Any:
    """A length of time under `key`, such as "30d"; the value is a number of units of `unit_s`."""

    def read(text: str, _: Path) -> float:
        return parse_duration(text).total_seconds() / unit_s

    def check(value: float) -> Optional[str]:
        least, most = (read(text, Path()) if text else value for text in (low, high))
        if value > 0 and least <= value <= most:
            return None
        wanted = f"{low} to {high}" if high else "more than 0s"
        return f"expected {wanted}, not {format_duration(value * unit_s)}"

    return Key(meaning, check, default, key, read, unit_s)


def expected(text: str, accepts: Callable[[Any], object]) -> Check:
    """A check of a value, which reports the `text` unless the value is accepted."""
    return lambda value: None if accepts(value) else f"expected {text}, not {value!r}"


def one_of(*choices: str) -> Check:
    return expected(f"{', '.join(choices[:-1])} or {choices[-1]}", choices.__contains__)


def between(low: float, high: float, unit: str = "") -> Check:
    return expected(f"{low:g} to {high}{unit}", lambda number: low <= number <= high)


def each(check: Check) -> Check:
    """A check of each item of a list."""
    return lambda items: lines(map(check, items))


def lines(problems: Iterable[Optional[str]]) -> Optional[str]:
    """Problems as a check returns them."""
    return "\n".join(filter(None, problems)) or None


def joined(check: Callable[[Any], Iterator[str]]) -> Check:
    """A check from a function that yields problems."""
    return lambda value: lines(check(value))


def without_login(value: Any) -> Any:
    """The value, a URL without its user and password."""
    if isinstance(value, tuple):
        return tuple(map(without_login, value))
    if not isinstance(value, str) or "@" not in value:
        return value
    scheme, separator, _ = value.partition("://")
    return f"{scheme if separator else ''}://{value.rpartition('@')[2]}"


def redacted(value: Any) -> str:
    """The value for a message, but not a URL that may contain a password."""
    return "…@…" if "@" in repr(value) else repr(value)


def suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names, for the end of a message."""
    nearest = did_you_mean(name, known)
    return f" ({nearest})" if nearest else ""


POSITIVE = expected("more than 0", lambda number: number > 0)
NOT_NEGATIVE = expected("0 or more", lambda number: number >= 0)


path_key: Callable[..., Any] = partial(Key, check=problem_of_path, default=None)
"""An optional file or directory."""
secret_key: Callable[..., Any] = partial(Key, check=problem_of_secret, default=None)
"""An optional file that only its owner can read."""
certificate_key: Callable[..., Any] = partial(Key, check=problem_of_certificate, default=None)
"""An optional certificate, whose file may also contain the private key."""
