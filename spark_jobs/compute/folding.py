"""Status timelines of all levels from metric rows: sweeping counters instead of joined intervals.

At every instant a fold needs the set of states that the children are in. So each change of a child
is an event (`status` begins, `before` ends) that moves one counter per state. A running sum over
the events of a parent gives the number of children in each state. The states with a count above
zero are the set, and the operation has an answer for each of the 64 sets. A downtime or an
exclusion is one more counter, which overrides the children. The same fold serves every level.

Only NumPy and Arrow are imported: one task has all rows of a site and day, and runs this. Times are
epoch seconds, days are days since the epoch, statuses are codes (rules.statuses). The things of a
level (its sites, services, metrics …) are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.stretches import Integers
from sam_pipeline.spark_jobs.compute.workers import Batches, Work
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
"""The level of rows that are stretches: `start` is packed, `end` is the last second. Any other row
covers a metric, an endpoint or a site during the seconds [start, end) of its day."""

ROWS = (
    "level string, day int, site string, service_flavour string, host_name string,"
    " metric_name string, start bigint, end bigint"
)
SEGMENTS = (
    "level string, day int, site string, service_flavour string, host_name string,"
    " metric_name string, function string, status int, at bigint, until bigint"
)
# The status that a cover gives, by its level (rules 7 and 8).
COVERED = {METRIC: EXCLUDED, ENDPOINT: DOWNTIME, SITE: UNKNOWN}

_BATCH_ROWS = 100_000
_NO_STATUS = -1
_STATES = range(len(FOLDED))
_COVERS = len(FOLDED)
_NEVER_EXPIRES_S = 2 * DAY_S + 1  # longer than the time range of any task (rule 5)

Codes = Mapping[str, Integers]
"""Names encoded as numbers, column by column: they identify the things of a level."""


class Things(NamedTuple):
    """The things of a level; `keys` combine the codes of each into one ascending number."""

    level: str
    codes: Codes
    keys: Integers


class StatusChanges(NamedTuple):
    """Changes of things from `before` to `status`; -1 stands for no status."""

    thing: Integers
    at: Integers
    status: Integers
    before: Integers

    def of_parents(self, parent: Integers) -> StatusChanges:
        """The same changes with the number of the parent as `thing`; `parent` is by child."""
        return self._replace(thing=parent[self.thing])

    def of_each_parent(self, child: Integers, parent: Integers) -> StatusChanges:
        """The changes repeated for every parent; `child` and `parent` are pairs of numbers."""
        order = np.argsort(child, kind="stable")
        child, parent = child[order], parent[order]
        first = np.searchsorted(child, self.thing, "left")
        count = np.searchsorted(child, self.thing, "right") - first
        row = np.repeat(np.arange(len(count)), count)
        offset = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        return StatusChanges(
            parent[first[row] + offset], self.at[row], self.status[row], self.before[row]
        )


class CoverEdges(NamedTuple):
    """The times at which a cover of a thing starts (step 1) or stops (step -1)."""

    thing: Integers
    at: Integers
    step: Integers


def folding(profile: Profile, now: int) -> Work:
    """The function that a task applies to all rows of its sites and days."""

    def work(batches: Batches) -> Batches:
        if rows := list(batches):
            for segments in fold(pa.Table.from_batches(rows), profile, now):
                yield from segments.to_batches(_BATCH_ROWS)

    return work


def fold(rows: pa.Table, profile: Profile, now: int) -> Iterator[pa.Table]:
    """The segments of each level, metrics first (availability rules 3 to 10).

    Args:
        rows: columns as ROWS, in any order, of whole sites and days. Each expected instance has a
            MISSING stretch older than all its results.
        now: the time of the run, at which an open day ends (epoch s).
    Returns:
        a table per level with the columns SEGMENTS.
    """
    if not rows.num_rows:
        return
    names = _Names(rows, profile, now)
    answers = np.array([operation.answers for operation in profile.operations], np.int64)
    number = profile.operation_number

    metrics, thing = names.things(METRIC, names.stretches)
    changes = _metric_changes(names, metrics, thing)
    changes = _folded(metrics, changes, names.cover_edges(metrics), answers, number("AND"))
    yield names.segments(metrics, changes)

    endpoints, parent = names.things(ENDPOINT, metrics.codes)
    changes = changes.of_parents(parent)
    operation = number(profile.metrics_operation)
    changes = _folded(endpoints, changes, names.cover_edges(endpoints), answers, operation)
    yield names.segments(endpoints, changes)

    services, parent = names.things(SERVICE, endpoints.codes)
    changes = changes.of_parents(parent)
    operation_of = {flavour.name: flavour.endpoints_operation for flavour in profile.flavours}
    operations = names.operations(services, "service_flavour", operation_of)
    changes = _folded(services, changes, names.cover_edges(services), answers, operations)
    yield names.segments(services, changes)

    child, codes = names.functions(services)
    functions, parent = names.things(FUNCTION, codes)
    changes = changes.of_each_parent(child, parent)
    operation_of = {function.name: function.flavours_operation for function in profile.functions}
    operations = names.operations(functions, "function", operation_of)
    changes = _folded(functions, changes, names.cover_edges(functions), answers, operations)
    yield names.segments(functions, changes)

    sites, parent = names.things(SITE, functions.codes)
    changes = changes.of_parents(parent)
    operation = number(profile.functions_operation)
    changes = _folded(sites, changes, names.cover_edges(sites), answers, operation)
    yield names.segments(sites, changes)


class _Names:
    """Encodes the names in the rows as numbers, and decodes them."""

    def __init__(self, rows: pa.Table, profile: Profile, now: int) -> None:
        self.profile = profile
        self._now = now
        self._values: dict[str, pa.Array] = {
            "function": pa.array([function.name for function in profile.functions], pa.string())
        }
        self._codes: dict[str, Integers] = {}
        for name in ("level", "day", *NAMES[METRIC]):
            encoded = rows.column(name).combine_chunks().dictionary_encode()
            self._values[name] = encoded.dictionary
            self._codes[name] = encoded.indices.to_numpy().astype(np.int64)
        self._days = self._values["day"].to_numpy().astype(np.int64)
        self._rows_of = {
            level: self._codes["level"] == code
            for code, level in enumerate(self._values["level"].to_pylist())
        }
        self._start, self._end = (rows.column(name).to_numpy() for name in ("start", "end"))
        none = np.zeros(rows.num_rows, bool)
        of_stretches = self._rows_of.get(STRETCH, none)
        self.stretches = {name: code[of_stretches] for name, code in self._codes.items()}
        self.packed, self.last = self._start[of_stretches], self._end[of_stretches]

    def things(self, level: str, codes: Codes) -> tuple[Things, Integers]:
        """The things of the level that rows with these codes name, and the thing of each row."""
        keys, first, thing = np.unique(
            self._key(level, codes), return_index=True, return_inverse=True
        )
        of_things = {name: codes[name][first] for name in ("day", *NAMES[level])}
        return Things(level, of_things, keys), thing

    def cover_edges(self, things: Things) -> CoverEdges:
        """The starts and stops of the covers of these things within the day."""
        rows = self._rows_of.get(things.level)
        if rows is None or not len(things.keys):
            return CoverEdges(*[np.empty(0, np.int64)] * 3)
        key = self._key(things.level, {name: code[rows] for name, code in self._codes.items()})
        index = np.searchsorted(things.keys, key).clip(max=len(things.keys) - 1)
        known = things.keys[index] == key
        thing, start, end = index[known], self._start[rows][known], self._end[rows][known]
        stops = end < self.day_end(things)[thing]
        return CoverEdges(
            np.concatenate([thing, thing[stops]]),
            np.concatenate([start, end[stops]]),
            np.concatenate([np.ones(len(thing), np.int64), np.full(int(stops.sum()), -1)]),
        )

    def day_start(self, things: Things) -> Integers:
        start: Integers = self._days[things.codes["day"]] * DAY_S
        return start

    def day_end(self, things: Things) -> Integers:
        """The second after each thing's day; on an open day the time of the run (rule 3)."""
        return np.minimum(self.day_start(things) + DAY_S, self._now)

    def validity(self, metrics: Things) -> Integers:
        """The seconds for which a result of each metric is valid (rule 5)."""
        names = self._values["metric_name"].to_pylist()
        seconds = [self.profile.validity(name) or _NEVER_EXPIRES_S for name in names]
        validity: Integers = np.array(seconds, np.int64)[metrics.codes["metric_name"]]
        return validity

    def operations(self, things: Things, name: str, operation_of: Mapping[str, str]) -> Integers:
        """The operation number of each thing, chosen by the thing's `name` column."""
        operations = [operation_of.get(value) for value in self._values[name].to_pylist()]
        number = self.profile.operation_number
        numbers = np.array([number(o) if o is not None else 0 for o in operations], np.int64)
        of_things: Integers = numbers[things.codes[name]]
        return of_things

    def functions(self, services: Things) -> tuple[Integers, Codes]:
        """A row for each function of each service: the service's number, the function's codes."""
        flavours = self._values["service_flavour"].to_pylist()
        pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for code, function in enumerate(self.profile.functions):
            serves = np.array([flavour in function.flavours for flavour in flavours])
            service = np.flatnonzero(serves[services.codes["service_flavour"]])
            pairs.append((service, np.full(len(service), code)))
        child, function_code = (np.concatenate(column) for column in zip(*pairs, strict=True))
        codes = {name: services.codes[name][child] for name in ("day", "site")}
        return child, {**codes, "function": function_code}

    def segments(self, things: Things, changes: StatusChanges) -> pa.Table:
        """The timelines of a level, with the columns SEGMENTS."""
        ends = self.day_end(things)[changes.thing]
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

    def _key(self, level: str, codes: Codes) -> Integers:
        key = codes["day"]
        for name in NAMES[level]:
            key = key * max(len(self._values[name]), 1) + codes[name]
        return key


def _metric_changes(names: _Names, metrics: Things, thing: Integers) -> StatusChanges:
    """The changes of each metric instance within its day, from its stretches (rules 3 to 5)."""
    order = np.lexsort((names.packed, thing))
    thing, packed, last = thing[order], names.packed[order], names.last[order]
    first, status, day_start = packed >> 3, packed & 7, names.day_start(metrics)[thing]
    begins = np.append([True], thing[1:] != thing[:-1])
    before = np.where(begins, _NO_STATUS, np.append([0], status[:-1]))
    expires = np.zeros(len(thing), bool)
    expiry = last
    if any(names.profile.validities):
        validity = names.validity(metrics)[thing]
        expiry = last + validity
        ends = names.day_end(metrics)[thing]
        following = np.append(np.where(begins[1:], ends[:-1], first[1:]), ends[-1:])
        expires = (status != MISSING) & (expiry < following)
        late = np.append([False], expires[:-1]) & ~begins
        before = np.where(late, MISSING, before)
    changed = before != status
    expired = np.flatnonzero(expires)
    return StatusChanges(
        np.concatenate([thing[changed], thing[expired]]),
        np.maximum(
            np.concatenate([first[changed], expiry[expired]]),
            np.concatenate([day_start[changed], day_start[expired]]),
        ),
        np.concatenate([status[changed], np.full(len(expired), MISSING)]),
        np.concatenate([before[changed], status[expired]]),
    )


def _folded(
    parents: Things,
    changes: StatusChanges,
    covers: CoverEdges,
    answers: Integers,
    operation: Integers | int,
) -> StatusChanges:
    """The changes of parents, by parent and time, from the changes of their children.

    Args:
        changes: of the children, with the number of the parent as `thing`.
        covers: of the parents.
        answers: a row per operation, a column per set of states.
        operation: the row of `answers` for each parent, or for all parents.
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
    # The running sum continues from one parent to the next: subtract the sum before each parent.
    base = np.vstack([np.zeros((1, _COVERS + 1), np.int64), counts])[first]
    counts -= np.repeat(base, np.diff(np.append(first, len(thing))), axis=0)

    ends = np.append((thing[1:] != thing[:-1]) | (at[1:] != at[:-1]), [True])[: len(thing)]
    thing, at, counts = thing[ends], at[ends], counts[ends]
    present = sum((counts[:, state] > 0).astype(np.int64) << state for state in _STATES)
    numbers = operation if isinstance(operation, int) else operation[thing]
    covered = COVERED.get(parents.level, EXCLUDED)
    status = np.where(counts[:, _COVERS] > 0, covered, answers[numbers, present])
    begins = np.append([True], thing[1:] != thing[:-1])[: len(thing)]
    before = np.where(begins, _NO_STATUS, np.append([_NO_STATUS], status[:-1])[: len(thing)])
    changed = before != status
    return StatusChanges(thing[changed], at[changed], status[changed], before[changed])
