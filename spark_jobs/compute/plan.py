"""What the tasks know about reports: things as numbers, and those expected on each day.

Tasks never compare names: they follow links from numbers to numbers (compute/planning.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.stretches import Flags
from sam_pipeline.spark_jobs.rules.shares import Integers

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
