"""Reads `publishers.toml`, the file of the policy, and reports all of its problems at once."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import KEY
from sam_pipeline.schema.identity.policy import Policy, PublisherRule
from sam_pipeline.schema.program.extras import how_to_install
from sam_pipeline.schema.settings.section import examine_file


def load_policy(path: Path) -> Policy:
    """The policy of a file.

    Raises:
        ConfigError: all problems of the file at once.
    """
    findings = examine_file(Policy, path)
    problems = list(findings.problems)
    publishers: tuple[Optional[PublisherRule], ...] = findings.values.get("publishers", ())
    owners: dict[str, str] = {}
    for number, publisher in enumerate(publishers, 1):
        place = f"publisher[{number}]"
        # The problems of a publisher of None are among those of the file.
        for key, problem in _problems(publisher, place, owners) if publisher else ():
            problems.append(
                f"{findings.position('publishers', number, key)}: {place} {key}: {problem}"
            )
    if problems:
        raise ConfigError(problems)
    return Policy(**findings.values)


def usable_policy(path: Optional[Path]) -> Optional[Policy]:
    """The policy of a file, None without one.

    Raises:
        ConfigError: the file has problems, or no signature could be verified.
    """
    policy = load_policy(path) if path else None
    if policy and policy.keys and find_spec("nacl") is None:
        why = "its keys can't be used: PyNaCl is not installed"
        raise ConfigError([f"{path}: {why}", *how_to_install("nacl")])
    return policy


def _problems(
    publisher: PublisherRule, place: str, owners: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Keys and problems of rules that do not fit together.

    `owners` are the places of the publishers before, by their names, identities and keys.
    """
    if publisher.key_names and not publisher.keys:
        yield "is", f"{KEY}:{publisher.key_names[0]} needs `keys`"
    if publisher.keys and not publisher.key_names:
        yield "keys", f"they need an identity {KEY}:NAME in `is`"
    if publisher.signed and not publisher.keys:
        yield "signed", "it needs `keys`: nothing would be allowed"
    values = [
        *(("name", text) for text in [publisher.name]),
        *(("is", text) for text in publisher.identities),
        *(("keys", text) for text in publisher.keys),
    ]
    for key, text in values:
        owner = owners.setdefault(f"{key} {text}", place)
        if owner != place:
            yield key, f"{text} is also in {owner}"
