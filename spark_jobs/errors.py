"""The errors of `sam-report`.

SamError
├── ReportUsage         the command line asks for the impossible: a day in the future
├── NoProfile           the profile's file can't be read
├── ProfileError        the profile can't be used: all its problems at once
├── MixedVOs            two VOs measured one instance, and the profile names none
├── JavaMissing         Spark can't start
├── SparkMissing        Spark isn't installed
├── SparkFailed         Spark failed while computing
├── CannotMakeFile      a directory to write to can't be made, or isn't writable
├── CannotWriteFile     the disk is full or broken; the old file is still there
└── AnotherRun          a later run of the same day published first; this one publishes nothing
"""

from __future__ import annotations

from sam_pipeline.schema.errors import ConfigError, SamError
from sam_pipeline.schema.program import command


class ReportUsage(SamError):
    """The command line asks for something that doesn't exist; the message says what does."""

    exit_code = command.USAGE


class NoProfile(SamError):
    """The profile's file doesn't exist or can't be read."""

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
    """The directory of a file can't be made, or isn't writable."""

    exit_code = command.CANNOT_CREATE


class CannotWriteFile(SamError):
    """Writing a file failed, as when the disk is full; the old file is still there, whole."""

    exit_code = command.IO_ERROR
