"""Commands whose clock is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.services import missing
from tests.support.commands import Workplace

LIBRARY = "/usr/lib/*/faketime/libfaketime.so.1"


def under(clock: str, workplace: Workplace) -> Workplace:
    """The workplace with commands whose clock is wrong; only their monotonic clock is right."""
    library = next(Path("/").glob(LIBRARY.lstrip("/")), None)
    if library is None:
        missing("libfaketime", "apt-get install faketime")
    variables = {"LD_PRELOAD": str(library), "FAKETIME": clock, "DONT_FAKE_MONOTONIC": "1"}
    return replace(workplace, environment=variables)
