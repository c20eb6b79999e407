"""The log of all runs: JSON lines, which a run only appends to.

    {"kind": "run", "run": 3, ...}       a run began
    {"kind": "sample", "run": 3, ...}    what was measured, every some seconds
    {"kind": "window", "run": 3, ...}    the records of some minutes were accounted for
    {"kind": "end", "run": 3, ...}       the run ended, with its problems

A run that was killed has no end, and its last window does not count. The next run adds to the
totals.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

RUN, SAMPLE, WINDOW, END = "run", "sample", "window", "end"
SUMS = ("messages", "records", "uncertain", "dead_letters", "redelivered")
BAD = ("lost", "twice", "unknown")


@dataclass(frozen=True)
class SoakLog:
    path: Path

    def append(self, kind: str, run: int, **values: object) -> None:
        """Add a line, which is on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"kind": kind, "run": run, **values}, default=str) + "\n"
        with self.path.open("ab") as file:
            if file.tell() and not self._ends_with_a_line():
                file.write(b"\n")  # a kill has cut the last line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def entries(self, *kinds: str, run: int | None = None) -> Iterator[Entry]:
        """The lines of these kinds, of one run or of all; a cut line is skipped."""
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry: Entry = json.loads(line)
                except ValueError:
                    continue
                if entry["kind"] in kinds and run in (None, entry["run"]):
                    yield entry

    def runs(self) -> list[Entry]:
        return list(self.entries(RUN))

    def _ends_with_a_line(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


@dataclass
class Totals:
    """Sums over the windows of all runs, and the problems of all runs."""

    runs: int = 0
    windows: int = 0
    seconds: float = 0.0
    sums: Counter[str] = field(default_factory=Counter)
    """By SUMS and BAD."""
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"  {'runs':46}{self.runs:>12,}",
            f"  {'hours':46}{self.seconds / 3600:>12,.2f}",
            *(f"  {_shown(name):46}{self.sums[name]:>12,}" for name in (*SUMS, *BAD)),
            f"  {'faults and pauses':46}{sum(self.faults.values()):>12,}",
            *(f"    {name:44}{number:>12,}" for name, number in sorted(self.faults.items())),
        ]
        return "\n".join([*lines, *(f"  PROBLEM: {problem}" for problem in self.problems)])


def totals(entries: Sequence[Entry]) -> Totals:
    """The totals of the windows among these entries, and the problems at the ends of runs."""
    windows = [entry for entry in entries if entry["kind"] == WINDOW]
    total = Totals(
        runs=len({entry["run"] for entry in windows}),
        windows=len(windows),
        seconds=sum(entry["seconds"] for entry in windows),
    )
    for window in windows:
        total.sums.update({name: window[name] for name in (*SUMS, *BAD)})
        total.faults.update(window["faults"])
    for entry in entries:
        if entry["kind"] == END:
            total.problems += [f"run {entry['run']}: {text}" for text in entry["problems"]]
    return total


def _shown(name: str) -> str:
    shown = {
        "messages": "messages, by id",
        "records": "records published",
        "uncertain": "records perhaps published, no confirmation",
        "dead_letters": "records that became dead letters",
        "redelivered": "rows redelivered",
        "unknown": "never published",
    }
    return shown.get(name, name)
