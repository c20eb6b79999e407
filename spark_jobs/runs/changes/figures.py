"""How a recomputed day differs from the figures published before, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.schema.program.command import to_json
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.levels import FIGURES, NAMES, WITH_FIGURES
from sam_pipeline.spark_jobs.runs.changes.reasons import TRACED, TracedChanges

INPUTS = {
    "results_digest": ("results changed", "the results that count: some arrived late, or are gone"),
    "topology_digest": ("topology changed", "the endpoints or groups expected on that day"),
    "downtimes_digest": ("downtimes changed", "the announced downtimes that count"),
    "exclusions_digest": ("exclusions changed", "the exclusions that overlap the day"),
    "profile_digest": ("profile changed", "the content of the profile, not only its layout"),
    "until": ("the day went on", "the end of the data: the earlier run saw an open day"),
    "software_version": ("software changed", "the version of these programs"),
}
"""The inputs of a run: the reason to record if one differs, and what differs then."""
OTHERWISE = ("computed differently", "none of these: please report it as a bug")


def note_changes(connection: Connection, old: int, new: int, profile: Profile) -> int:
    """Record each figure that differs between two runs of a day, and return how many do.

    The reasons of a figure are the inputs that may have changed it.
    """
    statement = text(f"SELECT {', '.join(INPUTS)} FROM run WHERE run_id = :run_id")
    old_inputs, new_inputs = (
        connection.execute(statement, {"run_id": run_id}).mappings().one() for run_id in (old, new)
    )
    changed = [name for name in INPUTS if old_inputs[name] != new_inputs[name]]
    traced: TracedChanges | None = None
    rows = []
    for level in WITH_FIGURES:
        width = len(NAMES[level])
        columns = ", ".join((*NAMES[level], *FIGURES))
        of_level = text(
            f"SELECT {columns} FROM figure WHERE run_id = :run_id AND level = '{level}'"
        )
        before, after = (
            {
                tuple(row[:width]): tuple(row[width:])
                for row in connection.execute(of_level, {"run_id": run_id})
            }
            for run_id in (old, new)
        )
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                # With a single reason there is nothing to trace.
                if len(changed) > 1 and traced is None:
                    traced = TracedChanges(connection, old, new, profile)
                names = json.dumps(dict(zip(NAMES[level], key, strict=True)), ensure_ascii=False)
                rows.append(
                    {
                        "run_id": new,
                        "old_run_id": old,
                        "level": level,
                        "names": names,
                        "old": _as_json(before.get(key)),
                        "new": _as_json(after.get(key)),
                        "reason": _reason(changed, traced, level, key),
                    }
                )
    if rows:
        connection.execute(
            text(
                "INSERT INTO report_change_row"
                " (run_id, old_run_id, level, names, old, new, reason)"
                " VALUES (:run_id, :old_run_id, :level, :names, :old, :new, :reason)"
            ),
            rows,
        )
    return len(rows)


def _reason(
    changed: Sequence[str], traced: TracedChanges | None, level: str, names: tuple[str, ...]
) -> str:
    """The reasons of one figure, of the inputs that changed on its day."""
    here = changed
    if traced is not None:
        found = traced.changed(level, names)
        # What cannot be traced any further stays a reason of every figure.
        here = [name for name in changed if name not in TRACED or name in found] or changed
    # The same inputs give the same figures.
    return ", ".join(INPUTS[name][0] for name in here) or OTHERWISE[0]


def _as_json(figures: tuple[Any, ...] | None) -> str | None:
    return None if figures is None else to_json(dict(zip(FIGURES, figures, strict=True)))
