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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

RUN, SAMPLE, WINDOW, END = "run", "sample", "window", "end"
SUMS = (
    *("messages", "records", "uncertain", "dead_letters", "redelivered"),
    *("lost", "twice", "unknown"),
)


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
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry: Entry = json.loads(line)
            except ValueError:
                continue
            if entry["kind"] in kinds and run in (None, entry["run"]):
                yield entry

    def last_run(self) -> int:
        return max((entry["run"] for entry in self.entries(RUN)), default=0)


def totals(entries: Sequence[Entry]) -> dict[str, float]:
    """Sums over the windows among these entries, and how often each event happened."""
    windows = [entry for entry in entries if entry["kind"] == WINDOW]
    faults: Counter[str] = Counter()
    for window in windows:
        faults.update(window["faults"])
    total: dict[str, float] = {"hours": sum(window["seconds"] for window in windows) / 3600}
    total["runs"] = len({window["run"] for window in windows})
    total |= {name: sum(window[name] for window in windows) for name in SUMS}
    total["faults and pauses"] = faults.total()
    return total | {f"  {name}": number for name, number in sorted(faults.items())}


def total_lines(entries: Sequence[Entry]) -> list[str]:
    """The totals, and the problems at the ends of runs."""
    shown = {name: round(number, 2) for name, number in totals(entries).items()}
    lines = [f"  {name.replace('_', ' '):46}{number:>12,}" for name, number in shown.items()]
    ends = [entry for entry in entries if entry["kind"] == END]
    return lines + [
        f"  PROBLEM: run {end['run']}: {text}" for end in ends for text in end["problems"]
    ]
