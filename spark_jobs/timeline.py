"""Status timelines in Spark: sweeping counters instead of joined intervals.

A fold needs, at every instant, the set of states its children have. So the children's changes are
events (`status` begins, `before` ends) that move one counter per state; a running sum over the
parent's events tells how many children have which state; the states with a count above zero are
the set, and the operation is looked up in its 64 answers. The same fold serves every level.

Times are epoch seconds, days are days since the epoch, statuses are codes (spark_jobs.status).
Site and day are in every key, so that one shuffle by them serves all levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.days import DAY_S
from spark_jobs.levels import ALL_NAMES, ENDPOINT, FUNCTION, METRIC, NAMES, SERVICE, SITE
from spark_jobs.profile import Profile
from spark_jobs.status import DOWNTIME, EXCLUDED, FOLDED, MISSING, SETS, UNKNOWN

KEYS = {level: ("day", *NAMES[level]) for level in (METRIC, ENDPOINT, SERVICE, FUNCTION, SITE)}
SITE_KEYS, ENDPOINT_KEYS, METRIC_KEYS = KEYS[SITE], KEYS[ENDPOINT], KEYS[METRIC]

# What is announced or excluded at a level, and the state it gives (rules 7 and 8).
COVERED = {METRIC: EXCLUDED, ENDPOINT: DOWNTIME, SITE: UNKNOWN}

_STATES = range(len(FOLDED))


def day_start() -> Column:
    """The first second of the row's day."""
    return F.col("day").cast("bigint") * DAY_S


def day_end(now: int) -> Column:
    """The second after the row's day; for an open day the time of the run (rule 3)."""
    return F.least(day_start() + DAY_S, F.lit(now).cast("bigint"))


def packed(at: Column, status: Column) -> Column:
    """One number that orders by time, then by harm: of two at one second the worse is later."""
    return at * 8 + status


def metric_events(rows: DataFrame, profile: Profile, now: int) -> DataFrame:
    """The changes of each metric instance within its day.

    Input: METRIC_KEYS, `packed` and `last`: the stretches of the day, last results of the day
    before, and one MISSING that is older than all. Source: rules 3, 4 and 5.
    """
    stretches = Window.partitionBy(*METRIC_KEYS).orderBy("packed")
    seen = rows.select(
        *METRIC_KEYS,
        _time(F.col("packed")).alias("first"),
        _status(F.col("packed")).alias("status"),
        "last",
        _status(F.lag("packed").over(stretches)).alias("before"),
        F.lag("last").over(stretches).alias("last_before"),
        F.coalesce(_time(F.lead("packed").over(stretches)), day_end(now)).alias("next"),
    )
    changes = _without_validity if _never_expire(profile) else _with_validity(profile)
    return seen.transform(changes).withColumn("at", F.greatest("at", day_start()))


def fold(
    events: DataFrame, keys: Sequence[str], operation: Column, answers: Column, covered: int
) -> DataFrame:
    """The merged changes of each parent: `keys`, at, status, before (null: the day begins).

    Input: `keys`, at, status and before of a child that changes (null: nothing), and `covers`: +1
    where a time begins in which the parent is `covered` whatever its children are, -1 where it
    ends. `operation` is the number of the parent's operation, `answers` those of all operations
    one after the other. Source: rules 7 to 10.
    """
    parent = Window.partitionBy(*keys).orderBy("at")
    so_far = parent.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    counted = events.select(
        *keys,
        "at",
        operation.alias("operation"),
        *[F.sum(_moves(state)).over(so_far).alias(f"has_{state}") for state in _STATES],
        F.sum("covers").over(so_far).alias("covers"),
    )
    status = F.when(F.col("covers") > 0, covered).otherwise(_folded(answers))
    folded = counted.select(*keys, "at", status.alias("status"))
    return folded.withColumn("before", F.lag("status").over(parent)).where(
        F.col("before").isNull() | (F.col("before") != F.col("status"))
    )


def timelines(
    rows: DataFrame,
    covers: Mapping[str, DataFrame],
    profile: Profile,
    now: int,
    keep: Callable[[DataFrame], DataFrame],
) -> dict[str, DataFrame]:
    """The changes of every level, from the metric rows and the covers of metrics, endpoints, sites.

    `keep` is called on what several levels read (to persist it).
    """
    answers = _all_answers(profile)

    def level(name: str, events: DataFrame, operation: Column) -> DataFrame:
        if name in covers:
            events = events.unionByName(covers[name])
        return keep(fold(events, KEYS[name], operation, answers, COVERED.get(name, EXCLUDED)))

    changes = metric_events(rows, profile, now)
    metric = level(METRIC, _as_events(changes, METRIC), _number(profile, "AND"))
    endpoint = level(
        ENDPOINT, _as_events(metric, ENDPOINT), _number(profile, profile.metrics_operation)
    )
    service = level(SERVICE, _as_events(endpoint, SERVICE), _operation_of_flavour(profile))
    offered = service.withColumn("function", F.explode(_functions_of_flavour(profile)))
    function = level(FUNCTION, _as_events(offered, FUNCTION), _operation_of_function(profile))
    site = level(SITE, _as_events(function, SITE), _number(profile, profile.functions_operation))
    return {METRIC: metric, ENDPOINT: endpoint, SERVICE: service, FUNCTION: function, SITE: site}


def segments(levels: Mapping[str, DataFrame], now: int) -> DataFrame:
    """All timelines as one table: level, day, names ('' where none), status, at, until."""
    return reduce(DataFrame.unionAll, [_segments(*each, now) for each in levels.items()])


def _segments(level: str, timeline: DataFrame, now: int) -> DataFrame:
    # By the keys of the fold, so that nothing moves or is sorted again.
    following = F.lead("at").over(Window.partitionBy(*KEYS[level]).orderBy("at"))
    names = [F.col(name) if name in KEYS[level] else F.lit("").alias(name) for name in ALL_NAMES]
    until = F.coalesce(following, day_end(now)).alias("until")
    return timeline.select(F.lit(level).alias("level"), "day", *names, "status", "at", until)


def _never_expire(profile: Profile) -> bool:
    return profile.validity_s is None and not any(profile.validity_of.values())


def _without_validity(seen: DataFrame) -> DataFrame:
    before = F.col("before")
    return seen.where(before.isNull() | (before != F.col("status"))).select(
        *METRIC_KEYS, F.col("first").alias("at"), "status", "before"
    )


def _with_validity(profile: Profile) -> Callable[[DataFrame], DataFrame]:
    """Changes where a result is believed only so long: then the instance is MISSING (rule 5)."""
    validity = _validity_of_metric(profile)

    def changes(seen: DataFrame) -> DataFrame:
        expired_before = (F.col("before") != MISSING) & (
            F.col("last_before") + validity < F.col("first")
        )
        before = F.when(expired_before, MISSING).otherwise(F.col("before"))
        expiry = F.col("last") + validity
        expires = (F.col("status") != MISSING) & (expiry < F.col("next"))
        begins = F.when(
            before.isNull() | (before != F.col("status")),
            _event(F.col("first"), F.col("status"), before),
        )
        ends = F.when(expires, _event(expiry, F.lit(MISSING), F.col("status")))
        events = seen.select(*METRIC_KEYS, F.explode(F.array_compact(F.array(begins, ends))))
        return events.select(*METRIC_KEYS, "col.at", "col.status", "col.before")

    return changes


def _event(at: Column, status: Column, before: Column) -> Column:
    return F.struct(
        at.alias("at"), status.cast("int").alias("status"), before.cast("int").alias("before")
    )


def _as_events(changes: DataFrame, level: str) -> DataFrame:
    """What moves the counters of a level: the changes of the one below."""
    return changes.select(*KEYS[level], "at", "status", "before", F.lit(0).alias("covers"))


def _time(packed: Column) -> Column:
    return F.shiftright(packed, 3)


def _status(packed: Column) -> Column:
    return packed.bitwiseAND(F.lit(7)).cast("int")


def _moves(state: int) -> Column:
    begins = F.when(F.col("status") == state, 1).otherwise(0)
    return begins - F.when(F.col("before") == state, 1).otherwise(0)


def _folded(answers: Column) -> Column:
    bits = [F.when(F.col(f"has_{state}") > 0, 1 << state).otherwise(0) for state in _STATES]
    present = reduce(Column.__add__, bits)
    return F.get(answers, F.col("operation") * SETS + present)


def _all_answers(profile: Profile) -> Column:
    """The answers of all operations, one after the other, as one literal."""
    answers = [str(answer) for each in profile.operations for answer in each.answers]
    return F.expr(f"array({', '.join(answers)})")  # F.lit of a list is a call per item


def _by_name(column: str, values: Mapping[str, object]) -> Column:
    """The value for each name, as one expression."""
    pairs = [F.lit(item) for pair in values.items() for item in pair]
    return F.element_at(F.create_map(*pairs), F.col(column))


def _number(profile: Profile, operation: str) -> Column:
    return F.lit(profile.operation_number(operation))


def _operation_of_flavour(profile: Profile) -> Column:
    return _by_name(
        "service_flavour",
        {
            flavour.name: profile.operation_number(flavour.endpoints_operation)
            for flavour in profile.flavours
        },
    )


def _operation_of_function(profile: Profile) -> Column:
    return _by_name(
        "function",
        {
            function.name: profile.operation_number(function.flavours_operation)
            for function in profile.functions
        },
    )


def _functions_of_flavour(profile: Profile) -> Column:
    return _by_name(
        "service_flavour",
        {flavour.name: list(profile.functions_of(flavour.name)) for flavour in profile.flavours},
    )


def _validity_of_metric(profile: Profile) -> Column:
    """Seconds; where a metric's results never grow old, more than any report spans."""
    metrics = {name for flavour in profile.flavours for name in flavour.metrics}
    return _by_name(
        "metric_name", {name: profile.validity(name) or 2 * DAY_S + 1 for name in metrics}
    )
