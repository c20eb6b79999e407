"""Looks for probes that have stopped reporting, in turns between which results are folded."""

from __future__ import annotations

from sqlalchemy import Engine

from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.silence.coverage import Coverage
from sam_pipeline.consumer.silence.silences import PROBE, ProbeSilences, Silence
from sam_pipeline.consumer.sinks.upkeep import TurnResult
from sam_pipeline.sql.loading.silence import SilentProbe, is_folded, newest_unfolded, survey


class ProbeWatch:
    """Judges the statuses of the database by the coverage of the daemon.

    What had arrived when the coverage was noted must be folded first: until then its results are
    missing in the statuses.
    """

    def __init__(self, engine: Engine, state: State) -> None:
        self._engine = engine
        self._state = state
        self._noted: tuple[Coverage, int] | None = None

    def turn(self) -> TurnResult:
        """Note the coverage, or judge by the one noted; raises DatabaseAway."""
        coverage = self._state.coverage
        if self._noted is None and coverage is not None:
            self._noted = coverage, newest_unfolded(self._engine)
        if self._noted is None or not is_folded(self._engine, self._noted[1]):
            return TurnResult.WAITING
        noted, self._noted = self._noted[0], None
        found = survey(self._engine, noted.until, noted.seconds_since_gaps())
        silences = tuple(map(_silence_of, found.probes))
        self._state.probe_silences = ProbeSilences(found.silent, silences, found.sites)
        return TurnResult.WAITING


def _silence_of(probe: SilentProbe) -> Silence:
    flavour, host, metric, vo = probe.name
    name = f"{host} {flavour} {metric}" + (f" (VO {vo})" if vo else "")
    return Silence(PROBE, name, probe.last, probe.limit_s)
