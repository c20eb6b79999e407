"""The configuration files: where they are, and their contents as one document.

For a file named sam.toml, the files `conf.d/*.toml` beside it are read after it, in the order of
their names.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sam_pipeline.schema.errors import CONFIG, NO_PERMISSION, USAGE, ConfigError
from sam_pipeline.schema.log import lazy_logger

WITH_FRAGMENTS = "sam.toml"
FRAGMENTS = "conf.d"

_LINE_OF_ERROR = r"\(at line (\d+), column \d+\)"

logger = lazy_logger(__name__)
_skipped: set[str] = set()
"""Default files that were skipped with a warning; each is mentioned once."""


class TomlFile:
    """A file as it was read."""

    # As NamedTuples, these two classes would make publishing a result slower.
    def __init__(self, path: Path, text: str, status: os.stat_result) -> None:
        self.path = path
        self.text = text
        self.status = status


class TomlDocument:
    """The contents of TOML files as one, and where its keys are set.

    Tables of the files are merged and arrays of tables joined; any other key that two of them have
    is a problem.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Reads the file, if there is one."""
        self.path = path
        self.files: list[TomlFile] = []
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        """Files that can't be read or are not TOML, and keys that are given twice."""
        self.exit_code = CONFIG
        self._owners: dict[tuple[str | int, ...], TomlFile] = {}
        self._lines: dict[tuple[str | int, ...], str] = {}
        if path is not None:
            self.add(path)

    def add(self, path: Path) -> None:
        """Read one more file."""
        try:
            file, values = _read_toml(path)
        except OSError as error:
            if path == self.path or os.path.lexists(path):  # else removed since it was listed
                self.refuse(path, error)
            return
        except ValueError as error:
            self.problems.append(_located(error, path))
            return
        self.files.append(file)
        if len(self.files) == 1:
            self.values = values
            return
        from sam_pipeline.schema.settings.toml_lines import lines_of, merge

        for key in merge(self.values, values, file, self._owners):
            *table, last = map(str, key)
            name = f"[{'.'.join(table)}] {last}" if table else last
            both = (file, self.owner(*key))
            again, before = (f"{one.path}:{lines_of(one.text)[key]}" for one in both)
            self.problems.append(f"{again}: {name} is also set at {before}: remove one of them")

    def refuse(self, path: Path, error: OSError) -> None:
        """Add the problem of a file or directory that can't be read."""
        self.problems.append(f"{path}: {_reason(error, path)}")
        if isinstance(error, PermissionError):
            self.exit_code = NO_PERMISSION

    def owner(self, *path: str | int) -> TomlFile:
        """The file that sets a key."""
        for end in range(len(path) if self._owners else 0, 0, -1):
            if path[:end] in self._owners:
                return self._owners[path[:end]]
        return self.files[0]

    def directory(self, *path: str | int) -> Path:
        """The directory to which a relative path under a key is relative."""
        return self.owner(*path).path.parent

    def position(self, *path: str | int) -> str | None:
        """`FILE:LINE` of a key, of a table, or of an item of an array; None if it is not set."""
        if not self._lines and self.files:
            from sam_pipeline.schema.settings.toml_lines import joined_lines

            self._lines = joined_lines({file.path: file.text for file in self.files})
        return self._lines.get(path)


def read_configuration(file: Path | None) -> TomlDocument:
    """The document of a configuration file and its fragments; an empty one without a file."""
    document = TomlDocument(file)
    if file is None or file.name != WITH_FRAGMENTS:
        return document
    directory = file.parent / FRAGMENTS
    if not os.path.lexists(directory):
        return document
    try:
        names = os.listdir(directory)
    except OSError as error:
        document.refuse(directory, error)
        return document
    for name in sorted(names):
        if name.endswith(".toml") and not name.startswith("."):
            document.add(directory / name)
    return document


def _read_toml(path: Path) -> tuple[TomlFile, dict[str, Any]]:
    if sys.version_info >= (3, 11):
        from tomllib import loads  # novm
    else:
        from tomli import loads
    with open(_opened(path), "rb") as opened:
        status = os.fstat(opened.fileno())
        text = opened.read().decode().replace("\r\n", "\n")
    return TomlFile(path, text, status), loads(text)


def _located(error: ValueError, path: Path) -> str:
    """The problem of a file that is not TOML, with the line."""
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        return f"{path}:{line}: is not UTF-8 (byte 0x{error.object[error.start]:02x})"
    found = re.search(_LINE_OF_ERROR, str(error))
    return f"{path}:{found[1]}: {error}" if found else f"{path}: {error}"


def find_file(path: str | None, environ: Mapping[str, str]) -> Path | None:
    """The sam.toml to read: the one that the flag or `$SAM_CONFIG` names, or a default one, if any.

    A default file that can't be read, such as one in the home directory of another account, is
    skipped with a warning.

    Raises:
        ConfigError: the flag names none.
    """
    if path == "":
        raise ConfigError(["--config is empty"], USAGE)
    if name := path or environ.get("SAM_CONFIG"):
        with suppress(OSError):  # the working directory was removed
            return Path(name).absolute()
        return Path(name)
    for default in _default_files(environ):
        try:
            os.close(_opened(default))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            _skip(default, _reason(error, default))
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


def _opened(path: str | Path) -> int:
    """A descriptor; raises OSError unless this is a file that can be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a named pipe would block
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "Not a regular file")
    return descriptor


def _skip(place: str, reason: str) -> None:
    if place not in _skipped:
        _skipped.add(place)
        logger.warning("%s: %s: this location of the configuration is skipped", place, reason)


def _reason(error: OSError, path: str | Path) -> str:
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        return f"is a link to {os.readlink(path)}, which does not exist"
    return (error.strerror or "can't be read").lower()
