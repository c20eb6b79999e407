"""The texts of probes: summaries, details and performance data as plugins write them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

SUMMARIES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "JobSubmit": {
        "OK": ("job finished in {n} s", "success, {n} s in queue"),
        "WARNING": ("job still queued after {n} s",),
        "CRITICAL": (
            "job aborted: no worker node took it in {n} s",
            "submission refused: code {n}",
        ),
        "UNKNOWN": ("probe killed after {n} s",),
    },
    "Put": {
        "OK": ("{n} MB written and read back",),
        "WARNING": ("write took {n} s",),
        "CRITICAL": ("no space left in pool {n}", "connection timed out after {n} s"),
        "UNKNOWN": ("no credentials for the probe ({n} tries)",),
    },
    "": {
        "OK": ("answered in {n} ms",),
        "WARNING": ("answered slowly: {n} ms",),
        "CRITICAL": ("no answer within {n} s", "connection refused ({n} tries)"),
        "UNKNOWN": ("name server gave no address ({n} tries)",),
    },
}


def summary(chance: random.Random, metric: str, status: str) -> str:
    """One line, as a plugin prints first."""
    texts = _texts(metric)[status]
    return f"{status}: " + chance.choice(texts).format(n=chance.randrange(2, 900))


def details(chance: random.Random, metric: str, status: str) -> str:
    """Some lines if the status is not OK, at times with unusual characters."""
    if status == "OK":
        return ""
    lines = [
        f"running {metric}",
        f"step {chance.randrange(1, 9)} failed after {chance.random():.3f} s",
    ]
    if chance.random() < 0.3:
        lines += ["", "Traceback: «délai dépassé»", "  at worker: line 42"]
    return "\n".join(lines)


def performance_data(chance: random.Random, metric: str) -> str:
    """Sometimes empty, as with many plugins."""
    if "Ls" in metric:
        return ""
    return f"time={chance.random() * 30:.3f}s;30;60;0"


def _texts(metric: str) -> Mapping[str, Sequence[str]]:
    return next(texts for ending, texts in SUMMARIES.items() if metric.endswith(ending))
