"""The newest result of each instance that counts for a report, for its status now (rules 2 to 7).

Nearly always that is the newest status which the database keeps for each instance. Where it may
differ, the results themselves are read: if a threshold may judge them, if the profile names an
FQAN, if the newest result is from the future, or may come from an excluded monitoring host.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, bindparam, text

from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    TIME,
    VALUES,
    WINDOW,
    Exclusion,
    of_excluded_hosts,
)
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.profiles.thresholds import verdict_of
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start, moment
from sam_pipeline.spark_jobs.rules.statuses import STATUSES

_NAMES = "service_flavour, host_name, metric_name, vo"

Instance = tuple[str, str, str]
"""flavour, host, metric"""
InstanceOfVO = tuple[str, str, str, str]


class Newest(NamedTuple):
    """The newest result of an instance; `since` when its status holds (epoch s), if known."""

    status: str
    measured: int
    since: int | None
    summary: str
    publisher: str


def read_newest(
    connection: Connection,
    profile: Profile,
    exclusions: Iterable[Exclusion],
    now: int,
    hosts: Sequence[str] | None = None,
) -> dict[Instance, dict[str, Newest]]:
    """The newest results by instance and VO, those included that are too old to count.

    Only results of `hosts`, if given, have their summaries and publishers.
    """
    metrics = sorted({metric for flavour in profile.flavours for metric in flavour.metrics})
    conditions = ["metric_name IN :metrics"]
    if profile.vo is not None:
        conditions.append("vo = :vo")
    if hosts is not None:
        conditions.append("host_name IN :hosts")
    where = " AND ".join(conditions)
    parameters = {"metrics": metrics, "vo": profile.vo, "hosts": hosts or []}
    newest: dict[InstanceOfVO, Newest] = {}
    if profile.fqan is None:
        texts = "'', ''" if hosts is None else "coalesce(summary, ''), coalesce(publisher, '')"
        statement = (
            f"SELECT {_NAMES}, status, measured_at_s, since_s, {texts} FROM report_status"
            f" WHERE {where}"
        )
        for row in _rows(connection, statement, parameters):
            newest[row[0], row[1], row[2], row[3]] = Newest(*row[4:])
    judged = {threshold.metric_name for threshold in profile.thresholds}
    hidden = [(e.start, e.end) for e in exclusions if e.kind == MONITORING_HOST]
    doubtful = {
        names
        for names, last in newest.items()
        if names[2] in judged
        or last.measured > now
        or any(start <= last.measured <= end for start, end in hidden)
    }
    if doubtful or profile.fqan is not None:
        statement = f"SELECT instance_id, fqan, {_NAMES} FROM report_instance WHERE {where}"
        names_of: dict[int, InstanceOfVO] = {
            number: (flavour, host, metric, vo)
            for number, fqan, flavour, host, metric, vo in _rows(connection, statement, parameters)
            if (fqan == profile.fqan or (flavour, host, metric, vo) in doubtful)
        }
        for names in doubtful:
            del newest[names]
        counting = _counting(connection, profile, exclusions, now, names_of)
        for number, result in counting:
            names = names_of[number]
            if names not in newest or _rank(result) > _rank(newest[names]):
                newest[names] = result
    by_instance: dict[Instance, dict[str, Newest]] = {}
    for (flavour, host, metric, vo), last in newest.items():
        by_instance.setdefault((flavour, host, metric), {})[vo] = last
    return by_instance


def _counting(
    connection: Connection,
    profile: Profile,
    exclusions: Iterable[Exclusion],
    now: int,
    instances: Mapping[int, InstanceOfVO],
) -> Iterator[tuple[int, Newest]]:
    """The results of the newest second of each instance that has one, judged by the thresholds."""
    dialect = connection.dialect.name
    excluded, of_hosts = of_excluded_hosts(exclusions)
    exists = f"{WINDOW[dialect]} AND NOT ({excluded})" if excluded else WINDOW[dialect]
    # Each instance costs one index lookup for its newest second, and one for the results there.
    statement = (
        f"WITH given AS (SELECT {VALUES[dialect]}), newest AS MATERIALIZED ("
        f" SELECT CAST(value AS integer) AS number, (SELECT {TIME[dialect]} FROM report_result"
        f" WHERE instance_id = CAST(value AS integer) AND {exists}"
        f" ORDER BY {TIME[dialect]} DESC LIMIT 1) AS second FROM given)"
        " SELECT number, status, performance_data, measured_at_s, coalesce(summary, ''),"
        " coalesce(publisher, '') FROM newest"
        f" JOIN report_result ON instance_id = number AND {TIME[dialect]} = second AND {exists}"
    )
    start = day_start(moment(now).date()) - profile.look_back * DAY_S
    window = {**of_hosts, "start": start, "end": now + 1}
    rows = _rows(connection, statement, {**window, "names": json.dumps(list(instances))})
    for number, status, performance_data, measured, *texts in rows:
        flavour, host, metric, _ = instances[number]
        verdict = verdict_of(profile.thresholds, host, flavour, metric, status, performance_data)
        yield number, Newest(verdict.status, measured, None, *texts)


def _rank(result: Newest) -> tuple[int, int]:
    """Of two results the newer one counts, and at one second the worse (rule 4)."""
    return result.measured, STATUSES.index(result.status)


def _rows(
    connection: Connection, statement: str, parameters: Mapping[str, object]
) -> Iterable[Any]:
    used = {name: value for name, value in parameters.items() if f":{name}" in statement}
    lists: list[BindParameter[Any]] = [
        bindparam(name, expanding=True) for name, value in used.items() if isinstance(value, list)
    ]
    return connection.execute(text(statement).bindparams(*lists), used)
