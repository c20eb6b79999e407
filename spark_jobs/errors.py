"""The errors of `sam-report`.

SamError
├── ReportUsage         the command line asks for the impossible, such as a day in the future
├── NoExclusion         no exclusion has that id
├── NoProfile           the file of a profile cannot be read
├── ProfileError        a profile is not valid: all its problems at once
├── MixedVOs            two VOs measured one instance, and the profile names none
├── JavaMissing         Spark cannot start
├── SparkFailed         Spark did not start, found no worker, or failed during the computation
├── SparkDiskFull       the disk of Spark's temporary files is full
├── CannotMakeFile      an output directory cannot be created, or is not writable
├── CannotWriteFile     the disk is full or broken; the old file is intact
└── AnotherRun          a later run of the same day published first; this one publishes nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sam_pipeline.schema.errors import ConfigError, SamError
from sam_pipeline.schema.program import command


class ReportUsage(SamError):
    """The command line asks for something unknown; the message lists the known names."""

    exit_code = command.USAGE


class NoExclusion(SamError):
    """No exclusion has that id."""

    exit_code = command.NO_INPUT


class NoProfile(SamError):
    """The profile's file doesn't exist or can't be read."""

    exit_code = command.NO_INPUT


class ProfileError(ConfigError):
    """A profile is not valid; each problem names the file, the line and the key."""


class MixedVOs(SamError):
    """Several VOs measured one instance, and mixing their results would make no sense."""

    exit_code = command.CONFIG

    def __init__(self, vos_of: Mapping[str, Iterable[str]]) -> None:
        shown = [
            f"{instance}: {', '.join(sorted({vo or 'no VO' for vo in vos}))}"
            for instance, vos in sorted(vos_of.items())
        ]
        super().__init__(
            f"results of several VOs for one instance ({'; '.join(shown[:3])}):"
            ' choose one in the profile (vo = "…")'
        )


class JavaMissing(SamError):
    """Spark needs a Java runtime, and none of a supported version was found."""

    exit_code = command.UNAVAILABLE


class SparkFailed(SamError):
    """Spark did not start, or failed during the computation; nothing was published.

    `cause` is the innermost cause, if Spark reported one.
    """

    exit_code = command.UNAVAILABLE

    def __init__(self, text: str, cause: str = "") -> None:
        super().__init__(text)
        self.cause = cause


class SparkDiskFull(SamError):
    """The disk of Spark's temporary files is full; nothing was published."""

    exit_code = command.IO_ERROR


class AnotherRun(SamError):
    """A later run of the same report and day published first; try again."""

    exit_code = command.TRY_LATER


class CannotMakeFile(SamError):
    """The directory of a file cannot be created, or is not writable."""

    exit_code = command.CANNOT_CREATE


class CannotWriteFile(SamError):
    """Writing a file failed, for example because the disk is full; the old file is intact."""

    exit_code = command.IO_ERROR
