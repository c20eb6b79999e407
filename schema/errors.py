"""The errors that are reported to users.

SamError                 ends a program with lines on stderr and `exit_code`, no traceback
├── ConfigError          the configuration is bad; has all its problems
├── RecordRefused        one record can never be loaded (normalise)
│   └── MessageRefused   a message can't be loaded, whatever its records (decode)
├── UnreadableInput      a file of records can't be opened or read
├── ClockNotSet          the clock of this host is earlier than this program
├── SpoolError           the directory queue can't be used
│   └── DamagedElement   one element can't be read; the others can
└── …                    the `errors.py` of each room
"""

from __future__ import annotations

from collections.abc import Sequence

USAGE = 64
BAD_DATA = 65
NO_INPUT = 66
UNAVAILABLE = 69
BUG = 70
CANNOT_CREATE = 73
IO_ERROR = 74
TRY_LATER = 75
NO_PERMISSION = 77
CONFIG = 78


class SamError(Exception):
    """An error that a user can act on; the program exits with its `exit_code`."""

    exit_code = BUG
    _lines: Sequence[str] = ()

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self._lines = lines

    @property
    def lines(self) -> Sequence[str]:
        """What is printed: one line, unless the error has several problems."""
        return self._lines or [str(self)]


class ConfigError(SamError):
    """Bad configuration; one line per problem: `sam.toml:7: [publisher] spool: …`."""

    def __init__(self, problems: Sequence[str], exit_code: int = CONFIG) -> None:
        super().__init__(*problems)
        self.problems: tuple[str, ...] = tuple(problems)
        self.exit_code = exit_code


class RecordRefused(SamError):
    """A record that can never be loaded.

    `reason` is a keyword for tables and rules ("bad-status"), `text` a sentence for users.
    """

    exit_code = BAD_DATA

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason
        self.text = text


class MessageRefused(RecordRefused):
    """A message that can't be loaded as a whole: it exceeds a limit, or a header is invalid."""


class UnreadableInput(SamError):
    """A file of records can't be opened or read; `consequence` says what was not done."""

    def __init__(self, name: str, error: OSError, consequence: str) -> None:
        super().__init__(f"{name}: {(error.strerror or str(error)).lower()}; {consequence}")
        if isinstance(error, PermissionError):
            self.exit_code = NO_PERMISSION
        elif isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)):
            self.exit_code = NO_INPUT
        else:
            self.exit_code = IO_ERROR


class ClockNotSet(SamError):
    """The clock of this host is not set, so that no time of a result can be trusted."""

    exit_code = UNAVAILABLE


class SpoolError(SamError):
    """The directory queue can't be read or written."""

    def __init__(self, text: str, exit_code: int = CANNOT_CREATE) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class DamagedElement(SpoolError):
    """One element does not contain a message; the others are not affected."""


EXTRAS = {
    "archive": ("boto3", "botocore", "numpy", "pyarrow"),
    "consumer": (
        "alembic",
        "defusedxml",
        "prometheus_client",
        "psycopg2",
        "requests",
        "sqlalchemy",
        "urllib3",
        "yaml",
    ),
    "door": ("aiohttp",),
    "load-test": ("matplotlib",),
    "reports": ("jinja2", "pandas", "py4j", "pyspark"),
    "sign": ("nacl",),
}
"""The optional packages, by the extra of the distribution that installs them."""


def how_to_install(module: str) -> list[str]:
    """A line with the command that installs a missing module; none if no extra has it."""
    package = module.partition(".")[0]
    return [
        f"{package} is not installed: run pip install '.[{extra}]' in the checkout of sam-pipeline"
        for extra, packages in EXTRAS.items()
        if package in packages
    ]
