"""Performance data of the results that reports read, such as response times, by day.

A month of a large grid has millions of results. Of more than `MAX_RESULTS`, one in N is read
that about this number is left; their ids decide which, so the same results give the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median

from sqlalchemy import Connection, text

from sam_pipeline.schema.records.performance_data import measured
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, WINDOW, Exclusion
from sam_pipeline.spark_jobs.inputs.expected import Endpoint
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start

MAX_RESULTS = 100_000

# Results with consecutive ids are often of one instance each, in turn, so ids are mixed first.
_CONDITION = "{window} AND result_id <= :newest"
_SAMPLE = "result_id * 7919 % 104729 % :one_in = 0 AND performance_data <> ''"


@dataclass(frozen=True, order=True)
class Measure:
    """What the values of one label of a metric are, at all endpoints of a flavour."""

    service_flavour: str
    metric_name: str
    label: str
    unit: str


@dataclass(frozen=True)
class DayValues:
    """The smallest value of a day, the median, and the largest."""

    day: date
    least: float
    median: float
    most: float


@dataclass(frozen=True)
class DayRead:
    """What a report has read of a day: results before `end` (epoch s) up to `newest_result`."""

    day: date
    end: int
    newest_result: int
    exclusions: Sequence[Exclusion]


Performance = Mapping[str, Mapping[Measure, Sequence[DayValues]]]
"""By site; the days of a measure are in order."""


@dataclass(frozen=True)
class MonthPerformance:
    """The values of all sites; `one_in` results was read."""

    of_site: Performance
    one_in: int


def read_performance(
    connection: Connection,
    profile: Profile,
    endpoints: Iterable[Endpoint],
    days: Sequence[DayRead],
    max_results: int = MAX_RESULTS,
) -> MonthPerformance:
    """The values of the metrics of the profile at the endpoints, by site."""
    numbers, one_in = _read_numbers(connection, days, max_results)
    instances = _instances(connection, profile)
    sites: dict[tuple[str, str], list[str]] = {}
    for endpoint in endpoints:
        of_endpoint = (endpoint.service_flavour, endpoint.host_name)
        sites.setdefault(of_endpoint, []).append(endpoint.site)
    values: dict[str, dict[Measure, dict[date, list[float]]]] = {}
    for (instance_id, day, label, unit), of_instance in numbers.items():
        flavour, host, metric = instances.get(instance_id, ("", "", ""))
        measure = Measure(flavour, metric, label, unit)
        for site in sites.get((flavour, host), ()):
            of_measure = values.setdefault(site, {}).setdefault(measure, {})
            of_measure.setdefault(day, []).extend(of_instance)
    of_site = {
        site: {
            measure: [
                DayValues(day, min(of_day), median(of_day), max(of_day))
                for day, of_day in sorted(of_measure.items())
            ]
            for measure, of_measure in sorted(measures.items())
        }
        for site, measures in values.items()
    }
    return MonthPerformance(of_site, one_in)


def _read_numbers(
    connection: Connection, days: Sequence[DayRead], max_results: int
) -> tuple[dict[tuple[int, date, str, str], list[float]], int]:
    """The numbers by instance, day, label and unit, and which part of the results was read."""
    period = Period(days[0].day, days[-1].day)
    newest = max(day.newest_result for day in days)
    bounds = {"start": period.start, "end": period.end, "newest": newest}
    condition = _CONDITION.format(window=WINDOW[connection.dialect.name])
    count = connection.scalar(text(f"SELECT count(*) FROM report_result WHERE {condition}"), bounds)
    one_in = -(-int(count or 0) // max_results) or 1
    rows = connection.execute(
        text(
            "SELECT instance_id, measured_at_s, result_id, coalesce(monitoring_host, ''),"
            f" performance_data FROM report_result WHERE {condition} AND {_SAMPLE}"
        ),
        {**bounds, "one_in": one_in},
    )
    day_of = {day_start(day.day): day for day in days}
    numbers: dict[tuple[int, date, str, str], list[float]] = {}
    for instance_id, at, result_id, monitoring_host, performance_data in rows:
        if (day := day_of.get(at - at % DAY_S)) and _counts(day, at, result_id, monitoring_host):
            for label, number, unit in measured(performance_data):
                numbers.setdefault((instance_id, day.day, label, unit), []).append(float(number))
    return numbers, one_in


def _instances(connection: Connection, profile: Profile) -> dict[int, tuple[str, str, str]]:
    """The flavour, host and metric of each instance that counts in the profile (rule 2)."""
    rows = connection.execute(
        text(
            "SELECT instance_id, service_flavour, host_name, metric_name, vo, fqan"
            " FROM report_instance"
        )
    )
    metrics_of = {flavour.name: frozenset(flavour.metrics) for flavour in profile.flavours}
    return {
        instance_id: (flavour, host, metric)
        for instance_id, flavour, host, metric, vo, fqan in rows
        if metric in metrics_of.get(flavour, ())
        and profile.vo in (None, vo)
        and profile.fqan in (None, fqan)
    }


def _counts(day: DayRead, at: int, result_id: int, monitoring_host: str) -> bool:
    """Whether the report has read a result, and its monitoring host was not excluded (rule 7)."""
    return (
        at < day.end
        and result_id <= day.newest_result
        and not any(
            exclusion.kind == MONITORING_HOST
            and exclusion.monitoring_host == monitoring_host
            and exclusion.start <= at <= exclusion.end
            for exclusion in day.exclusions
        )
    )
