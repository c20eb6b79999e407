"""From what the database holds to the rows that the timelines are made of.

Tables, times in epoch seconds and days since the epoch:
stretches  day, host_name, service_flavour, metric_name, vo, fqan, packed, last, results, check_1,
           check_2, newest (the last of its instance in a slice of the day)
tally      stretches added up: day, names, vo, fqan, results, last (packed), check_1, check_2
endpoints  day, site, service_flavour, host_name, and first_site: true for one of its sites
covers     day, level, site, service_flavour, host_name, metric_name, start, end: what is announced
           or excluded, and counts
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sam_pipeline.spark_jobs.compute.folding import STRETCH
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, METRIC, NAMES
from sam_pipeline.spark_jobs.rules.statuses import MISSING

NOT_IN_PROFILE = "not-in-profile"
OTHER_VO = "other-vo"
NOT_IN_TOPOLOGY = "not-in-topology"
EXCLUDED_HOST = "excluded-monitoring-host"
# Why results don't count; those of excluded hosts are not even read.
REASONS = (NOT_IN_PROFILE, OTHER_VO, NOT_IN_TOPOLOGY, EXCLUDED_HOST)
_JUDGED = REASONS[:-1]

_INSTANCE = ("host_name", "service_flavour", "metric_name")
_ENDPOINT = ("day", "host_name", "service_flavour")


def tally(stretches: DataFrame) -> DataFrame:
    """The results of each day and instance added up: the same however they were cut."""
    return stretches.groupBy("day", *_INSTANCE, "vo", "fqan").agg(
        F.sum("results").alias("results"),
        F.max(_last()).alias("last"),
        F.sum("check_1").alias("check_1"),
        F.sum("check_2").alias("check_2"),
    )


def rows(
    stretches: DataFrame, covers: DataFrame, endpoints: DataFrame, profile: Profile
) -> DataFrame:
    """What the folds read: stretches, last results of the day before, one oldest MISSING of each
    expected instance, and covers.

    What no endpoint or no metric of the profile expects is left out.
    """
    columns = ("day", *_INSTANCE, "packed", "last")
    wanted = stretches.where(_wanted(profile))
    carried = wanted.where("newest").select(
        (F.col("day") + 1).alias("day"), *_INSTANCE, _last().alias("packed"), "last"
    )
    measured = wanted.select(*columns).unionByName(carried)
    matched = measured.join(F.broadcast(endpoints), on=list(_ENDPOINT), how="inner").where(
        F.array_contains(_metrics_of_flavour(profile), F.col("metric_name"))
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
    said = matched.select(*names, "packed", "last").unionByName(
        absent.select(*names, "packed", "last")
    )
    of_stretches = said.select(
        F.lit(STRETCH).alias("level"),
        *names,
        F.col("packed").alias("start"),
        F.col("last").alias("end"),
    )
    return of_stretches.unionByName(covers)


def counts(tally: DataFrame, endpoints: DataFrame, profile: Profile) -> DataFrame:
    """What a run records of the results of each day.

    Result: day, read, a count for each of REASONS, digest (of what counts) and carried_digest (of
    what the next day may carry over). The digests don't depend on any order.
    """
    known = endpoints.where("first_site").select(*_ENDPOINT, F.lit(True).alias("expected"))
    judged = tally.join(F.broadcast(known), on=list(_ENDPOINT), how="left").withColumn(
        "reason", _reason(profile)
    )
    wanted = F.col("reason").isNull()
    carried = wanted | (F.col("reason") == NOT_IN_TOPOLOGY)
    names = [*_INSTANCE, "vo", "fqan"]
    return judged.groupBy("day").agg(
        F.sum("results").alias("read"),
        *[_sum_where(F.col("reason") == each, F.col("results")).alias(each) for each in _JUDGED],
        _sum_where(wanted, _code(*names, "results", "last", "check_1", "check_2")).alias("digest"),
        _sum_where(carried, _code(*names, "last")).alias("carried_digest"),
    )


def mixed_vos(tally: DataFrame, endpoints: DataFrame, profile: Profile) -> DataFrame:
    """Instances that more than one VO measured on a day or the one before: names and `vos`."""
    own = tally.where(_wanted(profile)).select("day", *_INSTANCE, "vo")
    carried = own.withColumn("day", F.col("day") + 1)
    counted = own.unionByName(carried).join(
        F.broadcast(endpoints.where("first_site")), on=list(_ENDPOINT), how="left_semi"
    )
    return (
        counted.where(F.array_contains(_metrics_of_flavour(profile), F.col("metric_name")))
        .groupBy("day", *_INSTANCE)
        .agg(F.array_sort(F.collect_set("vo")).alias("vos"))
        .where(F.size("vos") > 1)
        .orderBy("day", *_INSTANCE)
    )


def _last() -> Column:
    """The last second of a stretch with its status, packed."""
    return _packed(F.col("last"), F.col("packed").bitwiseAND(F.lit(7)))


def _packed(at: Column, status: Column) -> Column:
    """One number that orders by time, then by harm: of two at one second the worse is later."""
    return at * 8 + status


def _reason(profile: Profile) -> Column:
    """Why a result doesn't count; null if it does."""
    in_profile = F.array_contains(_metrics_of_flavour(profile), F.col("metric_name"))
    return (
        F.when(~in_profile, NOT_IN_PROFILE)
        .when(~_wanted(profile), OTHER_VO)
        .when(F.col("expected").isNull(), NOT_IN_TOPOLOGY)
    )


def _wanted(profile: Profile) -> Column:
    """Whether a result is one of the profile's VO and FQAN (rule 2)."""
    vo = F.lit(True) if profile.vo is None else F.col("vo") == profile.vo
    return vo if profile.fqan is None else vo & (F.col("fqan") == profile.fqan)


def _metrics_of_flavour(profile: Profile) -> Column:
    """The profile's metrics of the row's flavour; an empty list if it names none."""
    pairs = [(F.lit(each.name), F.lit(list(each.metrics))) for each in profile.flavours]
    metrics_of = F.create_map(*[item for pair in pairs for item in pair])
    none = F.array().cast("array<string>")
    return F.coalesce(F.element_at(metrics_of, F.col("service_flavour")), none)


def _sum_where(condition: Column, value: Column) -> Column:
    return F.sum(F.when(condition, value))


def _code(*columns: str) -> Column:
    """A number for the row; their sum changes when the rows do, in whatever order they come."""
    return F.xxhash64(*columns).cast("decimal(38,0)")
