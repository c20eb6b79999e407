"""What a profile counts, in words: for pages, and for the authors of profiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from itertools import combinations, groupby

from sam_pipeline.schema.program.wording import duration
from sam_pipeline.spark_jobs.profiles.profile import ARGO, Flavour, Profile, Range, Threshold
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, Operation

Words = Sequence[tuple[str, str]]

ARGO_WEIGHTS = "a site counts with its weight + 1, as in ARGO"
"""What stands beside the figures of groups of such a profile."""

_CONJUNCTIONS = {"AND": "and", "OR": "or"}


@dataclass(frozen=True)
class WordsOfDays:
    """What counted on some successive days: headings, each with its sentence."""

    days: Period
    words: Words


def in_words(profile: Profile) -> list[tuple[str, str]]:
    """What the report counts: headings, each with a sentence."""
    functions = []
    for function in profile.functions:
        part = _expression(function.flavours_operation, function.flavours)
        nested = len(profile.functions) > 1 and len(function.flavours) > 1
        functions.append(f"({part})" if nested and part[-1] != ")" else part)
    downtimes = "none count"
    if profile.downtimes:
        kinds = _listed(profile.downtimes, "and")
        downtimes = f"{kinds} lower the availability, not the reliability; others change nothing"
    validity = [
        f"a result is valid {_valid_for(profile.validity_s)}",
        *(f"of {metric}: {_valid_for(s)}" for metric, s in profile.validity_of.items()),
    ]
    if profile.vo is None:
        results = "of any VO"
    else:
        results = f"of VO {profile.vo}" if profile.vo else "without a VO"
    if profile.fqan is not None:
        results += f" and FQAN {profile.fqan}" if profile.fqan else " and without an FQAN"
    return [
        *([("Sites", only)] if (only := expected_sites(profile)) else []),
        ("Up when", _expression(profile.functions_operation, functions)),
        *(
            (f"Metrics of {flavour.name}", _flavour(profile, flavour))
            for flavour in profile.flavours
        ),
        ("Results", f"{results}; OK and WARNING are up, and UNKNOWN and MISSING do not count"),
        ("Validity", "; ".join(validity)),
        ("Downtimes", downtimes),
        *((f"Threshold on {rule.metric_name}", _threshold(rule)) for rule in profile.thresholds),
        *([("Groups", ARGO_WEIGHTS)] if profile.weights == ARGO else []),
        ("Targets", _targets(vars(profile.targets))),
        *own_targets(profile),
        *(
            (f"Operation {operation.name}", _operation(operation))
            for operation in profile.operations
            if operation.name not in _CONJUNCTIONS
        ),
    ]


def expected_sites(profile: Profile) -> str:
    """Which sites the patterns of a profile choose; empty without patterns."""
    parts = []
    if profile.sites:
        parts.append(f"those named {_listed(profile.sites, 'or')}")
    if profile.groups:
        parts.append(f"members of {_listed(profile.groups, 'or')}")
    return f"only {' and '.join(parts)}" if parts else ""


def own_targets(profile: Profile) -> Iterator[tuple[str, str]]:
    """The targets that differ for some groups and sites."""
    for (group_type, name), targets in profile.targets_of_groups.items():
        yield f"Targets of {group_type} {name}", _targets(targets)
    for site, targets in profile.targets_of_sites.items():
        yield f"Targets of {site}", _targets(targets)


def words_by_day(profiles: Iterable[tuple[date, Profile]]) -> list[WordsOfDays]:
    """What counted on successive days, the newest first.

    The first entry is complete; the others have only the differences from the next newer one.
    """
    entries: list[WordsOfDays] = []
    newer: Words = ()
    described = sorted(((day, in_words(profile)) for day, profile in profiles), reverse=True)
    for words, of_words in groupby(described, key=lambda entry: entry[1]):
        days = [day for day, _ in of_words]
        gone = [(heading, "none") for heading, _ in newer if heading not in dict(words)]
        different = [entry for entry in words if entry not in newer]
        entries.append(
            WordsOfDays(Period(days[-1], days[0]), [*different, *(gone if newer else ())])
        )
        newer = words
    return entries


def _flavour(profile: Profile, flavour: Flavour) -> str:
    metrics = _listed(flavour.metrics, _CONJUNCTIONS.get(profile.metrics_operation, "and"))
    if profile.metrics_operation not in _CONJUNCTIONS and len(flavour.metrics) > 1:
        metrics += f", combined by {profile.metrics_operation}"
    where = {"AND": "at every endpoint", "OR": "at one or more endpoints"}.get(
        flavour.endpoints_operation, f"endpoints combined by {flavour.endpoints_operation}"
    )
    unused = "" if profile.functions_of(flavour.name) else "; does not count for its sites"
    return f"{metrics}, {where}{unused}"


def _valid_for(seconds: int | None) -> str:
    if seconds is None:
        return "until the next one, or the end of the next day"
    return f"for {duration(seconds)}"


def _threshold(rule: Threshold) -> str:
    where = " ".join(
        f"{word} {name}"
        for word, name in (("of", rule.service_flavour), ("on", rule.host_name))
        if name
    )
    levels = (("CRITICAL", rule.critical), ("WARNING", rule.warning))
    triggers = [f"{level} if {rule.label} is {_outside(r)}" for level, r in levels if r]
    return f"{where}{': ' if where else ''}{', '.join(triggers)}"


def _outside(limits: Range) -> str:
    low, high = ("" if bound is None else _number(bound) for bound in (limits.low, limits.high))
    if limits.inside:
        if low and high:
            return f"from {low} to {high}"
        return f"at least {low}" if low else f"at most {high}"
    if low and high:
        return f"outside {low} to {high}"
    return f"below {low}" if low else f"above {high}"


def _targets(targets: Mapping[str, Fraction]) -> str:
    texts = {
        "availability": "availability {} %",
        "reliability": "reliability {} %",
        "unknown": "at most {} % not known",
        "coverage": "groups: at least {} % of their sites with a figure",
    }
    return ", ".join(texts[name].format(_number(value)) for name, value in targets.items())


def _operation(operation: Operation) -> str:
    """The order of which it takes the later status, or each pair with its result."""
    pairs = [(a, b, operation.table[a][b]) for a, b in combinations(range(len(FOLDED)), 2)]
    if all(result in (a, b) for a, b, result in pairs):
        wins = [sum(state == result for *_, result in pairs) for state in range(len(FOLDED))]
        order = sorted(FOLDED, key=lambda name: wins[FOLDED.index(name)])
        return f"the later of {' < '.join(order)}"
    return "; ".join(f"{FOLDED[a]} and {FOLDED[b]}: {FOLDED[result]}" for a, b, result in pairs)


def _expression(operation: str, parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    if operation in _CONJUNCTIONS:
        return f" {_CONJUNCTIONS[operation]} ".join(parts)
    return f"{operation} of ({', '.join(parts)})"


def _listed(names: Sequence[str], conjunction: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def _number(value: Fraction) -> str:
    return f"{float(value):g}"
