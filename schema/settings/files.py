"""The configuration files: where they are, and their contents as one document."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from sam_pipeline.schema.errors import CONFIG, NO_PERMISSION, USAGE, ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.secret_file import exposure

_LINE_OF_ERROR = r"\(at line (\d+), column \d+\)"

logger = lazy_logger(__name__)
_skipped: set[str] = set()
"""Default files that were skipped with a warning; each is mentioned once."""


class TomlDocument(NamedTuple):
    """The contents of a TOML file, and where its keys are set."""

    values: dict[str, Any]
    file: Path | None = None
    text: str = ""
    exposed: str | None = None
    """How other users can read the file, if they can."""

    def directory(self, *path: str | int) -> Path:
        """The directory to which a relative path under a key is relative."""
        return self.file.parent if self.file else Path()

    def position(self, *path: str | int) -> str | None:
        """`FILE:LINE` of a key, of a table, or of an item of an array; None if it is not set."""
        line = _lines(self.text).get(path)
        return f"{self.file}:{line}" if line else None


@lru_cache(maxsize=1)
def _lines(text: str) -> Mapping[tuple[str | int, ...], int]:
    """The line of each path; a file with many problems is scanned once."""
    from sam_pipeline.schema.settings.toml_lines import lines_of

    return lines_of(text)


def read_toml(file: Path) -> TomlDocument:
    """The document of a TOML file.

    Raises:
        ConfigError: the file can't be read, or is not TOML.
    """
    from importlib import import_module

    try:
        toml = import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.9 and 3.10
        toml = import_module("tomli")
    try:
        with file.open(encoding="utf-8") as opened:
            exposed = exposure(os.fstat(opened.fileno()))
            text = opened.read()
        return TomlDocument(toml.loads(text), file, text, exposed)
    except (OSError, ValueError) as error:
        import re

        line = re.search(_LINE_OF_ERROR, str(error))
        location = f"{file}:{line[1]}" if line else f"{file}"
        raise ConfigError([f"{location}: {error}"]) from None


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
