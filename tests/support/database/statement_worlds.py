"""Random worlds of statements in a database: what the views show of each of them.

facts = facts_after(databases, dialect, arriving(worlds), revoking(FORGER))
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import Loader, Loading, load_all
from tests.oracle.databases import Databases
from tests.support.builders import NOW
from tests.support.database.sql_rows import stored
from tests.worlds.statements import Statement

VIEWS = (
    *("metricOutput", "serviceEndpoint", "siteGroup", "siteContact", "downtime"),
    "current_status",
)
NOT_COMPARED = ("receivedAt", "summary")
"""When a row was stored; and of a current status, which of two results of one second it is from."""
_WORLD = re.compile(r"\bw\d+(?=-)")

Worlds = Sequence[Sequence[Statement]]
Facts = Mapping[str, list[str]]
"""The rows of all views by world."""
Act = Callable[[Engine], None]
"""What happens to a database."""


def arriving(
    worlds: Worlds, policy: Policy | None = None, letters: Counter[str] | None = None
) -> Act:
    """All worlds' first statements are loaded together, then their second ones, and so on.

    Without a policy each of them becomes a row; with one, `letters` counts the others by reason.
    """

    def arrive(engine: Engine) -> None:
        catalogue, authority = Catalogue(engine), Authority(policy) if policy else None
        refused = Counter() if letters is None else letters
        for step in zip_longest(*worlds):
            messages = [said.message(f"w{number}") for number, said in enumerate(step) if said]
            loaded = load_all(
                Loading(Loader(engine, catalogue, authority=authority), messages, NOW)
            )
            assert letters is not None or not loaded.dead_letters
            refused.update(loaded.dead_letters)
        fold_all(engine)

    return arrive


def without(worlds: Worlds, *publishers: str) -> Worlds:
    return [[said for said in world if said.publisher not in publishers] for world in worlds]


def facts_after(databases: Databases, dialect: str, *acts: Act) -> Facts:
    """What the views show after the acts, in an empty database."""
    facts: dict[str, list[str]] = {}
    with databases.empty(dialect) as engine:
        for act in acts:
            act(engine)
        for view in VIEWS:
            for row in stored(engine, view):
                values = sorted(pair for pair in row.items() if pair[0] not in NOT_COMPARED)
                fact = f"{view}: {values}"
                name = _WORLD.search(fact)
                assert name, f"not of a world: {fact}"
                facts.setdefault(name.group(), []).append(fact)
    return {name: sorted(of_world) for name, of_world in facts.items()}


def assert_same(facts: Facts, expected: Facts, worlds: Worlds) -> None:
    """Fail with the shortest world that differs."""
    names = {f"w{number}": world for number, world in enumerate(worlds)}
    different = [name for name in names if facts.get(name) != expected.get(name)]
    if different:
        name = min(different, key=lambda name: len(names[name]))
        said = "\n".join(map(str, names[name]))
        wrong, right = (set(of.get(name, [])) for of in (facts, expected))
        more, missing = "\n".join(sorted(wrong - right)), "\n".join(sorted(right - wrong))
        pytest.fail(
            f"{len(different)} worlds differ, the shortest one, {name}:\n{said}\n"
            f"too much:\n{more}\nmissing:\n{missing}"
        )
