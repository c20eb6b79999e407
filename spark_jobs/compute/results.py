"""The results of a period as stretches, with the names of their instances."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlalchemy import text

from sam_pipeline.spark_jobs.compute.slices import SliceReader
from sam_pipeline.spark_jobs.compute.storage import Persist, Storage
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, VALUES, WINDOW, Announced
from sam_pipeline.spark_jobs.profiles.profile import Profile, Threshold
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.sql.database.engine import reading

# Results that arrive during the run are left to the next one.
_READ = "result_id <= :newest"
# Time and status in one number, as in compute/stretches.py.
_RANK = " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATUSES))
_PACKED = f"measured_at_s * 8 + CASE status {_RANK} END"
_JUDGED = (
    "instance_id, measured_at_s, host_name, service_flavour, metric_name, status, performance_data"
)
# The indexed time column.
_TIME = {"sqlite": "measured_at_s", "postgresql": "measured_at"}
# A report treats several FQANs of one VO as one instance.
_ALONE = """
SELECT instance_id FROM report_instance WHERE (endpoint_id, metric_id, vo_id) IN (
    SELECT endpoint_id, metric_id, vo_id FROM report_instance
    GROUP BY endpoint_id, metric_id, vo_id HAVING count(*) > 1
)
"""


class ReportResults:
    """The results of a period before `now`, read once for all profiles with the same thresholds.

    Results of excluded monitoring hosts do not exist (availability rule 7). `newest` is the highest
    result_id when reading begins.
    """

    def __init__(
        self,
        storage: Storage,
        announced: Announced,
        profiles: Sequence[Profile],
        now: int,
        persist: Persist,
    ) -> None:
        self.now = now
        self._storage = storage
        self._period = announced.period
        self._end = min(announced.period.end, now)
        self._persist = persist
        self._instances = storage.instances()
        self._read: dict[tuple[Threshold, ...], DataFrame] = {}
        # The shortest validity of any profile.
        self._apart_s = min((s for p in profiles for s in p.validities if s), default=None)
        hosts = [e for e in announced.exclusions if e.kind == MONITORING_HOST]
        self._of_excluded_hosts = " OR ".join(
            f"monitoring_host = :host_{n} AND measured_at_s BETWEEN {host.start} AND {host.end}"
            for n, host in enumerate(hosts)
        )
        with reading(storage.engine) as connection:
            newest = connection.scalar(text("SELECT result_id FROM report_newest_result"))
            self.newest: int = newest or 0
        self._parameters = {
            "newest": self.newest,
            **{f"host_{n}": host.monitoring_host for n, host in enumerate(hosts)},
        }

    def stretches(self, profile: Profile) -> DataFrame:
        """The stretches of the period and the last results before it (columns: see rows.py)."""
        thresholds = profile.thresholds
        if thresholds in self._read:
            return self._read[thresholds]
        dialect, compiled = self._storage.dialect, self._storage.compiled
        hosts = self._of_excluded_hosts
        exists = f"{_READ} AND NOT ({hosts})" if hosts else _READ
        results = f"FROM report_result AS r WHERE {WINDOW[dialect]} AND {exists}"
        judged = f"performance_data IS NOT NULL AND metric_name IN (SELECT {VALUES[dialect]})"
        plain = f"{results} AND NOT ({judged})" if thresholds else results
        last = (
            f"SELECT {_PACKED} {results} AND r.instance_id = i.instance_id"
            f" ORDER BY {_TIME[dialect]} DESC, status_code DESC LIMIT 1"
        )
        with reading(self._storage.engine) as connection:
            alone = list(connection.scalars(text(_ALONE)))
        reader = SliceReader(
            plain=compiled(f"SELECT instance_id, {_TIME[dialect]}, status_code {plain}"),
            count=compiled(f"SELECT count(*) {plain}"),
            last=compiled(
                f"SELECT i.instance_id, ({last}) FROM report_instance AS i"
                " WHERE i.instance_id % :parts = :part"
            ),
            judged=compiled(f"SELECT {_JUDGED} {results} AND {judged}") if thresholds else None,
            thresholds=thresholds,
            alone=alone,
            apart_s=self._apart_s,
        )
        names = sorted({threshold.metric_name for threshold in thresholds})
        parameters = {**self._parameters, "names": json.dumps(names)}
        slices = [{**part, **parameters} for part in self._slices(thresholds)]
        stretches = self._storage.stretches(reader, slices)
        named = stretches.join(F.broadcast(self._instances), on="instance_id")
        day = F.floor(F.shiftright("packed", 3) / DAY_S).cast("int").alias("day")
        self._read[thresholds] = self._persist(named.select(day, "*").drop("instance_id"))
        return self._read[thresholds]

    def excluded(self) -> dict[int, int]:
        """The number of results from excluded monitoring hosts, by days since the epoch."""
        if not self._of_excluded_hosts:
            return {}
        statement = (
            f"SELECT measured_at_s / {DAY_S}, count(*) FROM report_result"
            f" WHERE {WINDOW[self._storage.dialect]} AND {_READ} AND ({self._of_excluded_hosts})"
            f" GROUP BY measured_at_s / {DAY_S}"
        )
        window = {"start": self._period.start, "end": self._end}
        with reading(self._storage.engine) as connection:
            rows = connection.execute(text(statement), {**self._parameters, **window})
            return {int(day): int(count) for day, count in rows}

    def _slices(self, thresholds: Sequence[Threshold]) -> list[dict[str, int]]:
        """The period in slices of at most a day, at least one per core, and the day before it.

        Only the last results of the day before are needed, so it is split by instances, not by
        time. With thresholds, which judge each result, it is read in full, in slices like the rest.
        """
        start, cores = self._period.start, self._storage.parallelism
        first = start - DAY_S if thresholds else start
        days = list(pairwise([*range(first, self._end, DAY_S), self._end]))
        per_day = -(-cores // max(len(days), 1))
        edges = [
            [low + (high - low) * number // per_day for number in range(per_day + 1)]
            for low, high in days
        ]
        slices = [
            {"start": low, "end": high}
            for day in edges
            for low, high in pairwise(day)
            if low < high
        ]
        if thresholds:
            return slices
        before = {"start": start - DAY_S, "end": start, "parts": cores}
        return [*slices, *({**before, "part": part} for part in range(cores))]
