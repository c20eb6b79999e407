"""What a recomputed day changed in the figures that were published before, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.schema.program.command import to_json
from sam_pipeline.spark_jobs.rules.levels import FIGURES, NAMES, WITH_FIGURES

INPUTS = {
    "results_digest": ("results changed", "results that count: late, or gone"),
    "topology_digest": ("topology changed", "endpoints or groups expected on that day"),
    "downtimes_digest": ("downtimes changed", "announced downtimes that count"),
    "exclusions_digest": ("exclusions changed", "exclusions that overlap the day"),
    "profile_digest": ("profile changed", "what the profile means; layout does not matter"),
    "until": ("the day went on", "the earlier run saw an open day"),
    "software_version": ("software changed", "another version of these programs"),
}
"""The parts of a run's input: the reason if one changed, and what that means."""
OTHERWISE = ("computed differently", "none of these: please report it")

Figures = dict[tuple[str, ...], tuple[Any, ...]]


def note_changes(connection: Connection, old: int, new: int) -> int:
    """Write a row for each figure that differs between two runs of a day; how many there are."""
    # The same inputs give the same figures, or the program has changed.
    reason = _reason(connection, old, new) or OTHERWISE[0]
    rows = [
        {"run_id": new, "level": level, "reason": reason, **change}
        for level in WITH_FIGURES
        for change in _differences(connection, level, old, new)
    ]
    if rows:
        connection.execute(
            text(
                "INSERT INTO report_change_row (run_id, level, names, old, new, reason)"
                " VALUES (:run_id, :level, :names, :old, :new, :reason)"
            ),
            rows,
        )
    return len(rows)


def _reason(connection: Connection, old: int, new: int) -> str:
    """Which inputs of the two runs differ, in words."""
    statement = text(f"SELECT {', '.join(INPUTS)} FROM run WHERE run_id = :run_id")
    runs = (connection.execute(statement, {"run_id": run_id}) for run_id in (old, new))
    before, after = (run.mappings().one() for run in runs)
    changed = [name for name in INPUTS if before[name] != after[name]]
    return ", ".join(INPUTS[name][0] for name in changed)


def _differences(
    connection: Connection, level: str, old: int, new: int
) -> Iterator[dict[str, str | None]]:
    names = NAMES[level]
    before, after = (_figures(connection, level, run) for run in (old, new))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield {
                "names": json.dumps(dict(zip(names, key, strict=True)), ensure_ascii=False),
                "old": _told(before.get(key)),
                "new": _told(after.get(key)),
            }


def _figures(connection: Connection, level: str, run_id: int) -> Figures:
    names = NAMES[level]
    statement = f"SELECT {', '.join((*names, *FIGURES))} FROM {level}_figure WHERE run_id = :run_id"
    found = connection.execute(text(statement), {"run_id": run_id})
    return {tuple(row[: len(names)]): tuple(row[len(names) :]) for row in found}


def _told(figures: tuple[Any, ...] | None) -> str | None:
    return None if figures is None else to_json(dict(zip(FIGURES, figures, strict=True)))
