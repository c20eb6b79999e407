"""Brings results, topology, downtimes and exclusions together by site and day, ready to fold.

The frames, with times in epoch seconds and days since the epoch:
stretches  day, host_name, service_flavour, metric_name, vo, fqan, packed, last, results, check_1,
           check_2, newest (whether it is the last of its instance in a slice of the day)
tally      stretches added up: day, names, vo, fqan, results, last (packed), check_1, check_2
endpoints  ENDPOINTS; first_site is true for one of the sites that an endpoint belongs to
covers     COVERS: downtimes and exclusions that count
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sam_pipeline.spark_jobs.compute.folding import STRETCH
from sam_pipeline.spark_jobs.compute.storage import Persist, Storage
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
"""Why results do not count; results of excluded hosts are not even read."""

_INSTANCE = ("host_name", "service_flavour", "metric_name")
_ENDPOINT = ("day", "host_name", "service_flavour")


class FoldInput(NamedTuple):
    """The rows to fold (folding.ROWS, each site and day in one partition), and `counts` of them."""

    rows: DataFrame
    counts: Sequence[Mapping[str, Any]]


def bring_together(
    storage: Storage,
    stretches: DataFrame,
    expected: Sequence[DayExpectation],
    profile: Profile,
    persist: Persist,
) -> FoldInput:
    """Join the stretches with the endpoints and covers of their days.

    Counting runs Spark; the rows to fold are computed when they are folded.

    Raises:
        MixedVOs: several VOs measured one instance, and the profile names none.
    """
    endpoint_rows = []
    for day in expected:
        seen = set()
        for site, flavour, host in day.endpoints:
            is_first = (flavour, host) not in seen
            seen.add((flavour, host))
            endpoint_rows.append((day_number(day.day), site, flavour, host, is_first))
    endpoints = persist(storage.table(ENDPOINTS, endpoint_rows))
    tallied = tally(stretches)
    refuse_mixed_vos(tallied, endpoints, profile)
    counted = counts(tallied, endpoints, profile).toArrow().to_pylist()
    covers = [(day_number(day.day), *cover) for day in expected for cover in day.covers]
    rows = rows_to_fold(stretches, storage.table(COVERS, covers), endpoints, profile)
    partitions = storage.partitions(len(expected))
    return FoldInput(rows.repartition(partitions, "site", "day"), counted)


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

    Returns:
        day, read, a count for each of REASONS but the last, digest (of the results that count) and
        carried_digest (of the results that the next day may carry over). Digests do not depend on
        the order of the results.
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
    of_vo = tally.where(_is_of_vo(profile)).select("day", *_INSTANCE, "vo")
    carried = of_vo.withColumn("day", F.col("day") + 1)
    expected = F.broadcast(endpoints.where("first_site"))
    mixed = (
        of_vo.unionByName(carried)
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
            ' choose one in the profile (vo = "…")'
        )


def rows_to_fold(
    stretches: DataFrame, covers: DataFrame, endpoints: DataFrame, profile: Profile
) -> DataFrame:
    """The rows of folding.ROWS.

    They are stretches, the last results of the day before, one MISSING stretch for each expected
    instance that is older than all its results, and covers. Results of unexpected endpoints, or of
    metrics outside the profile, are left out.
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
    """One number that sorts by time, then by severity: within a second the worse comes later."""
    return at * 8 + status


def _is_of_vo(profile: Profile) -> Column:
    """Whether a result is of the profile's VO and FQAN (rule 2)."""
    vo = F.lit(True) if profile.vo is None else F.col("vo") == profile.vo
    return vo if profile.fqan is None else vo & (F.col("fqan") == profile.fqan)


def _is_in_profile(profile: Profile) -> Column:
    """Whether the profile names the metric for the row's flavour."""
    return F.array_contains(_metrics_of_flavour(profile), F.col("metric_name"))


def _metrics_of_flavour(profile: Profile) -> Column:
    """The profile's metrics for the row's flavour, possibly none."""
    pairs = [(F.lit(flavour.name), F.lit(list(flavour.metrics))) for flavour in profile.flavours]
    metrics_of = F.create_map(*[item for pair in pairs for item in pair])
    none = F.array().cast("array<string>")
    return F.coalesce(F.element_at(metrics_of, F.col("service_flavour")), none)


def _code(*columns: str) -> Column:
    """A hash of the row; a sum of hashes depends on the rows, but not on their order."""
    return F.xxhash64(*columns).cast("decimal(38,0)")
