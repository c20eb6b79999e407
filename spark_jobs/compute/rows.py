"""Turns what the database holds into the rows that timelines are made of.

The frames, with times in epoch seconds and days since the epoch:
stretches  day, host_name, service_flavour, metric_name, vo, fqan, packed, last, results, check_1,
           check_2, newest (whether it is the last of its instance in a slice of the day)
tally      stretches added up: day, names, vo, fqan, results, last (packed), check_1, check_2
endpoints  ENDPOINTS; first_site is true for one of the sites that an endpoint belongs to
covers     COVERS: downtimes and exclusions that count
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sam_pipeline.spark_jobs.compute.folding import STRETCH
from sam_pipeline.spark_jobs.errors import MixedVOs
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_number
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, METRIC, NAMES
from sam_pipeline.spark_jobs.rules.statuses import MISSING

ENDPOINTS = "day int, site string, service_flavour string, host_name string, first_site boolean"
COVERS = (
    "day int, level string, site string, service_flavour string, host_name string,"
    " metric_name string, start bigint, end bigint"
)

NOT_IN_PROFILE = "not-in-profile"
OTHER_VO = "other-vo"
NOT_IN_TOPOLOGY = "not-in-topology"
EXCLUDED_HOST = "excluded-monitoring-host"
REASONS = (NOT_IN_PROFILE, OTHER_VO, NOT_IN_TOPOLOGY, EXCLUDED_HOST)
"""Why results do not count; those of excluded hosts are not even read."""

_INSTANCE = ("host_name", "service_flavour", "metric_name")
_ENDPOINT = ("day", "host_name", "service_flavour")


def endpoint_rows(expected: Iterable[DayExpectation]) -> list[tuple[object, ...]]:
    """The rows of ENDPOINTS."""
    rows = []
    for day in expected:
        seen = set()
        for site, *endpoint in day.endpoints:
            key = tuple(endpoint)
            rows.append((day_number(day.day), site, *key, key not in seen))
            seen.add(key)
    return rows


def cover_rows(expected: Iterable[DayExpectation]) -> list[tuple[object, ...]]:
    """The rows of COVERS."""
    return [(day_number(day.day), *cover) for day in expected for cover in day.covers]


def tally(stretches: DataFrame) -> DataFrame:
    """Results added up by day and instance, which does not depend on how they were sliced."""
    return stretches.groupBy("day", *_INSTANCE, "vo", "fqan").agg(
        F.sum("results").alias("results"),
        F.max(_last()).alias("last"),
        F.sum("check_1").alias("check_1"),
        F.sum("check_2").alias("check_2"),
    )


def counts(tally: DataFrame, endpoints: DataFrame, profile: Profile) -> DataFrame:
    """What a run records about the results of each day.

    Result: day, read, a count for each of REASONS but the last, digest (of results that count) and
    carried_digest (of results that the next day may carry over). Digests do not depend on order.
    """
    known = endpoints.where("first_site").select(*_ENDPOINT, F.lit(True).alias("expected"))
    reason = (
        F.when(~_is_in_profile(profile), NOT_IN_PROFILE)
        .when(~_is_of_vo(profile), OTHER_VO)
        .when(F.col("expected").isNull(), NOT_IN_TOPOLOGY)
    )
    judged = tally.join(F.broadcast(known), on=list(_ENDPOINT), how="left")
    judged = judged.withColumn("reason", reason)
    counting = F.col("reason").isNull()
    carried = counting | (F.col("reason") == NOT_IN_TOPOLOGY)
    names = [*_INSTANCE, "vo", "fqan"]
    code = _code(*names, "results", "last", "check_1", "check_2")
    return judged.groupBy("day").agg(
        F.sum("results").alias("read"),
        *[
            F.sum(F.when(F.col("reason") == reason, F.col("results"))).alias(reason)
            for reason in REASONS[:-1]
        ],
        F.sum(F.when(counting, code)).alias("digest"),
        F.sum(F.when(carried, _code(*names, "last"))).alias("carried_digest"),
    )


def refuse_mixed_vos(tally: DataFrame, endpoints: DataFrame, profile: Profile) -> None:
    """Check that each instance has results of one VO, unless the profile names one.

    Raises:
        MixedVOs: several VOs measured one instance on a day or the day before.
    """
    if profile.vo is not None:
        return
    own = tally.where(_is_of_vo(profile)).select("day", *_INSTANCE, "vo")
    carried = own.withColumn("day", F.col("day") + 1)
    expected = F.broadcast(endpoints.where("first_site"))
    mixed = (
        own.unionByName(carried)
        .join(expected, on=list(_ENDPOINT), how="left_semi")
        .where(_is_in_profile(profile))
        .groupBy("day", *_INSTANCE)
        .agg(F.array_sort(F.collect_set("vo")).alias("vos"))
        .where(F.size("vos") > 1)
        .orderBy("day", *_INSTANCE)
    )
    examples = [
        f"{row['host_name']} {row['service_flavour']} {row['metric_name']}: "
        + ", ".join(vo or "no VO" for vo in row["vos"])
        for row in mixed.limit(3).toArrow().to_pylist()
    ]
    if examples:
        raise MixedVOs(
            f"results of several VOs for one instance ({'; '.join(examples)}):"
            ' name one in the profile (vo = "…")'
        )


def rows_to_fold(
    stretches: DataFrame, covers: DataFrame, endpoints: DataFrame, profile: Profile
) -> DataFrame:
    """The rows of folding.ROWS.

    They are stretches, the last results of the day before, one MISSING stretch older than all for
    each expected instance, and covers. Results that no endpoint and no metric of the profile
    expects are left out.
    """
    measured = stretches.where(_is_of_vo(profile))
    carried = measured.where("newest").select(
        (F.col("day") + 1).alias("day"), *_INSTANCE, _last().alias("packed"), "last"
    )
    expected = (
        measured.select("day", *_INSTANCE, "packed", "last")
        .unionByName(carried)
        .join(F.broadcast(endpoints), on=list(_ENDPOINT), how="inner")
        .where(_is_in_profile(profile))
    )
    never = F.col("day").cast("bigint") * DAY_S - DAY_S - 1
    absent = endpoints.select(
        "day",
        *NAMES[ENDPOINT],
        F.explode(_metrics_of_flavour(profile)).alias("metric_name"),
        _packed(never, F.lit(MISSING)).alias("packed"),
        never.alias("last"),
    )
    names = ("day", *NAMES[METRIC])
    columns = (*names, "packed", "last")
    of_stretches = (
        expected.select(*columns)
        .unionByName(absent.select(*columns))
        .select(
            F.lit(STRETCH).alias("level"),
            *names,
            F.col("packed").alias("start"),
            F.col("last").alias("end"),
        )
    )
    return of_stretches.unionByName(covers)


def _last() -> Column:
    """The last second of a stretch with its status, packed."""
    return _packed(F.col("last"), F.col("packed").bitwiseAND(F.lit(7)))


def _packed(at: Column, status: Column) -> Column:
    """One number that orders by time, then by harm: of two at one second the worse is later."""
    return at * 8 + status


def _is_of_vo(profile: Profile) -> Column:
    """Whether a result is of the profile's VO and FQAN (rule 2)."""
    vo = F.lit(True) if profile.vo is None else F.col("vo") == profile.vo
    return vo if profile.fqan is None else vo & (F.col("fqan") == profile.fqan)


def _is_in_profile(profile: Profile) -> Column:
    """Whether the metric is one of the profile's for the flavour."""
    return F.array_contains(_metrics_of_flavour(profile), F.col("metric_name"))


def _metrics_of_flavour(profile: Profile) -> Column:
    """The profile's metrics for the row's flavour; an empty list if it names none."""
    pairs = [(F.lit(flavour.name), F.lit(list(flavour.metrics))) for flavour in profile.flavours]
    metrics_of = F.create_map(*[item for pair in pairs for item in pair])
    none = F.array().cast("array<string>")
    return F.coalesce(F.element_at(metrics_of, F.col("service_flavour")), none)


def _code(*columns: str) -> Column:
    """A number for the row; the sum over rows changes with them, but not with their order."""
    return F.xxhash64(*columns).cast("decimal(38,0)")
