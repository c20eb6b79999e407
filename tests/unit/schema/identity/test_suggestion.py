"""A suggested policy is valid, and allows what was said and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.identity.policy import OBSERVE, Policy, refusal
from sam_pipeline.schema.identity.policy_file import load_policy
from sam_pipeline.schema.identity.suggestion import Said, suggested_policy

NOW = datetime(2026, 11, 20, tzinfo=UTC)
RESULTS = Said(
    "uid:1000",
    "metricOutput",
    frozenset({"SITE-A"}),
    frozenset({"ce01.example.org", "new.example.org"}),
    frozenset({"new.example.org"}),
    frozenset({"nagios.example.org"}),
    10,
    NOW,
    NOW,
)
KEY = "ed25519:MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
PRESENT = f"""
mode = "enforce"
[[publisher]]
name = "site-a"
is = ["key:a", "uid:1000"]
keys = ["{KEY}"]
signed = true
classes = ["*"]
sites = ["*"]
until = 2027-06-01
records_per_minute = 20_000
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy") / "publishers.toml"


def suggested(file: Path, said: Iterable[Said], present: Policy | None = None) -> Policy:
    file.write_text("\n".join(suggested_policy(said, present)), encoding="utf-8")
    return load_policy(file)


def allows(
    policy: Policy, identity: str, message_class: str, sites: Iterable[str] = (), **row: str
) -> bool:
    publisher = policy.publisher_of(identity)
    return refusal(publisher, message_class, row, set(sites), NOW.date()) is None


OTHERS: tuple[dict[str, Any], ...] = (
    {"identity": "uid:1001"},
    {"message_class": "downtime"},
    {"sites": ["SITE-B"]},
    {"sites": [], "hostName": "ce01.example.org"},
    {"monitoringHost": "other.example.org"},
)


def test_what_was_said_is_allowed_and_nothing_else(file: Path) -> None:
    policy = suggested(file, [RESULTS])
    said: dict[str, Any] = {"identity": "uid:1000", "message_class": "metricOutput"}
    said |= {"hostName": "CE01.example.org", "monitoringHost": "nagios.example.org"}

    assert policy.mode == OBSERVE
    assert allows(policy, **said, sites=["SITE-A"])
    assert allows(policy, **{**said, "hostName": "new.example.org"}, sites=[])
    for change in OTHERS:
        assert not allows(policy, **{**said, "sites": ["SITE-A"], **change})


def test_a_publisher_of_the_present_policy_keeps_its_name_keys_and_limits(file: Path) -> None:
    file.write_text(PRESENT)
    present, signed = load_policy(file), replace(RESULTS, identity="key:a")

    [publisher] = suggested(file, [signed], present).publishers
    [unsigned_too] = suggested(file, [RESULTS, signed], present).publishers

    assert (publisher.name, publisher.identities) == ("site-a", ("key:a", "uid:1000"))
    assert (publisher.keys, publisher.signed) == ((KEY,), True)
    assert (publisher.records_per_minute, publisher.until) == (20_000, date(2027, 6, 1))
    assert publisher.sites == ("SITE-A",)
    assert not unsigned_too.signed  # signatures are no must


def test_operators_and_unknown_keys_get_no_publisher(file: Path) -> None:
    others = [replace(RESULTS, identity=text) for text in ("key:unknown", "operator:ada")]
    sites = frozenset(f"SITE-{number:03}" for number in range(100))

    policy = suggested(file, [*others, replace(RESULTS, sites=sites)])

    [publisher] = policy.publishers
    assert (publisher.name, publisher.sites) == ("uid:1000", tuple(sorted(sites)))
    assert '# "key:unknown"' in file.read_text()


@given(user=st.text(min_size=1), site=st.text(min_size=1), host=st.text(min_size=1))
def test_any_name_is_taken_literally(file: Path, user: str, site: str, host: str) -> None:
    identity, host = f"broker:stomp://b:1/{user}", host.lower()
    names: dict[str, Any] = {
        name: frozenset({host}) for name in ("hosts", "new_hosts", "monitoring_hosts")
    }
    policy = suggested(
        file, [replace(RESULTS, identity=identity, sites=frozenset({site}), **names)]
    )

    row = {"hostName": host, "monitoringHost": host}
    assert allows(policy, identity, "metricOutput", [site], **row)
    assert allows(policy, identity, "metricOutput", [], **row)
    assert not allows(policy, identity, "metricOutput", [f"{site}x"], **row)
