"""The statuses and the operations that fold them (availability rule 10).

A status is represented by its index in STATUSES, which are in the order of AND. A fold depends on
the *set* of states that are present, so an operation has one answer for each of the 64 sets of the
six states. EXCLUDED adds nothing to a set, and the empty set folds to EXCLUDED.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    """A truth table over the six states that fold: `table[a][b]` is a status code."""

    name: str
    table: tuple[tuple[int, ...], ...]

    @cached_property
    def answers(self) -> tuple[int, ...]:
        """The folded status for each set of states; bit i of the index means state i is present."""
        sets = [[state for state in range(len(FOLDED)) if s >> state & 1] for s in range(SETS)]
        return tuple(
            reduce(lambda a, b: self.table[a][b], states) if states else EXCLUDED for states in sets
        )


def ranked(name: str, order: Sequence[int]) -> Operation:
    """The operation whose result is the later of two states in `order`."""
    states = range(len(FOLDED))
    return Operation(name, tuple(tuple(max(a, b, key=order.index) for b in states) for a in states))


AND = ranked("AND", range(len(FOLDED)))
OR = ranked("OR", _OR_ORDER)


def own_operation(
    name: str, rows: Iterable[object]
) -> tuple[Operation | None, list[tuple[int, str]]]:
    """Build the operation of a profile's own table `[[a, b, result], …]`.

    A row counts in both directions unless both are given. The table must be complete, commutative,
    idempotent and associative: otherwise a status would depend on the order of the children.

    Returns:
        The operation; or None and the problems, each a row number from 1 (0 for the whole table)
        and a message.
    """
    results: dict[tuple[int, int], int] = {}
    problems = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != 3 or any(state not in FOLDED for state in row):
            message = f"{repr(row)[:60]} is not a triple [a, b, result] of {', '.join(FOLDED)}"
            problems.append((number, message))
            continue
        a, b, result = map(FOLDED.index, row)
        if results.setdefault((a, b), result) != result:
            problems.append((number, f"{row[0]} with {row[1]} has two results"))
    if problems:
        return None, problems
    states = range(len(FOLDED))
    missing = [
        f"no result for {FOLDED[a]} with {FOLDED[b]}"
        for a, b in combinations_with_replacement(states, 2)
        if (a, b) not in results and (b, a) not in results
    ]
    if missing:
        more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
        return None, [(0, f"not complete: {'; '.join(missing[:3])}{more}")]
    table = tuple(
        tuple(results[(a, b) if (a, b) in results else (b, a)] for b in states) for a in states
    )
    problem = next(_broken_laws(table, results), None)
    return (None, [(0, problem)]) if problem else (Operation(name, table), [])


def _broken_laws(
    table: tuple[tuple[int, ...], ...], pairs: Iterable[tuple[int, int]]
) -> Iterator[str]:
    """The violations of the laws by a complete table; `pairs` are those that the profile gives."""
    for a, b in pairs:
        if table[a][b] != table[b][a]:
            yield (
                f"not commutative: {FOLDED[a]} with {FOLDED[b]} is {FOLDED[table[a][b]]}, "
                f"{FOLDED[b]} with {FOLDED[a]} is {FOLDED[table[b][a]]}"
            )
    for state, name in enumerate(FOLDED):
        if table[state][state] != state:
            yield f"not idempotent: {name} with {name} is {FOLDED[table[state][state]]}"
    for a, b, c in product(range(len(FOLDED)), repeat=3):
        left, right = table[table[a][b]][c], table[a][table[b][c]]
        if left != right:
            yield (
                f"not associative at ({FOLDED[a]}, {FOLDED[b]}, {FOLDED[c]}): "
                f"from the left {FOLDED[left]}, from the right {FOLDED[right]}"
            )
