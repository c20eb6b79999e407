"""Drafts of a policy: it allows the received records, to be cut down by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Optional

from sam_pipeline.schema.identity.identity import KEY, OPERATOR
from sam_pipeline.schema.identity.policy import OBSERVE, Policy, PublisherRule
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, folded

WIDTH = 100
_KEPT = ("records_per_minute", "dead_letters_per_hour", "until")
"""Keys that a publisher keeps from the present policy, besides name, identities and keys."""


@dataclass(frozen=True)
class Said:
    """The records of one class that one identity has sent.

    `sites` are those that the records name or to which their hosts belong; a `monitoring_host` of
    "" is one that was not named. `new_hosts` are those `hosts` that were not in the topology yet
    when the first record arrived, so that the policy has to name them. `first` and `last` are when
    records arrived.
    """

    identity: str
    message_class: str
    sites: frozenset[str]
    hosts: frozenset[str]
    new_hosts: frozenset[str]
    monitoring_hosts: frozenset[str]
    records: int
    first: Optional[datetime]
    last: Optional[datetime]


def suggested_policy(said: Iterable[Said], present: Optional[Policy] = None) -> Iterator[str]:
    """The lines of a policy that only observes, and allows all of this and nothing else.

    Identities of one publisher of the `present` policy stay together; what operators entered needs
    no publisher.
    """
    publishers: dict[str, tuple[Optional[PublisherRule], list[Said]]] = {}
    unknown = set()
    for one in sorted(said, key=lambda one: (one.identity, one.message_class)):
        kind, _, name = one.identity.partition(":")
        rule = present.publisher_of(one.identity) if present else None
        if kind == KEY and not (rule and name in rule.key_names):
            unknown.add(one.identity)
        elif kind != OPERATOR:
            group = publishers.setdefault(rule.name if rule else one.identity, (rule, []))
            group[1].append(one)
    yield f"mode = {_toml(OBSERVE)}"
    for identity in sorted(unknown):
        yield f"# {_toml(identity)} is left out: its public key is not in the policy"
    for name, (rule, of_publisher) in publishers.items():
        yield ""
        yield "[[publisher]]"
        for key, value in _keys(name, rule, of_publisher).items():
            line = f"{key} = {_toml(value)}"
            if isinstance(value, tuple) and len(line) > WIDTH:
                yield f"{key} = ["
                yield from (f"    {_toml(item)}," for item in value)
                line = "]"
            yield line


def _keys(name: str, rule: Optional[PublisherRule], said: Sequence[Said]) -> Mapping[str, object]:
    identities = {one.identity: None for one in said}
    keys: dict[str, object] = {"name": name, "is": rule.identities if rule else tuple(identities)}
    if rule and rule.keys:
        keys["keys"] = rule.keys
        keys["signed"] = all(identity.startswith(f"{KEY}:") for identity in identities)
    keys["classes"] = _literal(one.message_class for one in said)
    keys["sites"] = _literal(site for one in said for site in one.sites)
    keys["hosts"] = _literal(host for one in said for host in one.new_hosts)
    results = [one for one in said if folded(one.message_class) == folded(METRIC_OUTPUT.name)]
    if results and not any("" in one.monitoring_hosts for one in results):
        named = (host for one in said for host in one.monitoring_hosts if host)
        keys["monitoring_hosts"] = _literal(named)
    return {**keys, **{key: getattr(rule, key) for key in _KEPT if getattr(rule, key, None)}}


def _literal(names: Iterable[str]) -> tuple[str, ...]:
    """Patterns that match these names only."""
    return tuple(re.sub(r"[*?\[]", r"[\g<0>]", name) for name in sorted({*names}))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, date)):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{"".join(map(_escaped, str(value)))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"
