"""What can go wrong while reporting.

SamError
├── ReportUsage         the question makes no sense: a day in the future, an unknown report
├── NoProfile           the profile's file can't be read
├── ProfileError        the profile can't be used: all its problems at once
├── MixedVOs            two VOs measured one instance, and the profile names none
├── JavaMissing         Spark can't start
├── SparkMissing        Spark isn't installed
├── SparkFailed         Spark gave up in the middle
├── CannotMakeFile      a file that we write has no place: its directory is closed, or is none
├── CannotWriteFile     a file that we write finds no room; what was there before still is
└── AnotherRun          another run of the same day took over; nothing of ours was published
"""

from __future__ import annotations

from sam_pipeline.schema.errors import ConfigError, SamError
from sam_pipeline.schema.program import command


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


class SparkMissing(SamError):
    """Only `run` needs Spark: the other commands work without it."""

    exit_code = command.UNAVAILABLE


class SparkFailed(SamError):
    """Spark, or the database under it, failed while computing; nothing was published."""

    exit_code = command.UNAVAILABLE


class AnotherRun(SamError):
    """A later run of the same report and day published first; try again."""

    exit_code = command.TRY_LATER


class CannotMakeFile(SamError):
    """There is no place for a file: a directory can't be made, or is closed to us."""

    exit_code = command.CANNOT_CREATE


class CannotWriteFile(SamError):
    """Writing failed, as when the disk is full; the old file is still there, whole."""

    exit_code = command.IO_ERROR
