"""What can go wrong while reporting.

SamError
├── ReportUsage         the question makes no sense: a day in the future, an unknown report
├── NoProfile           the profile's file can't be read
├── ProfileError        the profile can't be used: all its problems at once
├── MixedVOs            two VOs measured one instance, and the profile names none
├── JavaMissing         Spark can't start
├── SparkFailed         Spark gave up in the middle
├── CannotMakePages     there is no directory for pages, and we can't make it
├── CannotWritePage     a page can't be written, as when the disk is full
└── AnotherRun          another run of the same day took over; nothing of ours was published
"""

from __future__ import annotations

from schema import command
from schema.errors import ConfigError, SamError


class ReportUsage(SamError):
    """The question asks for what can't be: the words say what can."""

    exit_code = command.USAGE


class NoProfile(SamError):
    """There is no such file, or it can't be read."""

    exit_code = command.NO_INPUT


class ProfileError(ConfigError):
    """A profile with problems; each line names the file, the line and the key."""


class MixedVOs(SamError):
    """Results of several VOs for one instance would interleave into nonsense."""

    exit_code = command.CONFIG


class JavaMissing(SamError):
    """No Java runtime: Spark is a Java program."""

    exit_code = command.UNAVAILABLE


class SparkFailed(SamError):
    """Spark, or the database under it, failed while computing; nothing was published."""

    exit_code = command.UNAVAILABLE


class AnotherRun(SamError):
    """A later run of the same report and day published first; try again."""

    exit_code = command.TRY_LATER


class CannotMakePages(SamError):
    """The directory for the pages can't be made."""

    exit_code = command.CANNOT_CREATE


class CannotWritePage(SamError):
    """A page can't be written: the old one is still there, whole."""

    exit_code = command.IO_ERROR
