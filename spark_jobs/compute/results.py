"""The results of a period: the statements that read them, and the slices they are read in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.compute.slices import SliceReader
from sam_pipeline.spark_jobs.compute.storage import Storage
from sam_pipeline.spark_jobs.inputs.announced import (
    TIME,
    VALUES,
    WINDOW,
    Announced,
    of_excluded_hosts,
)
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.shares import Integers
from sam_pipeline.spark_jobs.rules.statuses import STATUSES

# Results that arrive during the run are left to the next one.
_READ = "result_id <= :newest"
# Time and status in one number, as in compute/stretches.py.
_RANK = " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATUSES))
_PACKED = f"measured_at_s * 8 + CASE status {_RANK} END"
_JUDGED = (
    "instance_id, measured_at_s, host_name, service_flavour, metric_name, status, performance_data"
)


class ReportResults:
    """The results of a period before `now`.

    Results of excluded monitoring hosts do not exist (availability rule 7). `newest` is the highest
    result_id when reading begins.
    """

    def __init__(self, storage: Storage, announced: Announced, now: int, newest: int) -> None:
        self.newest = newest
        self._storage = storage
        self._start = announced.period.start
        self._end = min(announced.period.end, now)
        self._of_excluded_hosts, hosts = of_excluded_hosts(announced.exclusions)
        self._parameters: dict[str, Any] = {"newest": newest, **hosts}

    def reader(
        self, thresholds: Sequence[Threshold], alone: Integers, apart_s: int | None
    ) -> SliceReader:
        """The reader of the slices; see compute/stretches.py for `alone` and `apart_s`."""
        dialect, compiled = self._storage.dialect, self._storage.compiled
        hosts = self._of_excluded_hosts
        exists = f"{_READ} AND NOT ({hosts})" if hosts else _READ
        results = f"FROM report_result AS r WHERE {WINDOW[dialect]} AND {exists}"
        judged = f"performance_data IS NOT NULL AND metric_name IN (SELECT {VALUES[dialect]})"
        plain = f"{results} AND NOT ({judged})" if thresholds else results
        last = (
            f"SELECT {_PACKED} {results} AND r.instance_id = i.instance_id"
            f" ORDER BY {TIME[dialect]} DESC, status_code DESC LIMIT 1"
        )
        return SliceReader(
            plain=compiled(f"SELECT instance_id, {TIME[dialect]}, status_code {plain}"),
            last=compiled(
                f"SELECT i.instance_id, ({last}) FROM report_instance AS i"
                " WHERE i.instance_id % :parts = :part"
            ),
            judged=compiled(f"SELECT {_JUDGED} {results} AND {judged}") if thresholds else None,
            thresholds=thresholds,
            alone=alone,
            apart_s=apart_s,
        )

    def slices(self, thresholds: Sequence[Threshold], cores: int) -> list[dict[str, Any]]:
        """The period in slices of at most a day, at least one per core, and the day before it.

        Only the last results of the day before are needed, so it is split by instances, not by
        time. With thresholds, which judge each result, it is read in full, in slices like the rest.
        """
        start = self._start
        names = sorted({threshold.metric_name for threshold in thresholds})
        parameters = {**self._parameters, "names": json.dumps(names)}
        first = start - DAY_S if thresholds else start
        days = list(pairwise([*range(first, self._end, DAY_S), self._end]))
        per_day = -(-cores // max(len(days), 1))
        slices = [
            {**parameters, "start": low, "end": high}
            for day_start, day_end in days
            for low, high in pairwise(
                day_start + (day_end - day_start) * number // per_day
                for number in range(per_day + 1)
            )
            if low < high
        ]
        if not thresholds:
            before = {**parameters, "start": start - DAY_S, "end": start, "parts": cores}
            slices += [{**before, "part": part} for part in range(cores)]
        return slices

    def excluded(self, connection: Connection) -> dict[int, int]:
        """The number of results from excluded monitoring hosts, by days since the epoch."""
        if not self._of_excluded_hosts:
            return {}
        statement = (
            f"SELECT measured_at_s / {DAY_S}, count(*) FROM report_result"
            f" WHERE {WINDOW[self._storage.dialect]} AND {_READ} AND ({self._of_excluded_hosts})"
            f" GROUP BY measured_at_s / {DAY_S}"
        )
        window = {"start": self._start, "end": self._end}
        rows = connection.execute(text(statement), {**self._parameters, **window})
        return {int(day): int(count) for day, count in rows}


def newest_result(connection: Connection) -> int:
    """The highest result_id; 0 if there are no results."""
    return connection.scalar(text("SELECT result_id FROM report_newest_result")) or 0
