"""Status timelines of all levels: sweeping counters instead of joined intervals.

At every instant a fold needs the set of states that the children are in. So each change of a child
is an event (`status` begins, `before` ends) that moves one counter per state. A running sum over
the events of a parent gives the number of children in each state. The states with a count above
zero are the set, and the operation has an answer for each of the 64 sets. A downtime or an
exclusion is one more counter, which overrides the children. The same fold serves every level.

Times are epoch seconds, statuses are codes (rules.statuses), and things are numbers: tasks never
compare names, they follow links from numbers to numbers (compute/planning.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.stretches import Flags, pack, second_of, status_of
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, METRIC, SITE
from sam_pipeline.spark_jobs.rules.shares import Integers
from sam_pipeline.spark_jobs.rules.statuses import DOWNTIME, EXCLUDED, FOLDED, MISSING, UNKNOWN

# The status that a cover gives, by its level (rules 7 and 8).
_COVERED = {METRIC: EXCLUDED, ENDPOINT: DOWNTIME, SITE: UNKNOWN}
_NO_STATUS = -1
_STATES = range(len(FOLDED))
_COVERS = len(FOLDED)

NOT_IN_PROFILE = "not-in-profile"
OTHER_VO = "other-vo"
NOT_IN_TOPOLOGY = "not-in-topology"
REASONS = (NOT_IN_PROFILE, OTHER_VO, NOT_IN_TOPOLOGY)
"""Why results that are read do not count."""
COUNTS = len(REASONS)


class Links(NamedTuple):
    """Links from numbers to numbers: those of n are `to[begin[n]:begin[n + 1]]`."""

    begin: Integers
    to: Integers

    def follow(self, numbers: Integers) -> tuple[Integers, Integers]:
        """A row for each link: the position in `numbers` from which it starts, and its end."""
        first = self.begin[numbers]
        count = self.begin[numbers + 1] - first
        position = np.repeat(np.arange(len(numbers)), count)
        place = np.arange(len(position)) - np.repeat(np.cumsum(count) - count, count)
        return position, self.to[first[position] + place]


class Level(NamedTuple):
    """The things of a level, numbered from 0, with a row for each.

    `names` has the columns ALL_NAMES. `parents` are links from the things of the level below (at
    the lowest level: from each thing to itself). `operation` is the row of Plan.answers that folds
    the children of a thing. `group` is that of its site.
    """

    name: str
    names: pa.Table
    parents: Links
    operation: Integers
    group: Integers


class Covers(NamedTuple):
    """Times [start, end) of a day that override the status of things (epoch s)."""

    thing: Integers
    start: Integers
    end: Integers


_NO_COVERS = Covers(*[np.empty(0, np.int64)] * 3)


class PlannedDay(NamedTuple):
    """A day [start, end) of a report (epoch s), and its run; an open day ends at the run (rule 3).

    `metrics` flags the metric things that are expected. `covers` are those of each level.
    """

    run_id: int
    start: int
    end: int
    metrics: Flags
    covers: Mapping[str, Covers]


class Plan(NamedTuple):
    """The plan of a report.

    `levels` lead from metrics to sites. `answers` has the folded status of each set of states, one
    row for each operation. `validity` is that of each metric thing, and `look_back` how long before
    a day its results count, both in seconds. `refused` is the reason (the place in REASONS) why the
    results of an instance never count, or COUNTS, and `metrics` are links from instances to their
    metric things. If `one_vo`, all results of a metric thing must be of the same VO.
    """

    levels: Sequence[Level]
    answers: Integers
    validity: Integers
    look_back: Integers
    refused: Integers
    metrics: Links
    one_vo: bool
    days: Sequence[PlannedDay]


class MetricStretches(NamedTuple):
    """What metric things measured, as stretches: first second and status (packed), last second."""

    thing: Integers
    packed: Integers
    last: Integers


class Timeline(NamedTuple):
    """The times [start, end) in which things had a status, ordered by thing and time."""

    thing: Integers
    start: Integers
    end: Integers
    status: Integers


class _Changes(NamedTuple):
    """Changes of things from `before` to `status`; -1 stands for no status."""

    thing: Integers
    at: Integers
    status: Integers
    before: Integers


def fold(
    plan: Plan, day: PlannedDay, group: int, measured: MetricStretches
) -> Iterator[tuple[Level, Timeline]]:
    """The timelines of a day for a group of sites, metrics first (availability rules 3 to 10).

    Args:
        measured: in any order; everything on the day, and the last results before it that count.
    """
    expected = np.flatnonzero(day.metrics & (plan.levels[0].group == group))
    # Older than all results that count.
    never = day.start - plan.look_back[expected] - 1
    changes = _metric_changes(
        MetricStretches(
            np.concatenate([expected, measured.thing]),
            np.concatenate([pack(never, MISSING), measured.packed]),
            np.concatenate([never, measured.last]),
        ),
        plan.validity,
        day,
    )
    for level in plan.levels:
        position, parent = level.parents.follow(changes.thing)
        of_children = _Changes(parent, *(column[position] for column in changes[1:]))
        covers = day.covers.get(level.name, _NO_COVERS)
        of_group = level.group[covers.thing] == group
        covers = Covers(*(column[of_group] for column in covers))
        changes = _folded(level, of_children, covers, plan.answers, day)
        same = changes.thing[1:] == changes.thing[:-1]
        end = np.append(np.where(same, changes.at[1:], day.end), [day.end])[: len(changes.at)]
        yield level, Timeline(changes.thing, changes.at, end, changes.status)


def _metric_changes(measured: MetricStretches, validity: Integers, day: PlannedDay) -> _Changes:
    """The changes of each metric thing within the day (rules 3 to 5)."""
    order = np.lexsort((measured.packed, measured.thing))
    thing, packed, last = (column[order] for column in measured)
    first, status = second_of(packed), status_of(packed)
    begins = _begins(thing)
    following = np.append(np.where(begins[1:], day.end, first[1:]), [day.end])[: len(thing)]
    expiry = last + validity[thing]
    expires = (status != MISSING) & (expiry < following)
    before = _previous(status, begins)
    before = np.where(np.append([False], expires[:-1])[: len(thing)] & ~begins, MISSING, before)
    changed = before != status
    return _Changes(
        np.concatenate([thing[changed], thing[expires]]),
        np.maximum(np.concatenate([first[changed], expiry[expires]]), day.start),
        np.concatenate([status[changed], np.full(int(expires.sum()), MISSING)]),
        np.concatenate([before[changed], status[expires]]),
    )


def _folded(
    level: Level, of_children: _Changes, covers: Covers, answers: Integers, day: PlannedDay
) -> _Changes:
    """The changes of the things of a level, by thing and time, from those of their children."""
    stops = covers.end < day.end
    thing = np.concatenate([of_children.thing, covers.thing, covers.thing[stops]])
    at = np.concatenate([of_children.at, covers.start, covers.end[stops]])
    moves = np.zeros((len(thing), _COVERS + 1), np.int32)
    count = len(of_children.thing)
    for state in _STATES:
        moves[:count, state] = of_children.status == state
        moves[:count, state] -= of_children.before == state
    moves[count:, _COVERS] = 1
    moves[count + len(covers.thing) :, _COVERS] = -1

    order = np.lexsort((at, thing))
    thing, at = thing[order], at[order]
    counts = np.cumsum(moves[order], axis=0, dtype=np.int32)
    first = np.flatnonzero(_begins(thing))
    # The running sum continues from one thing to the next: subtract the sum before each thing.
    base = np.vstack([np.zeros((1, _COVERS + 1), np.int32), counts])[first]
    counts -= np.repeat(base, np.diff(np.append(first, len(thing))), axis=0)

    ends = np.append((thing[1:] != thing[:-1]) | (at[1:] != at[:-1]), [True])[: len(thing)]
    thing, at, counts = thing[ends], at[ends], counts[ends]
    present = sum((counts[:, state] > 0).astype(np.int64) << state for state in _STATES)
    of_states = answers[level.operation[thing], present]
    status = np.where(counts[:, _COVERS] > 0, _COVERED.get(level.name, EXCLUDED), of_states)
    before = _previous(status, _begins(thing))
    changed = before != status
    return _Changes(thing[changed], at[changed], status[changed], before[changed])


def _begins(thing: Integers) -> np.ndarray:
    """Whether each row is the first one of its thing."""
    return np.append([True], thing[1:] != thing[:-1])[: len(thing)]


def _previous(status: Integers, begins: np.ndarray) -> Integers:
    """The status of the row before, or no status for the first row of a thing."""
    return np.where(begins, _NO_STATUS, np.append([_NO_STATUS], status[:-1])[: len(status)])
