"""The results of a run in the database: the statements that read them, and their slices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

import numpy as np
from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.compute.sources.database_slices import DatabaseSlice, SliceReader
from sam_pipeline.spark_jobs.compute.sources.instances import Instances
from sam_pipeline.spark_jobs.compute.storage import Storage
from sam_pipeline.spark_jobs.inputs.announced import (
    TIME,
    VALUES,
    WINDOW,
    Exclusion,
    of_excluded_hosts,
)
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_number, day_start, periods
from sam_pipeline.spark_jobs.rules.statuses import STATUSES

# Results that arrive during the run are left to the next one.
_READ = "result_id <= :newest"
# Time and status in one number, as in compute/stretches.py.
_RANK = " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATUSES))
_PACKED = f"measured_at_s * 8 + CASE status {_RANK} END"
_JUDGED = (
    "instance_id, measured_at_s, host_name, service_flavour, metric_name, status, performance_data"
)


@dataclass(frozen=True)
class DatabaseResults:
    """The results of a period before `now`, on some of its days and of the days before it.

    Of the days before the period, only the last results are needed. Results of excluded monitoring
    hosts do not exist (availability rule 7). `newest` is the highest result_id when reading begins.
    """

    storage: Storage
    period: Period
    days: Sequence[date]
    exclusions: Iterable[Exclusion]
    now: int
    newest: int

    def slices(
        self,
        instances: Instances,
        thresholds: Sequence[Threshold],
        apart_s: int | None,
        cores: int,
    ) -> list[DatabaseSlice]:
        """The days in slices, at least one per core, and the days before the period.

        Those before are split by instances, not by time. With thresholds, which judge each result,
        they are read in full, in slices like the rest. See compute/stretches.py for `apart_s`.
        """
        if not self.days:
            return []
        reader = self._reader(instances, thresholds, apart_s)
        _, hosts = of_excluded_hosts(self.exclusions)
        names = sorted({threshold.metric_name for threshold in thresholds})
        parameters = {"newest": self.newest, **hosts, "names": json.dumps(names)}
        before = [] if thresholds else [day for day in self.days if day < self.period.first]
        whole = [day_start(day) for day in self.days if day not in before]
        per_day = -(-cores // max(len(whole), 1))
        slices = [
            DatabaseSlice(reader, {**parameters, "start": low, "end": high})
            for start in whole
            for end in [min(start + DAY_S, self.now)]
            for low, high in pairwise(
                start + (end - start) * number // per_day for number in range(per_day + 1)
            )
            if low < high
        ]
        for days in periods(before):
            last = {**parameters, "start": days.start, "end": days.end, "parts": cores}
            slices += [DatabaseSlice(reader, {**last, "part": n}) for n in range(cores)]
        return slices

    def excluded(self, connection: Connection) -> dict[int, int]:
        """The number of results from excluded monitoring hosts, by days since the epoch."""
        of_hosts, hosts = of_excluded_hosts(self.exclusions)
        if not of_hosts:
            return {}
        statement = (
            f"SELECT measured_at_s / {DAY_S}, count(*) FROM report_result"
            f" WHERE {WINDOW[self.storage.dialect]} AND {_READ} AND ({of_hosts})"
            f" GROUP BY measured_at_s / {DAY_S}"
        )
        window = {"start": self.period.start, "end": min(self.period.end, self.now)}
        rows = connection.execute(text(statement), {"newest": self.newest, **hosts, **window})
        ours = {day_number(day) for day in self.days}
        return {int(day): int(count) for day, count in rows if day in ours}

    def _reader(
        self, instances: Instances, thresholds: Sequence[Threshold], apart_s: int | None
    ) -> SliceReader:
        dialect, compiled = self.storage.dialect, self.storage.compiled
        hosts, _ = of_excluded_hosts(self.exclusions)
        exists = f"{_READ} AND NOT ({hosts})" if hosts else _READ
        results = f"FROM report_result AS r WHERE {WINDOW[dialect]} AND {exists}"
        judged = f"performance_data IS NOT NULL AND metric_name IN (SELECT {VALUES[dialect]})"
        plain = f"{results} AND NOT ({judged})" if thresholds else results
        last = (
            f"SELECT {_PACKED} {results} AND r.instance_id = i.instance_id"
            f" ORDER BY {TIME[dialect]} DESC, status_code DESC LIMIT 1"
        )
        in_order = np.argsort(instances.ids)
        return SliceReader(
            self.storage.connection,
            plain=compiled(f"SELECT instance_id, {TIME[dialect]}, status_code {plain}"),
            last=compiled(
                f"SELECT i.instance_id, ({last}) FROM report_instance AS i"
                " WHERE i.instance_id % :parts = :part"
            ),
            judged=compiled(f"SELECT {_JUDGED} {results} AND {judged}") if thresholds else None,
            thresholds=thresholds,
            ids=instances.ids[in_order],
            numbers=in_order,
            alone=instances.ids[instances.shared()],
            apart_s=apart_s,
        )


def newest_result(connection: Connection) -> int:
    """The highest result_id; 0 if there are no results."""
    return connection.scalar(text("SELECT result_id FROM report_newest_result")) or 0
