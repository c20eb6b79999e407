"""Status timelines of all levels from metric rows: sweeping counters instead of joined intervals.

A fold needs, at every instant, the set of states its children have. So the children's changes are
events (`status` begins, `before` ends) that move one counter per state; a running sum over the
parent's events tells how many children have which state; the states with a count above zero are
the set, and the operation is looked up in its 64 answers. A downtime or an exclusion is one more
counter, which covers whatever the children say. The same fold serves every level.

Only NumPy and Arrow: Spark brings all rows of a site and day to one task, which runs this. Times
are epoch seconds, days are days since the epoch, statuses are codes (rules.statuses). Things of a
level are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.stretches import Integers
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.levels import (
    ALL_NAMES,
    ENDPOINT,
    FUNCTION,
    METRIC,
    NAMES,
    SERVICE,
    SITE,
)
from sam_pipeline.spark_jobs.rules.statuses import DOWNTIME, EXCLUDED, FOLDED, MISSING, UNKNOWN

STRETCH = ""
"""The level of rows that are stretches: `start` is packed, `end` the last second. Other rows are
covers of a metric, an endpoint or a site in seconds [start, end) of the day."""

ROWS = (
    "level string, day int, site string, service_flavour string, host_name string,"
    " metric_name string, start bigint, end bigint"
)
SEGMENTS = (
    "level string, day int, site string, service_flavour string, host_name string,"
    " metric_name string, function string, status int, at bigint, until bigint"
)
# What is announced or excluded at a level, and the state it gives (rules 7 and 8).
COVERED = {METRIC: EXCLUDED, ENDPOINT: DOWNTIME, SITE: UNKNOWN}

_BATCH_ROWS = 100_000
_NOTHING = -1
_STATES = range(len(FOLDED))
_COVERS = len(FOLDED)

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]

Codes = Mapping[str, Integers]
"""Names as numbers, column by column: what identifies the things of a level."""


class Things(NamedTuple):
    """The things of a level; `keys` are their codes in one number, growing."""

    level: str
    codes: Codes
    keys: Integers


class Changes(NamedTuple):
    """Changes of things; status or before -1: none."""

    thing: Integers
    at: Integers
    status: Integers
    before: Integers


class Covers(NamedTuple):
    """Where times begin (step 1) and end (-1) in which a thing is covered."""

    thing: Integers
    at: Integers
    step: Integers


def fold(rows: pa.Table, profile: Profile, now: int) -> Iterator[pa.Table]:
    """The segments (SEGMENTS) of each level, from ROWS of whole sites and days in any order.

    Of each expected instance there is a MISSING stretch older than all results. Rules 3 to 10.
    """
    if not rows.num_rows:
        return
    names = _Names(rows, profile)
    answers = np.array([each.answers for each in profile.operations], np.int64)
    number = profile.operation_number

    def level(things: Things, changes: Changes, operation: Integers | int) -> Changes:
        covers = names.covers(things, now)
        covered = COVERED.get(things.level, EXCLUDED)
        return _folded(changes, covers, answers, operation, covered)

    metrics, thing = names.things(METRIC, names.stretches)
    said = _metric_changes(names, metrics, thing, profile, now)
    changes = level(metrics, said, number("AND"))
    yield names.segments(metrics, changes, now)

    endpoints, parent = names.things(ENDPOINT, metrics.codes)
    changes = level(endpoints, _of_parents(changes, parent), number(profile.metrics_operation))
    yield names.segments(endpoints, changes, now)

    services, parent = names.things(SERVICE, endpoints.codes)
    operation = names.operation_of_flavour(services)
    changes = level(services, _of_parents(changes, parent), operation)
    yield names.segments(services, changes, now)

    child, offered = names.functions(services)
    functions, parent = names.things(FUNCTION, offered)
    operation = names.operation_of_function(functions)
    changes = level(functions, _of_several(changes, child, parent), operation)
    yield names.segments(functions, changes, now)

    sites, parent = names.things(SITE, functions.codes)
    changes = level(sites, _of_parents(changes, parent), number(profile.functions_operation))
    yield names.segments(sites, changes, now)


def folding(profile: Profile, now: int) -> Work:
    """What a task does with the rows of its sites and days."""

    def work(batches: Batches) -> Batches:
        found = list(batches)
        if found:
            for level in fold(pa.Table.from_batches(found), profile, now):
                yield from level.to_batches(_BATCH_ROWS)

    return work


class _Names:
    """The names in the rows as numbers, and back."""

    def __init__(self, rows: pa.Table, profile: Profile) -> None:
        self._profile = profile
        self._values: dict[str, pa.Array] = {
            "function": pa.array([each.name for each in profile.functions], pa.string())
        }
        codes: dict[str, Integers] = {}
        for name in ("level", "day", *NAMES[METRIC]):
            encoded = rows.column(name).combine_chunks().dictionary_encode()
            self._values[name] = encoded.dictionary
            codes[name] = encoded.indices.to_numpy().astype(np.int64)
        self._days = self._values["day"].to_numpy().astype(np.int64)
        levels = self._values["level"].to_pylist()
        self._rows_of = {each: codes["level"] == at for at, each in enumerate(levels)}
        self._codes = codes
        self._start, self._end = (rows.column(n).to_numpy() for n in ("start", "end"))
        self.stretches = self._at(STRETCH)
        self.packed, self.last = (each[self._rows_of[STRETCH]] for each in (self._start, self._end))

    def things(self, level: str, codes: Codes) -> tuple[Things, Integers]:
        """The things of the level in these rows, and which one each row is of."""
        keys, first, thing = np.unique(
            self._key(level, codes), return_index=True, return_inverse=True
        )
        own = {name: codes[name][first] for name in ("day", *NAMES[level])}
        return Things(level, own, keys), thing

    def covers(self, things: Things, now: int) -> Covers:
        """Where covers of the level's things begin and end within the day."""
        chosen = self._rows_of.get(things.level)
        if chosen is None or not len(things.keys):
            return Covers(*[np.empty(0, np.int64)] * 3)
        key = self._key(things.level, self._at(things.level))
        place = np.searchsorted(things.keys, key).clip(max=len(things.keys) - 1)
        known = things.keys[place] == key
        thing, start, end = (
            each[known] for each in (place, self._start[chosen], self._end[chosen])
        )
        ends = end < self.day_end(things, now)[thing]
        return Covers(
            np.concatenate([thing, thing[ends]]),
            np.concatenate([start, end[ends]]),
            np.concatenate([np.ones(len(thing), np.int64), np.full(int(ends.sum()), -1)]),
        )

    def day_start(self, things: Things) -> Integers:
        start: Integers = self._days[things.codes["day"]] * DAY_S
        return start

    def day_end(self, things: Things, now: int) -> Integers:
        """The second after each thing's day; of an open day the time of the run (rule 3)."""
        return np.minimum(self.day_start(things) + DAY_S, now)

    def validity(self, things: Things) -> Integers:
        """Seconds; where results never grow old, more than any report spans (rule 5)."""
        for_ever = 2 * DAY_S + 1
        found = [self._profile.validity(m) or for_ever for m in self._told("metric_name")]
        by_metric: Integers = np.array(found, np.int64)
        return by_metric[things.codes["metric_name"]]

    def operation_of_flavour(self, services: Things) -> Integers:
        operations = {each.name: each.endpoints_operation for each in self._profile.flavours}
        return self._numbers(operations, "service_flavour")[services.codes["service_flavour"]]

    def operation_of_function(self, functions: Things) -> Integers:
        operations = {each.name: each.flavours_operation for each in self._profile.functions}
        return self._numbers(operations, "function")[functions.codes["function"]]

    def functions(self, services: Things) -> tuple[Integers, Codes]:
        """A row for each function that a service takes part in: the service, and the codes."""
        flavours = self._told("service_flavour")
        pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for at, function in enumerate(self._profile.functions):
            mine = np.array([flavour in function.flavours for flavour in flavours])
            service = np.flatnonzero(mine[services.codes["service_flavour"]])
            pairs.append((service, np.full(len(service), at)))
        child, function_code = (np.concatenate(each) for each in zip(*pairs, strict=True))
        codes = {name: services.codes[name][child] for name in ("day", "site")}
        return child, {**codes, "function": function_code}

    def segments(self, things: Things, changes: Changes, now: int) -> pa.Table:
        """The timelines of a level."""
        ends = self.day_end(things, now)[changes.thing]
        same = changes.thing[1:] == changes.thing[:-1]
        until = np.append(np.where(same, changes.at[1:], ends[:-1]), ends[-1:])
        codes = {name: code[changes.thing] for name, code in things.codes.items()}
        count = len(changes.thing)
        names = {
            name: self._values[name].take(pa.array(codes[name]))
            if name in codes
            else pa.repeat("", count)
            for name in ALL_NAMES
        }
        return pa.table(
            {
                "level": pa.repeat(things.level, count),
                "day": pa.array(self._days[codes["day"]], pa.int32()),
                **names,
                "status": pa.array(changes.status, pa.int32()),
                "at": pa.array(changes.at, pa.int64()),
                "until": pa.array(until, pa.int64()),
            }
        )

    def _at(self, level: str) -> Codes:
        chosen = self._rows_of.get(level, np.zeros(len(self._start), bool))
        self._rows_of[level] = chosen
        return {name: code[chosen] for name, code in self._codes.items()}

    def _key(self, level: str, codes: Codes) -> Integers:
        key = codes["day"]
        for name in NAMES[level]:
            key = key * max(len(self._values[name]), 1) + codes[name]
        return key

    def _told(self, name: str) -> Sequence[str]:
        told: list[str] = self._values[name].to_pylist()
        return told

    def _numbers(self, operations: Mapping[str, str], name: str) -> Integers:
        number = self._profile.operation_number
        found = [number(operations[n]) if n in operations else 0 for n in self._told(name)]
        return np.array(found, np.int64)


def _metric_changes(
    names: _Names, metrics: Things, thing: Integers, profile: Profile, now: int
) -> Changes:
    """The changes of each metric instance within its day (rules 3, 4 and 5)."""
    order = np.lexsort((names.packed, thing))
    thing, packed, last = thing[order], names.packed[order], names.last[order]
    first, status, day_start = packed >> 3, packed & 7, names.day_start(metrics)[thing]
    begins = np.append([True], thing[1:] != thing[:-1])
    before = np.where(begins, _NOTHING, np.append([0], status[:-1]))
    expires = np.zeros(len(thing), bool)
    expiry = last
    if any(profile.validities):
        validity = names.validity(metrics)[thing]
        expiry = last + validity
        ends = names.day_end(metrics, now)[thing]
        following = np.append(np.where(begins[1:], ends[:-1], first[1:]), ends[-1:])
        expires = (status != MISSING) & (expiry < following)
        late = np.append([False], expires[:-1]) & ~begins
        before = np.where(late, MISSING, before)
    changed = before != status
    gone = np.flatnonzero(expires)
    return Changes(
        np.concatenate([thing[changed], thing[gone]]),
        np.maximum(
            np.concatenate([first[changed], expiry[gone]]),
            np.concatenate([day_start[changed], day_start[gone]]),
        ),
        np.concatenate([status[changed], np.full(len(gone), MISSING)]),
        np.concatenate([before[changed], status[gone]]),
    )


def _of_parents(changes: Changes, parent: Integers) -> Changes:
    """What changes at the parents; `parent` of each child."""
    return changes._replace(thing=parent[changes.thing])


def _of_several(changes: Changes, child: Integers, parent: Integers) -> Changes:
    """The same where a child has several parents, or none: a row of both for each."""
    order = np.argsort(child, kind="stable")
    child, parent = child[order], parent[order]
    first = np.searchsorted(child, changes.thing, "left")
    count = np.searchsorted(child, changes.thing, "right") - first
    row = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return Changes(
        parent[first[row] + place], changes.at[row], changes.status[row], changes.before[row]
    )


def _folded(
    changes: Changes,
    covers: Covers,
    answers: Integers,
    operation: Integers | int,
    covered: int,
) -> Changes:
    """The merged changes of parents, by parent and time, from those of their children.

    `operation` is the number of each parent's operation, `answers` the answers of each.
    """
    thing = np.concatenate([changes.thing, covers.thing])
    at = np.concatenate([changes.at, covers.at])
    moves = np.zeros((len(thing), _COVERS + 1), np.int64)
    of_children = moves[: len(changes.thing)]
    for state in _STATES:
        of_children[:, state] = changes.status == state
        of_children[:, state] -= changes.before == state
    moves[len(changes.thing) :, _COVERS] = covers.step

    order = np.lexsort((at, thing))
    thing, at = thing[order], at[order]
    counts = np.cumsum(moves[order], axis=0)
    begins = np.append([True], thing[1:] != thing[:-1])[: len(thing)]
    first = np.flatnonzero(begins)
    # What the parents before have left behind.
    left = np.vstack([np.zeros((1, _COVERS + 1), np.int64), counts])[first]
    counts -= np.repeat(left, np.diff(np.append(first, len(thing))), axis=0)

    ends = np.append((thing[1:] != thing[:-1]) | (at[1:] != at[:-1]), [True])[: len(thing)]
    thing, at, counts = thing[ends], at[ends], counts[ends]
    present = sum((counts[:, state] > 0).astype(np.int64) << state for state in _STATES)
    numbers = operation if isinstance(operation, int) else operation[thing]
    status = np.where(counts[:, _COVERS] > 0, covered, answers[numbers, present])
    begins = np.append([True], thing[1:] != thing[:-1])[: len(thing)]
    before = np.where(begins, _NOTHING, np.append([_NOTHING], status[:-1])[: len(thing)])
    kept = before != status
    return Changes(thing[kept], at[kept], status[kept], before[kept])
