"""The results a run has read of some hosts, and what each of them counted as."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.records.performance_data import Measured
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, WINDOW, Exclusion, Result
from sam_pipeline.spark_jobs.profiles.profile import Profile, Threshold
from sam_pipeline.spark_jobs.profiles.thresholds import verdict_of
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.runs.published import Run

Instance = tuple[str, str, str]
"""flavour, host, metric"""

# Many numbers in one statement are slow to plan; so few make a site of common size one statement.
_MOST_INSTANCES = 1000

_INSTANCES = (
    "SELECT instance_id, host_name, service_flavour, metric_name, vo, fqan FROM report_instance"
    " WHERE host_name IN :hosts"
)
# Only what is told: the names are known, so the database need not look them up per result.
_RESULTS = (
    "SELECT instance_id, measured_at_s, status, coalesce(summary, ''), coalesce(message_id, ''),"
    " coalesce(performance_data, ''), coalesce(monitoring_host, ''), result_id FROM report_result"
    " WHERE instance_id IN :instances AND {window} AND result_id <= :newest"
)


@dataclass(frozen=True)
class JudgedResult(Result):
    """A result that a threshold gave another status (availability rule 6): `status` is that."""

    original_status: str
    threshold: Threshold
    value: Measured


class Ignored(NamedTuple):
    """A result that does not exist for the report, as its monitoring host was excluded (rule 7)."""

    result: Result
    exclusion: Exclusion


@dataclass(frozen=True)
class InstanceResults:
    """The results of a metric of an endpoint, oldest first: those that count, and the others."""

    counted: Sequence[Result] = ()
    ignored: Sequence[Ignored] = ()


def read_results(connection: Connection, run: Run, hosts: Iterable[str]) -> list[Result]:
    """What the run has read of the hosts, from the day before on, oldest first."""
    names = _instances(connection, run.profile, sorted(set(hosts)))
    found = []
    for instances in _portions(sorted(names)):
        found += _results(connection, run, instances)
    return [_result(names[row[0]], row) for row in sorted(found, key=lambda row: (row[1], row[7]))]


def by_instance(
    results: Iterable[Result], profile: Profile, exclusions: Sequence[Exclusion]
) -> dict[Instance, InstanceResults]:
    """The results of each instance, as they count in the profile under the exclusions."""
    of_host: dict[str, list[Exclusion]] = {}
    for each in exclusions:
        if each.kind == MONITORING_HOST:
            of_host.setdefault(each.monitoring_host, []).append(each)
    judged = _judge(profile)
    found: dict[Instance, tuple[list[Result], list[Ignored]]] = {}
    for result in results:
        key = (result.service_flavour, result.host_name, result.metric_name)
        counted, ignored = found.setdefault(key, ([], []))
        exclusion = _exclusion_of(result, of_host.get(result.monitoring_host, ()))
        if exclusion is None:
            counted.append(judged(result))
        else:
            ignored.append(Ignored(result, exclusion))
    return {key: InstanceResults(*lists) for key, lists in found.items()}


def _instances(
    connection: Connection, profile: Profile, hosts: Sequence[str]
) -> Mapping[int, Instance]:
    """Number and names of those that count in the profile (rule 2)."""
    if not hosts:
        return {}
    statement = text(_INSTANCES).bindparams(bindparam("hosts", expanding=True))
    return {
        instance_id: (flavour, host, metric)
        for instance_id, host, flavour, metric, vo, fqan in connection.execute(
            statement, {"hosts": hosts}
        )
        if profile.vo in (None, vo)
        and profile.fqan in (None, fqan)
        and metric in profile.metrics_of(flavour)
    }


def _results(connection: Connection, run: Run, instances: Sequence[int]) -> list[tuple[Any, ...]]:
    window = WINDOW[connection.dialect.name]
    statement = text(_RESULTS.format(window=window)).bindparams(
        bindparam("instances", expanding=True)
    )
    bounds = {
        "start": day_start(run.day) - DAY_S,
        "end": day_start(run.day) + DAY_S,
        "newest": run.newest_result,
    }
    found = connection.execute(statement, {"instances": instances, **bounds})
    return [tuple(row) for row in found]


def _result(names: Instance, row: tuple[Any, ...]) -> Result:
    flavour, host, metric = names
    return Result(host, flavour, metric, *row[1:7])


def _portions(items: Sequence[int]) -> Iterator[Sequence[int]]:
    return (items[at : at + _MOST_INSTANCES] for at in range(0, len(items), _MOST_INSTANCES))


def _judge(profile: Profile) -> Callable[[Result], Result]:
    metrics = {rule.metric_name for rule in profile.thresholds}

    def judged(result: Result) -> Result:
        if result.metric_name not in metrics:
            return result
        verdict = verdict_of(
            profile.thresholds,
            result.host_name,
            result.service_flavour,
            result.metric_name,
            result.status,
            result.performance_data,
        )
        if verdict.threshold is None or verdict.value is None:
            return result
        return JudgedResult(
            **{**vars(result), "status": verdict.status},
            original_status=result.status,
            threshold=verdict.threshold,
            value=verdict.value,
        )

    return judged


def _exclusion_of(result: Result, exclusions: Iterable[Exclusion]) -> Exclusion | None:
    """The exclusion that makes a result not exist: measured in [start, end]."""
    return next((each for each in exclusions if each.start <= result.measured <= each.end), None)
