"""The statuses and the operations that fold them (availability rule 10).

A status is its code: its place in STATUSES, which is the AND order. A fold joins the *set* of the
states that are present, so an operation is one answer for each of the 64 sets of the six states;
EXCLUDED adds nothing to a set, and the empty set is EXCLUDED.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations_with_replacement, product

STATUSES = ("OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL", "EXCLUDED")
OK, WARNING, UNKNOWN, MISSING, DOWNTIME, CRITICAL, EXCLUDED = range(7)
FOLDED = STATUSES[:EXCLUDED]
SETS = 1 << len(FOLDED)

_OR_ORDER = (MISSING, DOWNTIME, UNKNOWN, CRITICAL, WARNING, OK)


@dataclass(frozen=True)
class Operation:
    """A truth table over the six states that a fold meets: `table[a][b]` is a status code."""

    name: str
    table: tuple[tuple[int, ...], ...]

    @cached_property
    def answers(self) -> tuple[int, ...]:
        """The folded status for each set of states; bit i of the index: state i is present."""
        return tuple(self._fold(present) for present in range(SETS))

    def _fold(self, present: int) -> int:
        states = [state for state in range(len(FOLDED)) if present >> state & 1]
        return reduce(lambda a, b: self.table[a][b], states) if states else EXCLUDED


def ranked(name: str, order: Sequence[int]) -> Operation:
    """The operation that answers the later of two states in `order`."""
    table = tuple(
        tuple(max(a, b, key=order.index) for b in range(len(FOLDED))) for a in range(len(FOLDED))
    )
    return Operation(name, table)


AND = ranked("AND", range(len(FOLDED)))
OR = ranked("OR", _OR_ORDER)


def own_operation(
    name: str, rows: Iterable[object]
) -> tuple[Operation | None, list[tuple[int, str]]]:
    """The operation of a profile's own table `[[a, b, result], …]`, or what is wrong with it.

    A pair may be given once for both directions. Refused unless complete, commutative, idempotent
    and associative: else the answer would depend on the order of the children. A problem has the
    number of its row, from 1 on; 0 is the whole table.
    """
    given, problems = _read(rows)
    if problems:
        return None, problems
    missing = [
        f"no result for {FOLDED[a]} with {FOLDED[b]}"
        for a, b in combinations_with_replacement(range(len(FOLDED)), 2)
        if (a, b) not in given and (b, a) not in given
    ]
    if missing:
        more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
        return None, [(0, f"not complete: {'; '.join(missing[:3])}{more}")]
    problem = _not_commutative(given) or _not_idempotent(given) or _not_associative(given)
    return (None, [(0, problem)]) if problem else (Operation(name, _both_ways(given)), [])


def _read(rows: Iterable[object]) -> tuple[dict[tuple[int, int], int], list[tuple[int, str]]]:
    given: dict[tuple[int, int], int] = {}
    problems = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != 3 or any(word not in FOLDED for word in row):
            words = f"{repr(row)[:60]} is no triple [a, b, result] of {', '.join(FOLDED)}"
            problems.append((number, words))
            continue
        a, b, result = (FOLDED.index(word) for word in row)
        if given.setdefault((a, b), result) != result:
            problems.append((number, f"{row[0]} with {row[1]} has two results"))
    return given, problems


def _both_ways(given: Mapping[tuple[int, int], int]) -> tuple[tuple[int, ...], ...]:
    size = range(len(FOLDED))
    return tuple(tuple(_result(given, a, b) for b in size) for a in size)


def _result(given: Mapping[tuple[int, int], int], a: int, b: int) -> int:
    return given[a, b] if (a, b) in given else given[b, a]


def _not_commutative(given: Mapping[tuple[int, int], int]) -> str | None:
    for (a, b), result in given.items():
        other = _result(given, b, a)
        if other != result:
            return (
                f"not commutative: {FOLDED[a]} with {FOLDED[b]} is {FOLDED[result]}, "
                f"{FOLDED[b]} with {FOLDED[a]} is {FOLDED[other]}"
            )
    return None


def _not_idempotent(given: Mapping[tuple[int, int], int]) -> str | None:
    for state in range(len(FOLDED)):
        if given[state, state] != state:
            name = FOLDED[state]
            return f"not idempotent: {name} with {name} is {FOLDED[given[state, state]]}"
    return None


def _not_associative(given: Mapping[tuple[int, int], int]) -> str | None:
    table = _both_ways(given)
    for a, b, c in product(range(len(FOLDED)), repeat=3):
        left, right = table[table[a][b]][c], table[a][table[b][c]]
        if left != right:
            names = f"({FOLDED[a]}, {FOLDED[b]}, {FOLDED[c]})"
            return (
                f"not associative at {names}: from the left {FOLDED[left]}, "
                f"from the right {FOLDED[right]}"
            )
    return None
