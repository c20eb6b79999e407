"""From what the database holds to what the timelines need: expected instances, rows, downtimes.

Tables as storage.py reads them, times in epoch seconds:
results    host_name, service_flavour, metric_name, packed (time and status)
tally      the results of a day and instance, summed up: day, names, vo, fqan, results, last, checks
topology   site, host_name, service_flavour, vo, production, monitored, valid_from_s, valid_to_s
downtimes  site, host_name, service_flavour, start_s, end_s, classification, severity
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.days import DAY_S
from spark_jobs.profile import Profile
from spark_jobs.status import MISSING
from spark_jobs.timeline import (
    ENDPOINT_KEYS,
    METRIC_KEYS,
    day_end,
    day_start,
    packed,
)

NO_WORDS = ("n", "no", "false", "f", "0")
NOT_IN_PROFILE = "not-in-profile"
NOT_IN_TOPOLOGY = "not-in-topology"
OTHER_VO = "other-vo"
REASONS = (NOT_IN_PROFILE, NOT_IN_TOPOLOGY, OTHER_VO)

_INSTANCE = ("host_name", "service_flavour", "metric_name")
_ENDPOINT = ("day", "host_name", "service_flavour")


def expected_endpoints(topology: DataFrame, days: DataFrame, profile: Profile) -> DataFrame:
    """Who is expected on each day: day, host_name, service_flavour, its sites, its metrics.

    Of several rows of one (site, host, flavour, VO) that are valid at the day's first second the
    newest governs, and it may say that the endpoint isn't in production or not monitored.
    """
    valid = (F.col("valid_from_s") <= day_start()) & (
        F.col("valid_to_s").isNull() | (F.col("valid_to_s") > day_start())
    )
    governing = (
        topology.where(_names_vo(profile))
        .join(F.broadcast(days), on=valid, how="inner")
        .groupBy(*_ENDPOINT, "site", "vo")
        .agg(F.max_by(F.struct("production", "monitored"), "valid_from_s").alias("flags"))
    )
    return (
        governing.where(_yes("flags.production") & _yes("flags.monitored"))
        .withColumn("metrics", _metrics_of_flavour(profile))
        .where(F.size("metrics") > 0)
        .groupBy(*_ENDPOINT, "metrics")
        .agg(F.array_sort(F.collect_set("site")).alias("sites"))
    )


def metric_rows(results: DataFrame, carried: DataFrame, endpoints: DataFrame) -> DataFrame:
    """METRIC_KEYS and packed: results, last states of the day before, and one oldest MISSING."""
    day = F.floor(F.shiftright("packed", 3) / DAY_S).cast("int")
    measured = results.withColumn("day", day).unionByName(carried)
    matched = measured.join(F.broadcast(endpoints), on=list(_ENDPOINT), how="inner").where(
        F.array_contains("metrics", F.col("metric_name"))
    )
    before_all = packed(day_start() - DAY_S - 1, F.lit(MISSING))
    absent = endpoints.select(
        *_ENDPOINT,
        "sites",
        F.explode("metrics").alias("metric_name"),
        before_all.cast("bigint").alias("packed"),
    )
    both = matched.select(*absent.columns).unionByName(absent)
    return both.withColumn("site", F.explode("sites")).select(*METRIC_KEYS, "packed")


def carried(tally: DataFrame, profile: Profile) -> DataFrame:
    """The last result of each instance on the day before, as a row of the next day (rule 3)."""
    return tally.where(_wanted(profile)).select(
        (F.col("day") + 1).alias("day"), *_INSTANCE, F.col("last").alias("packed")
    )


def downtime_spans(
    downtimes: DataFrame, endpoints: DataFrame, profile: Profile, now: int
) -> DataFrame:
    """The downtimes that count, for each endpoint and day: ENDPOINT_KEYS, start, end (rule 8).

    A downtime without flavour is of the whole host, without host of the whole site; each part it
    names must match.
    """
    kind = F.upper(F.concat_ws("/", "classification", "severity"))
    named = downtimes.where(kind.isin(*profile.downtimes)).select(
        *[F.col(name).alias(f"of_{name}") for name in ("site", "host_name", "service_flavour")],
        "start_s",
        "end_s",
    )
    at_sites = endpoints.withColumn("site", F.explode("sites"))
    matches = [
        (F.col(f"of_{name}") == "") | (F.col(f"of_{name}") == F.col(name))
        for name in ("site", "host_name", "service_flavour")
    ]
    overlaps = (F.col("start_s") < day_end(now)) & (F.col("end_s") > day_start())
    condition = matches[0] & matches[1] & matches[2] & overlaps
    return at_sites.join(F.broadcast(named), on=condition, how="inner").select(
        *ENDPOINT_KEYS,
        F.greatest("start_s", day_start()).alias("start"),
        F.least("end_s", day_end(now)).alias("end"),
    )


def downtime_events(spans: DataFrame, now: int) -> DataFrame:
    """ENDPOINT_KEYS, at and downtimes (+1 starts, -1 ends), as the fold reads them."""
    edges = F.array(
        F.struct(F.col("start").alias("at"), F.lit(1).alias("downtimes")),
        F.struct(F.col("end").alias("at"), F.lit(-1).alias("downtimes")),
    )
    no_state = F.lit(None).cast("int")
    return (
        spans.select(*ENDPOINT_KEYS, F.explode(edges).alias("edge"))
        .select(
            *ENDPOINT_KEYS,
            "edge.at",
            no_state.alias("status"),
            no_state.alias("before"),
            "edge.downtimes",
        )
        .where(F.col("at") < day_end(now))
    )


def facts(
    tally: DataFrame, endpoints: DataFrame, spans: DataFrame, days: DataFrame, profile: Profile
) -> DataFrame:
    """What a run records of each day: counts, digests, and instances that several VOs measured.

    Result: day, read, ignored (map reason to count), results_digest, mixed (a few of "instance:
    VOs"), instances, topology_digest, downtimes_digest. Digests don't depend on any order.
    """
    about_results = _about_results(tally, endpoints, profile)
    about_topology = endpoints.groupBy("day").agg(
        F.sum(F.size("sites") * F.size("metrics")).alias("instances"),
        _digest(*_ENDPOINT, "sites").alias("topology_digest"),
    )
    about_downtimes = spans.groupBy("day").agg(
        _digest(*ENDPOINT_KEYS, "start", "end").alias("downtimes_digest")
    )
    found = days
    for about in (about_results, about_topology, about_downtimes):
        found = found.join(F.broadcast(about), on="day", how="left")
    return found


def _about_results(tally: DataFrame, endpoints: DataFrame, profile: Profile) -> DataFrame:
    own = tally.withColumn("read", F.col("results"))
    look_back = tally.select(
        (F.col("day") + 1).alias("day"),
        *_INSTANCE,
        "vo",
        "fqan",
        *[
            F.lit(0).cast("bigint").alias(name)
            for name in ("results", "check_1", "check_2", "read")
        ],
        "last",
    )
    known = endpoints.select(*_ENDPOINT, F.lit(True).alias("expected"))
    judged = (
        own.unionByName(look_back)
        .join(F.broadcast(known), on=list(_ENDPOINT), how="left")
        .withColumn("reason", _reason(profile))
    )
    counted = F.col("reason").isNull()
    names = [*_INSTANCE, "vo", "fqan", "results", "last", "check_1", "check_2"]
    by_instance = judged.groupBy("day", *_INSTANCE).agg(
        F.sum("read").alias("read"),
        *[F.sum(F.when(F.col("reason") == r, F.col("read"))).alias(r) for r in REASONS],
        _digest(*names, where=counted).alias("digest"),
        F.array_sort(F.collect_set(F.when(counted, F.col("vo")))).alias("vos"),
    )
    quoted = F.transform("vos", lambda vo: F.when(vo == "", "no VO").otherwise(vo))
    told = F.format_string("%s %s %s: %s", *_INSTANCE, F.array_join(quoted, ", "))
    return by_instance.groupBy("day").agg(
        F.sum("read").alias("read"),
        F.create_map(*[c for r in REASONS for c in (F.lit(r), F.sum(r))]).alias("ignored"),
        F.sum("digest").cast("string").alias("results_digest"),
        F.slice(F.array_sort(F.collect_set(F.when(F.size("vos") > 1, told))), 1, 3).alias("mixed"),
    )


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


def _names_vo(profile: Profile) -> Column:
    """Whether an endpoint is one of the profile's VO, or of no VO in particular (rule 2)."""
    return F.lit(True) if profile.vo is None else F.col("vo").isin("", profile.vo)


def _yes(column: str) -> Column:
    return F.coalesce(~F.lower(F.trim(column)).isin(*NO_WORDS), F.lit(True))


def _metrics_of_flavour(profile: Profile) -> Column:
    """The profile's metrics of the row's flavour; an empty list if it names none."""
    none = F.array().cast("array<string>")
    pairs = [(F.lit(each.name), F.lit(list(each.metrics))) for each in profile.flavours]
    metrics_of = F.create_map(*[item for pair in pairs for item in pair])
    return F.coalesce(F.element_at(metrics_of, F.col("service_flavour")), none)


def _digest(*columns: str, where: Column | None = None) -> Column:
    """A number that changes when the rows do, in whatever order they come."""
    code = F.xxhash64(*columns).cast("decimal(38,0)")
    return F.sum(code if where is None else F.when(where, code))
