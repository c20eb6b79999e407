"""The log of all runs: JSON lines, which a run only appends to.

    {"kind": "run", "run": 3, ...}       a run began
    {"kind": "sample", "run": 3, ...}    what was measured, every some seconds
    {"kind": "window", "run": 3, ...}    the records of some minutes were accounted for
    {"kind": "end", "run": 3, ...}       the run ended, with its problems

A run that was killed has no end, and its last window does not count.
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
        """Add a line, which is on the disk when this returns; a kill may have cut the last one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"kind": kind, "run": run, **values}, default=str)
        is_cut = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("ab") as file:
            file.write(f"\n{line}\n".encode() if is_cut else f"{line}\n".encode())
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


@dataclass
class Totals:
    """Sums over the windows of all runs, and the problems of all runs."""

    runs: int = 0
    seconds: float = 0.0
    sums: Counter[str] = field(default_factory=Counter)
    """By SUMS and BAD."""
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        sums = {"runs": self.runs, **{name: self.sums[name] for name in (*SUMS, *BAD)}}
        sums["faults and pauses"] = sum(self.faults.values())
        sums |= {f"  {name}": number for name, number in sorted(self.faults.items())}
        lines = [f"  {'hours':46}{self.seconds / 3600:>12,.2f}"]
        lines += [f"  {name.replace('_', ' '):46}{number:>12,}" for name, number in sums.items()]
        return "\n".join([*lines, *(f"  PROBLEM: {problem}" for problem in self.problems)])


def totals(entries: Sequence[Entry]) -> Totals:
    """The totals of the windows among these entries, and the problems at the ends of runs."""
    windows = [entry for entry in entries if entry["kind"] == WINDOW]
    total = Totals(len({entry["run"] for entry in windows}), sum(e["seconds"] for e in windows))
    for window in windows:
        total.sums.update({name: window[name] for name in (*SUMS, *BAD)})
        total.faults.update(window["faults"])
    for entry in entries:
        if entry["kind"] == END:
            total.problems += [f"run {entry['run']}: {text}" for text in entry["problems"]]
    return total
