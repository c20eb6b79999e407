"""Causes that several sites had at once: a sign that a probe or a broker failed, not the sites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.explain.causes import Cause, Key
from sam_pipeline.spark_jobs.explain.incidents.incident import Incident

LOOK_AT = "look at the probe or the broker first"


@dataclass(frozen=True)
class SharedCause:
    """The `sites` that had incidents with the same cause at one time, [start, end).

    `cause` is that of one incident, with its failures, as an example.
    """

    cause: Cause
    sites: Sequence[str]
    start: int
    end: int


def shared_causes(incidents: Iterable[Incident]) -> list[SharedCause]:
    """The most sites at once for each cause of at least two, the largest number of sites first.

    The cause of an incident is its first: the worst status, and of these the most frequent. Of two
    times with equally many sites the earlier counts. Incidents that overlap one another, even
    through others, give one entry.
    """
    of_cause: dict[Key, tuple[Cause, list[Incident]]] = {}
    for incident in sorted(incidents, key=lambda incident: (incident.start, incident.site)):
        if cause := incident.cause:
            of_cause.setdefault(cause.key, (cause, []))[1].append(incident)
    shared = []
    for cause, of_one in of_cause.values():
        for overlapping in _overlapping(of_one):
            most: list[Incident] = []
            lasting: list[Incident] = []
            for incident in overlapping:  # the number of sites is largest when one of them begins
                lasting = [each for each in lasting if each.end > incident.start] + [incident]
                if len(lasting) > len(most):
                    most = lasting
            if len(most) > 1:
                start, end = max(each.start for each in most), min(each.end for each in most)
                shared.append(SharedCause(cause, sorted(each.site for each in most), start, end))
    return sorted(shared, key=lambda each: (-len(each.sites), each.start, each.cause.text))


def _overlapping(incidents: Sequence[Incident]) -> list[list[Incident]]:
    """The incidents, which are in order of time, cut where none lasts."""
    chains: list[list[Incident]] = []
    end = 0
    for incident in incidents:
        if not chains or incident.start >= end:
            chains.append([])
        chains[-1].append(incident)
        end = max(end, incident.end)
    return chains
