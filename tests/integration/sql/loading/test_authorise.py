"""Loading under a policy: what a publisher may not say is a dead letter, the rest is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from sam_pipeline.schema.identity.identity import IDENTITY, with_identity
from sam_pipeline.schema.identity.keys import Signer, load_signer, make_key
from sam_pipeline.schema.identity.policy import (
    ENFORCE,
    NOT_AUTHORISED,
    OBSERVE,
    UNSIGNED,
    Policy,
    PublisherRule,
)
from sam_pipeline.schema.identity.signature import sign
from sam_pipeline.schema.messages.message import Message, pack
from sam_pipeline.schema.messages.refused import (
    BAD_SIGNATURE,
    SIGNATURE_EXPIRED,
    mark_refused,
)
from sam_pipeline.sql.errors import EditRefused
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.authorise import MAX_AGE_S, Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import dead_letter_ids, show_dead_letter
from sam_pipeline.sql.loading.letters.edit import edit_dead_letter
from sam_pipeline.sql.loading.letters.quota import LetterQuota
from sam_pipeline.sql.loading.load import Loaded, load
from sam_pipeline.sql.loading.replay import FAILED, LOADED, Replayed, replay_dead_letters
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert, query, service_endpoint, stored

ALICE, MALLORY = "broker:stomp://mb1:61613/alice", "broker:stomp://mb1:61613/mallory"


def rule(name: str, **changes: Any) -> PublisherRule:
    defaults = {
        "identities": (f"broker:*/{name}",),
        "classes": ("metricOutput", "serviceEndpoint", "downtime"),
        "sites": (f"{name.upper()}-*",),
        "hosts": (f"*.{name}.org",),
    }
    return PublisherRule(name, **{**defaults, **changes})


def policy_of(*rules: PublisherRule, mode: str = ENFORCE) -> Policy:
    return Policy(mode, rules or (rule("alice"), rule("mallory")))


def load_now(engine: Engine, policy: Policy | Authority, *messages: Message) -> Loaded:
    authority = policy if isinstance(policy, Authority) else Authority(policy)
    with acting_as("loader", engine) as loader:
        return load(loader, Catalogue(loader), messages, NOW, authority=authority)


def result(host: str, identity: str = ALICE, **changes: str | None) -> Message:
    return results([host], identity, **changes)


def results(names: list[str], identity: str = ALICE, **changes: str | None) -> Message:
    records = (metric_result(hostName=name, **changes) for name in names)
    return metric_message(*records, **{IDENTITY: identity})


def letters(engine: Engine) -> list[tuple[int, str]]:
    return [(letter.record_number, letter.reason) for letter in list_dead_letters(engine)]


def hosts(engine: Engine) -> list[str]:
    return sorted(row["hostName"] for row in stored(engine, "metricOutput"))


def membership(site: str, host: str, **changes: object) -> Mapping[str, object]:
    values = {"siteName": site, "hostName": host, "validFrom": "2026-01-01T00:00:00Z"}
    return service_endpoint(**{**values, **changes})


def test_what_a_publisher_may_not_say_is_a_letter_and_its_neighbours_are_rows(
    engine: Engine,
) -> None:
    message = results(["ce.alice.org", "ce.mallory.org", "se.alice.org"])

    loaded = load_now(engine, policy_of(), message, result("ce.mallory.org", MALLORY))

    assert hosts(engine) == ["ce.alice.org", "ce.mallory.org", "se.alice.org"]
    assert letters(engine) == [(2, NOT_AUTHORISED)]
    assert loaded.refusals == {("alice", NOT_AUTHORISED): 1}


def test_a_letter_names_identity_rule_and_value(engine: Engine) -> None:
    load_now(engine, policy_of(), result("ce.mallory.org"))

    [letter] = list_dead_letters(engine)
    for word in (ALICE, "hosts", "ce.mallory.org", "*.alice.org"):
        assert word in letter.error


@pytest.mark.parametrize("identity", ["broker:stomp://mb1:61613/eve", ""])
def test_a_sender_that_the_policy_does_not_know_is_refused(engine: Engine, identity: str) -> None:
    loaded = load_now(engine, policy_of(), result("ce.alice.org", identity))

    assert letters(engine) == [(1, NOT_AUTHORISED)]
    assert loaded.refusals == {(identity or "anonymous", NOT_AUTHORISED): 1}


def test_without_a_policy_everything_is_loaded(engine: Engine) -> None:
    with acting_as("loader", engine) as loader:
        load(loader, Catalogue(loader), [result("ce.mallory.org")], NOW)

    assert letters(engine) == []


def test_the_topology_of_the_day_decides_which_site_a_result_is_about(engine: Engine) -> None:
    moved = "2026-11-20T00:00:00Z"
    insert(
        engine,
        "serviceEndpoint",
        membership("ALICE-T1", "ce.shared.org", validTo=moved),
        membership("MALLORY-T2", "ce.shared.org", validFrom=moved),
    )
    before = result("ce.shared.org", timestamp="2026-11-19T23:59:59Z", siteName="MALLORY-T2")
    after = result("ce.shared.org", timestamp="2026-11-20T00:00:00Z", siteName="ALICE-T1")

    load_now(engine, policy_of(), before, after)

    [row] = stored(engine, "metricOutput")
    assert row["timestamp"] == "2026-11-19T23:59:59Z"
    assert letters(engine) == [(1, NOT_AUTHORISED)]


def endpoint(site: str, host: str, identity: str = MALLORY, **changes: str) -> Message:
    record = {"siteName": site, "hostName": host, "serviceFlavour": "CE"}
    values = {**record, "validFrom": "2026-01-01T00:00:00Z", **changes}
    [message] = pack([values], "serviceEndpoint", headers={IDENTITY: identity})
    return message


@pytest.mark.parametrize(
    "forged",
    [
        endpoint("ALICE-T1", "ce.alice.org", validTo="2026-01-01T00:00:00Z"),
        endpoint("MALLORY-T2", "ce.alice.org"),
        endpoint("MALLORY-T2", "ce.alice.org", validFrom="2025-12-01T00:00:00Z"),
        endpoint("ALICE-T1", "ce.mallory.org"),
    ],
    ids=["end of an endpoint", "claimed", "claimed for an earlier period", "added"],
)
def test_nobody_changes_the_endpoints_of_another_site(engine: Engine, forged: Message) -> None:
    insert(engine, "serviceEndpoint", membership("ALICE-T1", "ce.alice.org"))
    before = stored(engine, "serviceEndpoint")

    load_now(engine, policy_of(), forged)

    assert stored(engine, "serviceEndpoint") == before
    assert letters(engine) == [(1, NOT_AUTHORISED)]


def test_an_endpoint_that_ends_as_it_begins_may_be_announced_again(engine: Engine) -> None:
    """Redelivery is harmless even for a publisher that may add no hosts."""
    insert(engine, "serviceEndpoint", membership("ALICE-T1", "ce.alice.org"))
    end = endpoint("ALICE-T1", "ce.alice.org", ALICE, validTo="2026-01-01T00:00:00Z")
    authority = Authority(policy_of(rule("alice", hosts=())))

    for _ in range(2):
        load_now(engine, authority, end)

    assert letters(engine) == []


def test_a_batch_that_changes_the_topology_decides_about_the_next_one(engine: Engine) -> None:
    authority = Authority(policy_of(rule("alice"), rule("mallory", hosts=())))
    load_now(engine, authority, result("ce.alice.org", MALLORY))

    load_now(engine, authority, endpoint("ALICE-T1", "ce.alice.org", ALICE))
    load_now(engine, authority, result("ce.alice.org", ALICE))

    assert hosts(engine) == ["ce.alice.org"]
    assert letters(engine) == [(1, NOT_AUTHORISED)]


def test_what_others_change_in_the_topology_counts_within_a_minute(engine: Engine) -> None:
    now = 0.0
    authority = Authority(policy_of(rule("alice", hosts=())), clock=lambda: now)
    load_now(engine, authority, result("ce.alice.org"))
    insert(engine, "serviceEndpoint", membership("ALICE-T1", "ce.alice.org"))

    load_now(engine, authority, result("ce.alice.org", timestamp="2026-11-20T12:01:00Z"))
    now = MAX_AGE_S
    load_now(engine, authority, result("ce.alice.org", timestamp="2026-11-20T12:02:00Z"))

    assert hosts(engine) == ["ce.alice.org"]
    assert len(letters(engine)) == 2


def test_the_topology_is_read_once_for_a_host(engine: Engine) -> None:
    authority = Authority(policy_of())
    statements: list[str] = []

    def note(*arguments: Any) -> None:
        statements.append(arguments[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        for minute in range(10, 13):
            load_now(
                engine, authority, result("ce.alice.org", timestamp=f"2026-11-20T12:{minute}:00Z")
            )
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    assert len([text for text in statements if "report_topology" in text]) == 1


def test_a_policy_that_observes_changes_no_row_and_counts(engine: Engine) -> None:
    policy = policy_of(mode=OBSERVE)

    loaded = load_now(engine, policy, results(["ce.alice.org", "ce.mallory.org", "x.eve.org"]))

    assert len(hosts(engine)) == 3
    assert letters(engine) == []
    assert loaded.refusals == {("alice", NOT_AUTHORISED): 2}


def test_the_audit_has_what_a_policy_that_observes_would_refuse(engine: Engine) -> None:
    audit = Audit("c", "h", 1, ["b"])

    with acting_as("loader", engine) as loader:
        authority = Authority(policy_of(mode=OBSERVE))
        message = results(["ce.alice.org", "ce.mallory.org"])
        load(loader, Catalogue(loader), [message], NOW, authority=authority, audit=audit)

    [(publishers,)] = query(engine, "SELECT publishers FROM loaded_batch")
    assert json.loads(publishers) == {ALICE: [2, 1]}


def test_very_long_names_are_refused_and_not_remembered(engine: Engine) -> None:
    authority = Authority(policy_of())
    forged = [
        endpoint(f"{number}{'x' * 10_000}", "ce.mallory.org", MALLORY) for number in range(10)
    ]

    loaded = load_now(engine, authority, *forged)

    assert loaded.refusals == {("mallory", NOT_AUTHORISED): 10}
    assert sum(map(len, chain.from_iterable(authority._answers))) < 10_000


def test_a_publisher_that_must_sign_has_only_its_keys(engine: Engine) -> None:
    signing = rule("alice", identities=("broker:*/alice", "key:alice"), signed=True)

    load_now(engine, policy_of(signing), results(["ce.alice.org", "se.alice.org"]))
    load_now(engine, policy_of(signing), result("ce.alice.org", "key:alice"))

    assert hosts(engine) == ["ce.alice.org"]
    assert letters(engine) == [(0, UNSIGNED)]


def test_a_record_for_several_flavours_is_one_letter(engine: Engine) -> None:
    loaded = load_now(engine, policy_of(), result("ce.mallory.org", serviceFlavour="CE,SE"))

    assert letters(engine) == [(1, NOT_AUTHORISED)]
    assert loaded.refusals.total() == 1


def replay(engine: Engine, policy: Policy, number: int) -> Replayed:
    with acting_as("loader", engine) as loader:
        [outcome] = replay_dead_letters(loader, [number], lambda: NOW, authority=Authority(policy))
    return outcome


def test_a_replay_asks_the_present_policy(engine: Engine) -> None:
    load_now(engine, policy_of(), result("ce.mallory.org"))
    [number] = dead_letter_ids(engine)

    assert replay(engine, policy_of(), number).outcome == FAILED
    assert replay(engine, policy_of(rule("alice", hosts=("*",))), number).outcome == LOADED


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    make_key(tmp_path / "alice.pem")
    return load_signer(tmp_path / "alice.pem")


def signed_by(signer: Signer, *hosts: str, marked: str = "") -> Message:
    """A signed message, with the identity of its hop and perhaps the mark of its source."""
    records = (metric_result(hostName=host) for host in hosts)
    message = sign(metric_message(*records, destination="/topic/x"), signer, NOW)
    message = with_identity(message, MALLORY)
    return mark_refused(message, marked, "as the source said") if marked else message


def key_policy(signer: Signer) -> Policy:
    return policy_of(
        rule("alice", identities=("key:alice",), keys=(str(signer.public_key()),), signed=True)
    )


@pytest.mark.parametrize("marked", ["", BAD_SIGNATURE, SIGNATURE_EXPIRED])
def test_a_replay_verifies_signatures_with_the_present_keys(
    engine: Engine, signer: Signer, marked: str
) -> None:
    unsigned = rule("mallory", identities=("key:other", MALLORY), signed=True)
    load_now(engine, policy_of(unsigned), signed_by(signer, "ce.alice.org", marked=marked))
    [letter] = list_dead_letters(engine)

    outcome = replay(engine, key_policy(signer), letter.dead_letter_id)

    assert (letter.reason, letter.publisher) == (marked or UNSIGNED, MALLORY)
    assert outcome.outcome == LOADED
    assert query(engine, "SELECT publisher FROM metricOutput") == [("key:alice",)]


def test_a_signature_that_is_still_bad_stays_a_letter(
    engine: Engine, signer: Signer, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make_key(other / "alice.pem")
    policy = key_policy(load_signer(other / "alice.pem"))
    load_now(engine, policy, signed_by(signer, "ce.alice.org", marked=SIGNATURE_EXPIRED))

    outcome = replay(engine, policy, *dead_letter_ids(engine))

    assert (outcome.outcome, outcome.reason) == (FAILED, BAD_SIGNATURE)


def test_a_record_of_a_signed_message_keeps_the_identity_of_its_key(
    engine: Engine, signer: Signer
) -> None:
    message = with_identity(signed_by(signer, "ce.alice.org", "ce.eve.org"), "key:alice")
    load_now(engine, key_policy(signer), message)
    allowing = rule(
        "alice", identities=("key:alice",), keys=(str(signer.public_key()),), hosts=("*",)
    )

    outcome = replay(engine, policy_of(allowing), *dead_letter_ids(engine))

    assert outcome.outcome == LOADED
    assert query(engine, "SELECT DISTINCT publisher FROM metricOutput") == [("key:alice",)]


def edited_and_replayed(engine: Engine, **headers: str) -> list[str]:
    [number] = dead_letter_ids(engine)
    with acting_as("loader", engine) as loader:
        edited = edit_dead_letter(loader, number, NOW, headers={"note": "x", **headers})
        outcomes = replay_dead_letters(
            loader, [edited], lambda: NOW, authority=Authority(policy_of())
        )
        return [outcome.outcome for outcome in outcomes]


def test_an_edited_letter_has_the_identity_of_its_editor_whom_the_policy_exempts(
    engine: Engine,
) -> None:
    load_now(engine, policy_of(), result("ce.mallory.org"))

    assert edited_and_replayed(engine) == [LOADED]

    [(publisher,)] = query(engine, "SELECT publisher FROM metricOutput")
    assert publisher.startswith("operator:")


def test_an_edit_cannot_choose_an_identity(engine: Engine) -> None:
    load_now(engine, policy_of(), result("ce.mallory.org"))

    with pytest.raises(EditRefused, match=IDENTITY):
        edited_and_replayed(engine, **{IDENTITY: MALLORY})

    assert show_dead_letter(engine, dead_letter_ids(engine)[0]).headers[IDENTITY] == ALICE


def test_a_publisher_may_have_a_limit_of_its_own_on_dead_letters(engine: Engine) -> None:
    policy = policy_of(rule("alice", dead_letters_per_hour=3), rule("mallory"))
    quota = LetterQuota(5, 10**6, policy)
    bad = [result(f"ce{at}.eve.org", identity) for identity in (ALICE, MALLORY) for at in range(10)]

    with acting_as("loader", engine) as loader:
        authority = Authority(policy)
        load(loader, Catalogue(loader), bad, NOW, authority=authority, quota=quota)

    counts = query(
        engine, "SELECT reason, count(*) FROM dead_letter GROUP BY reason ORDER BY reason"
    )
    assert counts == [("flood", 2), (NOT_AUTHORISED, 3 + 5)]


def test_a_publisher_has_the_name_of_the_policy_that_it_was_last_loaded_under(
    engine: Engine,
) -> None:
    for name in ("old", "new"):
        alice = replace(rule("alice"), name=name)
        load_now(engine, policy_of(alice), result("ce.alice.org"))

    assert query(engine, "SELECT identity, name FROM publisher") == [(ALICE, "new")]
