"""Reads days from the database: the statements that read results, and their slices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.compute.planning import Instances
from sam_pipeline.spark_jobs.compute.run import DaysToRead, Storage
from sam_pipeline.spark_jobs.compute.sources.database_slices import DatabaseSlice, SliceReader
from sam_pipeline.spark_jobs.compute.stretches import NAMES
from sam_pipeline.spark_jobs.inputs.announced import (
    TIME,
    VALUES,
    WINDOW,
    Announced,
    Exclusion,
    of_excluded_hosts,
    read_announced,
)
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_number, day_start, periods
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.sql.database.engine import reading

_INSTANCES = f"SELECT instance_id, {', '.join(NAMES)} FROM report_instance"
# Results that arrive during the run are left to the next one.
_READ = "result_id <= :newest"
# Time and status in one number, as in compute/stretches.py.
_RANK = " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATUSES))
_PACKED = f"measured_at_s * 8 + CASE status {_RANK} END"
_JUDGED = (
    "instance_id, measured_at_s, host_name, service_flavour, metric_name, status, performance_data"
)


class DatabaseSource:
    """Some days in the database; results of excluded monitoring hosts do not exist (rule 7)."""

    def __init__(self, engine: Engine, read: DaysToRead, days: Sequence[date]) -> None:
        self.days = days
        self._read = read
        self._storage = Storage(engine)
        self._newest = 0
        self._exclusions: Sequence[Exclusion] = ()

    def announced(self, others: Mapping[date, Announced]) -> Mapping[date, Announced]:
        with reading(self._storage.engine) as connection:
            announced = read_announced(connection, self._read.period, self._read.look_back)
            newest = text("SELECT result_id FROM report_newest_result")
            self._newest = connection.scalar(newest) or 0
        return announced

    def instances(self, announced: Mapping[date, Announced]) -> pa.Table:
        first = self._read.period.first
        excluded = {e for day in self.days for e in announced[max(day, first)].exclusions}
        self._exclusions = list(excluded)
        with reading(self._storage.engine) as connection:
            rows = connection.execute(text(_INSTANCES)).all()
        ids, *names = zip(*rows, strict=True) if rows else [()] * (1 + len(NAMES))
        texts = [pa.array(column, pa.string()) for column in names]
        return pa.table([pa.array(ids, pa.int64()), *texts], ["instance_id", *NAMES])

    def slices(
        self, instances: Instances, thresholds: Sequence[Threshold], apart_s: int | None, cores: int
    ) -> list[DatabaseSlice]:
        """The days in slices, and the days before the period.

        Those before are split by instances, not by time. With thresholds, which judge each result,
        they are read in full, in slices like the rest.
        """
        reader = self._reader(instances, thresholds, apart_s)
        _, hosts = of_excluded_hosts(self._exclusions)
        names = sorted({threshold.metric_name for threshold in thresholds})
        parameters = {"newest": self._newest, **hosts, "names": json.dumps(names)}
        first = self._read.period.first
        before = [] if thresholds else [day for day in self.days if day < first]
        whole = [day_start(day) for day in self.days if day not in before]
        per_day = -(-cores // max(len(whole), 1))
        slices = [
            DatabaseSlice(reader, {**parameters, "start": low, "end": high})
            for start in whole
            for end in [min(start + DAY_S, self._read.now)]
            for low, high in pairwise(
                start + (end - start) * number // per_day for number in range(per_day + 1)
            )
            if low < high
        ]
        for days in periods(before):
            last = {**parameters, "start": days.start, "end": days.end, "parts": cores}
            slices += [DatabaseSlice(reader, {**last, "part": n}) for n in range(cores)]
        return slices

    def excluded(self) -> dict[int, int]:
        of_hosts, hosts = of_excluded_hosts(self._exclusions)
        if not of_hosts:
            return {}
        statement = (
            f"SELECT measured_at_s / {DAY_S}, count(*) FROM report_result"
            f" WHERE {WINDOW[self._storage.dialect]} AND {_READ} AND ({of_hosts})"
            f" GROUP BY measured_at_s / {DAY_S}"
        )
        period, now = self._read.period, self._read.now
        window = {"start": period.start, "end": min(period.end, now), "newest": self._newest}
        ours = {day_number(day) for day in self.days}
        with reading(self._storage.engine) as connection:
            rows = connection.execute(text(statement), {**hosts, **window})
            return {int(day): int(count) for day, count in rows if day in ours}

    def newest_result(self, day: date) -> int:
        return self._newest

    def version(self, day: date) -> None:
        return None

    def _reader(
        self, instances: Instances, thresholds: Sequence[Threshold], apart_s: int | None
    ) -> SliceReader:
        dialect, compiled = self._storage.dialect, self._storage.compiled
        hosts, _ = of_excluded_hosts(self._exclusions)
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
            self._storage.connection,
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
