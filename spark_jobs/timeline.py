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
from spark_jobs.status import DOWNTIME, FOLDED, MISSING, SETS

KEYS = {level: ("day", *NAMES[level]) for level in (METRIC, ENDPOINT, SERVICE, FUNCTION, SITE)}
SITE_KEYS, ENDPOINT_KEYS, METRIC_KEYS = KEYS[SITE], KEYS[ENDPOINT], KEYS[METRIC]

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

    Input: METRIC_KEYS and `packed`: the results of the day, the last one of the day before, and one
    MISSING that is older than both. Source: rules 3, 4 and 5.
    """
    results = Window.partitionBy(*METRIC_KEYS).orderBy("packed")
    seen = rows.select(
        *METRIC_KEYS,
        _time("packed").alias("measured"),
        _status("packed").alias("status"),
        F.lag("packed").over(results).alias("last"),
        F.lead("packed").over(results).alias("next"),
    )
    changes = _without_validity if _never_expire(profile) else _with_validity(profile, now)
    return seen.transform(changes).withColumn("at", F.greatest("at", day_start()))


def fold(events: DataFrame, keys: Sequence[str], operation: Column, answers: Column) -> DataFrame:
    """The merged changes of each parent: `keys`, at, status, before (null: the day begins).

    Input: `keys`, at, status and before of a child that changes (null: nothing), and
    `downtimes`: +1 where one starts, -1 where one ends. `operation` is the number of the parent's
    operation, `answers` those of all operations one after the other. Source: rules 8, 9 and 10.
    """
    parent = Window.partitionBy(*keys).orderBy("at")
    so_far = parent.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    counted = events.select(
        *keys,
        "at",
        operation.alias("operation"),
        *[F.sum(_moves(state)).over(so_far).alias(f"has_{state}") for state in _STATES],
        F.sum("downtimes").over(so_far).alias("downtimes"),
    )
    folded = counted.select(*keys, "at", _folded(answers).alias("status"))
    return folded.withColumn("before", F.lag("status").over(parent)).where(
        F.col("before").isNull() | (F.col("before") != F.col("status"))
    )


def timelines(
    rows: DataFrame,
    downtimes: DataFrame,
    profile: Profile,
    now: int,
    keep: Callable[[DataFrame], DataFrame],
) -> dict[str, DataFrame]:
    """The changes of every level, from the metric rows and the downtime events.

    `keep` is called on what several levels read (to persist it).
    """
    answers = _all_answers(profile)

    def level(name: str, events: DataFrame, operation: Column) -> DataFrame:
        return keep(fold(events, KEYS[name], operation, answers))

    changes = metric_events(rows, profile, now)
    metric = level(METRIC, _as_events(changes, METRIC), _number(profile, "AND"))
    endpoint = level(
        ENDPOINT,
        _as_events(metric, ENDPOINT).unionByName(downtimes),
        _number(profile, profile.metrics_operation),
    )
    service = level(SERVICE, _as_events(endpoint, SERVICE), _operation_of_flavour(profile))
    offered = service.withColumn("function", F.explode(_functions_of_flavour(profile)))
    function = level(FUNCTION, _as_events(offered, FUNCTION), _operation_of_function(profile))
    site = level(SITE, _as_events(function, SITE), _number(profile, profile.functions_operation))
    return {METRIC: metric, ENDPOINT: endpoint, SERVICE: service, FUNCTION: function, SITE: site}


def segments(levels: Mapping[str, DataFrame], now: int) -> DataFrame:
    """All timelines as one table: level, day, names ('' where none), status, at, until."""
    changes = reduce(DataFrame.unionAll, [_labelled(*each) for each in levels.items()])
    each = Window.partitionBy("level", "day", *ALL_NAMES).orderBy("at")
    return changes.withColumn("until", F.coalesce(F.lead("at").over(each), day_end(now)))


def _labelled(level: str, timeline: DataFrame) -> DataFrame:
    names = [F.col(name) if name in KEYS[level] else F.lit("").alias(name) for name in ALL_NAMES]
    return timeline.select(F.lit(level).alias("level"), "day", *names, "status", "at")


def _never_expire(profile: Profile) -> bool:
    return profile.validity_s is None and not any(profile.validity_of.values())


def _without_validity(seen: DataFrame) -> DataFrame:
    before = _status("last")
    return seen.where(before.isNull() | (before != F.col("status"))).select(
        *METRIC_KEYS, F.col("measured").alias("at"), "status", before.alias("before")
    )


def _with_validity(profile: Profile, now: int) -> Callable[[DataFrame], DataFrame]:
    """Changes where a result is believed only so long: then the instance is MISSING (rule 5)."""
    validity = _validity_of_metric(profile)

    def changes(seen: DataFrame) -> DataFrame:
        expired_before = (_status("last") != MISSING) & (
            _time("last") + validity < F.col("measured")
        )
        before = F.when(expired_before, MISSING).otherwise(_status("last"))
        expiry = F.col("measured") + validity
        next_time = F.coalesce(_time("next"), day_end(now))
        expires = (F.col("status") != MISSING) & (expiry < next_time)
        begins = F.when(
            before.isNull() | (before != F.col("status")),
            _event(F.col("measured"), F.col("status"), before),
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
    return changes.select(*KEYS[level], "at", "status", "before", F.lit(0).alias("downtimes"))


def _time(column: str) -> Column:
    return F.shiftright(column, 3)


def _status(column: str) -> Column:
    return F.col(column).bitwiseAND(F.lit(7)).cast("int")


def _moves(state: int) -> Column:
    begins = F.when(F.col("status") == state, 1).otherwise(0)
    return begins - F.when(F.col("before") == state, 1).otherwise(0)


def _folded(answers: Column) -> Column:
    bits = [F.when(F.col(f"has_{state}") > 0, 1 << state).otherwise(0) for state in _STATES]
    present = reduce(Column.__add__, bits)
    answer = F.get(answers, F.col("operation") * SETS + present)
    return F.when(F.col("downtimes") > 0, DOWNTIME).otherwise(answer)


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
