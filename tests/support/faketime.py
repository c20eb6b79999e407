"""Commands whose clock is wrong."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from tests.services import missing
from tests.support.commands import Answer, Workplace

LIBRARY = "/usr/lib/*/faketime/libfaketime.so.1"


class WithWrongClock(Workplace):
    """Its commands are processes: this one has the right time."""

    def run(self, *command: str | Path, stdin: str | bytes = "") -> Answer:
        assert isinstance(stdin, str)
        return self.process(*command, stdin=stdin)


def under(clock: str, workplace: Workplace) -> Workplace:
    """The workplace with commands whose clock is wrong; only their monotonic clock is right."""
    library = next(Path("/").glob(LIBRARY.lstrip("/")), None)
    if library is None:
        missing("libfaketime", "apt-get install faketime")
    variables = {"LD_PRELOAD": str(library), "FAKETIME": clock, "DONT_FAKE_MONOTONIC": "1"}
    given = {field.name: getattr(workplace, field.name) for field in fields(workplace)}
    return WithWrongClock(**{**given, "environment": variables})
