"""Loading under a policy: what a publisher may not say is a dead letter, the rest is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.identity.identity import IDENTITY, with_identity
from sam_pipeline.schema.identity.keys import Signer, make_key
from sam_pipeline.schema.identity.policy import (
    ENFORCE,
    NOT_AUTHORISED,
    UNSIGNED,
    Policy,
    PublisherRule,
    load_policy,
)
from sam_pipeline.schema.identity.signature import load_signer, sign
from sam_pipeline.schema.identity.suggestion import Said, suggested_policy
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import BAD_SIGNATURE, SIGNATURE_EXPIRED, mark_refused
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.errors import EditRefused
from sam_pipeline.sql.loading.authorise import MAX_AGE_S, Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import (
    LetterFilter,
    dead_letter_ids,
    drop_dead_letters,
    show_dead_letter,
)
from sam_pipeline.sql.loading.letters.quota import (
    LETTER_BYTES,
    LetterBudget,
    LetterQuota,
    LettersFull,
)
from sam_pipeline.sql.loading.letters.store import edit_dead_letter
from sam_pipeline.sql.loading.replay import FAILED, LOADED, Replayed, replay_dead_letters
from sam_pipeline.sql.loading.said import homes_of, said_in_class
from tests.oracle.databases import DIALECTS, Databases
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database import letters as of_loading
from tests.support.database.letters import only_letter, reasons
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    downtime,
    insert,
    message_of,
    query,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)
from tests.support.database.statement_worlds import arriving, assert_same, facts_after
from tests.support.database.with_schema import with_schema
from tests.worlds.statements import FEED, FORGER, Statement, random_worlds

ALICE, MALLORY, EVE = (f"broker:stomp://mb1:61613/{name}" for name in ("alice", "mallory", "eve"))


def rule(name: str, **changes: Any) -> PublisherRule:
    defaults = {
        "identities": (f"broker:*/{name}",),
        "classes": ("metricOutput", "serviceEndpoint", "downtime"),
        "sites": (f"{name.upper()}-*",),
        "hosts": (f"*.{name}.org",),
    }
    return PublisherRule(name=name, **{**defaults, **changes})


def policy_of(*rules: PublisherRule, mode: str = ENFORCE) -> Policy:
    return Policy(mode=mode, publishers=rules or (rule("alice"), rule("mallory")))


def load_now(
    engine: Engine, policy: Policy | Authority, *messages: Message, **options: Any
) -> Counts:
    authority = policy if isinstance(policy, Authority) else Authority(policy)
    return of_loading.load_now(engine, *messages, authority=authority, **options)


def result(host: str, identity: str = ALICE, **changes: str | None) -> Message:
    return results([host], identity, **changes)


def results(names: list[str], identity: str = ALICE, **changes: str | None) -> Message:
    records = (metric_result(hostName=name, **changes) for name in names)
    return metric_message(*records, **{IDENTITY: identity})


def membership(site: str, host: str, **changes: object) -> Mapping[str, object]:
    values = {"siteName": site, "hostName": host, "validFrom": "2026-01-01T00:00:00Z"}
    return service_endpoint(**{**values, **changes})


def endpoint(site: str, host: str, identity: str = MALLORY, **changes: str) -> Message:
    return message_of("serviceEndpoint", membership(site, host, **changes), sender=identity)


def hosts(engine: Engine) -> list[str]:
    return sorted(row["hostName"] for row in stored(engine, "metricOutput"))


def test_what_a_publisher_may_not_say_is_a_letter_and_its_neighbours_are_rows(
    engine: Engine,
) -> None:
    message = results(["ce.alice.org", "ce.mallory.org", "se.alice.org"])

    loaded = load_now(engine, policy_of(), message, result("ce.mallory.org", MALLORY))

    assert hosts(engine) == ["ce.alice.org", "ce.mallory.org", "se.alice.org"]
    assert reasons(engine) == [(2, NOT_AUTHORISED)]
    assert loaded.refusals == {("alice", NOT_AUTHORISED): 1}
    strangers = load_now(engine, policy_of(), result("a.org", EVE), result("a.org", ""))
    assert strangers.refusals == {(EVE, NOT_AUTHORISED): 1, ("anonymous", NOT_AUTHORISED): 1}


# Topology -----------------------------------------------------------------------------------------


def test_the_topology_of_the_day_decides_which_site_a_result_is_about(engine: Engine) -> None:
    """A host belongs to no site on the day at whose beginning it leaves."""
    moved = "2026-11-20T00:00:00Z"
    insert(
        engine,
        "serviceEndpoint",
        membership("ALICE-T1", "ce.shared.org", validTo=moved),
        membership("MALLORY-T2", "ce.shared.org", validFrom=moved),
        membership("MALLORY-T2", "ce.alice.org", validTo=moved),
    )
    before = {"timestamp": "2026-11-19T23:59:59Z", "siteName": "MALLORY-T2"}
    after = {"timestamp": "2026-11-20T00:00:00Z", "siteName": "ALICE-T1"}

    messages = [
        result(host, **when)
        for host in ("ce.shared.org", "ce.alice.org")
        for when in (before, after)
    ]
    load_now(engine, policy_of(), *messages)

    ids = {row["messageId"] for row in stored(engine, "metricOutput")}
    assert [message.message_id in ids for message in messages] == [True, False, False, True]


def test_a_batch_that_changes_the_topology_decides_about_the_next_one(engine: Engine) -> None:
    authority = Authority(policy_of(rule("alice"), rule("mallory", hosts=())))
    load_now(engine, authority, result("ce.alice.org", MALLORY))

    load_now(engine, authority, endpoint("ALICE-T1", "ce.alice.org", ALICE))
    load_now(engine, authority, result("ce.alice.org", ALICE))

    assert hosts(engine) == ["ce.alice.org"]
    assert reasons(engine) == [(1, NOT_AUTHORISED)]


def test_a_change_of_the_topology_by_others_counts_after_a_minute(engine: Engine) -> None:
    now = 0.0
    authority = Authority(policy_of(rule("alice", hosts=())), clock=lambda: now)
    load_now(engine, authority, result("ce.alice.org"))
    insert(engine, "serviceEndpoint", membership("ALICE-T1", "ce.alice.org"))

    for minute in range(10, 13):
        now = MAX_AGE_S * (minute == 12)
        at = f"2026-11-20T12:{minute}:00Z"
        load_now(engine, authority, result("ce.alice.org", timestamp=at))

    assert hosts(engine) == ["ce.alice.org"]
    assert len(reasons(engine)) == 3


def test_very_long_names_are_refused_and_not_remembered(engine: Engine) -> None:
    authority = Authority(policy_of())
    forged = [
        endpoint(f"{number}{'x' * 10_000}", "ce.mallory.org", MALLORY) for number in range(10)
    ]

    loaded = load_now(engine, authority, *forged)

    assert loaded.refusals == {("mallory", NOT_AUTHORISED): 10}
    assert sum(map(len, chain.from_iterable(authority._answers))) < 10_000


# Signatures, replays and edits --------------------------------------------------------------------


def test_a_publisher_that_must_sign_has_only_its_keys(engine: Engine) -> None:
    """An unsigned message is one letter, whatever is in it."""
    signing = rule("alice", identities=("broker:*/alice", "key:alice"), signed=True)
    records = metric_result(hostName="ce.alice.org"), metric_result(metricStatus="FINE")
    unsigned = metric_message(*records, **{IDENTITY: ALICE})
    signed = metric_message(*reversed(records), **{IDENTITY: "key:alice"})

    load_now(engine, policy_of(signing), unsigned, signed)

    assert hosts(engine) == ["ce.alice.org"]
    assert sorted(reasons(engine)) == [(0, UNSIGNED), (1, "bad-status")]


def replay(engine: Engine, policy: Policy, *numbers: int) -> Replayed:
    ids = numbers or dead_letter_ids(engine)
    with acting_as("loader", engine) as loader:
        [outcome] = replay_dead_letters(loader, ids, lambda: NOW, authority=Authority(policy))
    return outcome


def test_a_replay_asks_the_present_policy(engine: Engine) -> None:
    load_now(engine, policy_of(), result("ce.mallory.org"))

    assert replay(engine, policy_of()).outcome == FAILED
    assert replay(engine, policy_of(rule("alice", hosts=("*",)))).outcome == LOADED


def signer_in(directory: Path) -> Signer:
    directory.mkdir()
    make_key(directory / "alice.pem")
    return load_signer(directory / "alice.pem")


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return signer_in(tmp_path / "alice")


def signed_by(signer: Signer, *hosts: str, marked: str = "") -> Message:
    """A signed message, with the identity of its hop and perhaps the mark of its source."""
    records = (metric_result(hostName=host) for host in hosts)
    message = sign(metric_message(*records, destination="/topic/x"), signer, NOW)
    message = with_identity(message, MALLORY)
    return mark_refused(message, marked, "as the source said") if marked else message


def key_policy(signer: Signer, **changes: Any) -> Policy:
    keys = (str(signer.public_key()),)
    return policy_of(
        rule("alice", identities=("key:alice",), keys=keys, **{"signed": True, **changes})
    )


@pytest.mark.parametrize("marked", ["", BAD_SIGNATURE, SIGNATURE_EXPIRED])
def test_a_replay_verifies_signatures_with_the_present_keys(
    engine: Engine, signer: Signer, marked: str
) -> None:
    unsigned = rule("mallory", identities=("key:other", MALLORY), signed=True)
    load_now(engine, policy_of(unsigned), signed_by(signer, "ce.alice.org", marked=marked))
    letter = only_letter(engine)

    outcome = replay(engine, key_policy(signer))

    assert (letter.reason, letter.publisher) == (marked or UNSIGNED, MALLORY)
    assert outcome.outcome == LOADED
    assert query(engine, "SELECT publisher FROM metricOutput") == [("key:alice",)]


def test_a_signature_that_is_still_bad_stays_a_letter(
    engine: Engine, signer: Signer, tmp_path: Path
) -> None:
    policy = key_policy(signer_in(tmp_path / "other"))
    load_now(engine, policy, signed_by(signer, "ce.alice.org", marked=SIGNATURE_EXPIRED))

    outcome = replay(engine, policy)

    assert (outcome.outcome, outcome.reason) == (FAILED, BAD_SIGNATURE)


def test_a_record_of_a_signed_message_keeps_the_identity_of_its_key(
    engine: Engine, signer: Signer
) -> None:
    message = with_identity(signed_by(signer, "ce.alice.org", "ce.eve.org"), "key:alice")
    load_now(engine, key_policy(signer), message)

    outcome = replay(engine, key_policy(signer, hosts=("*",), signed=False))

    assert outcome.outcome == LOADED
    assert query(engine, "SELECT DISTINCT publisher FROM metricOutput") == [("key:alice",)]


def test_an_edited_letter_has_the_identity_of_its_editor_whom_the_policy_exempts(
    engine: Engine,
) -> None:
    load_now(engine, policy_of(), result("ce.mallory.org"))
    [number] = dead_letter_ids(engine)
    with acting_as("loader", engine) as loader:
        with pytest.raises(EditRefused, match=IDENTITY):  # an edit cannot choose one
            edit_dead_letter(loader, number, NOW, headers={IDENTITY: MALLORY})
        assert show_dead_letter(engine, number).headers[IDENTITY] == ALICE
        edited = edit_dead_letter(loader, number, NOW, headers={"note": "x"})

    assert replay(engine, policy_of(), edited).outcome == LOADED

    [(publisher,)] = query(engine, "SELECT publisher FROM metricOutput")
    assert publisher.startswith("operator:")


def test_a_publisher_may_have_a_limit_of_its_own_on_dead_letters(engine: Engine) -> None:
    policy = policy_of(rule("alice", dead_letters_per_hour=3), rule("mallory"))
    bad = [
        result(f"ce{at}.{name}.org", identity, metricStatus="FINE")
        for name, identity in (("alice", ALICE), ("mallory", MALLORY))
        for at in range(10)
    ]

    load_now(engine, policy, *bad, quota=LetterQuota(5, 10**6, LetterBudget(policy)))

    counts = "SELECT reason, count(*) FROM dead_letter GROUP BY reason ORDER BY reason"
    assert query(engine, counts) == [("bad-status", 3 + 5), ("flood", 2)]


def foreign(identity: str, count: int = 10) -> list[Message]:
    """Results of hosts that nobody may speak for."""
    return [result(f"ce{at}.eve.org", identity) for at in range(count)]


def test_what_the_policy_refuses_is_kept_whatever_the_limits_of_an_hour(engine: Engine) -> None:
    policy = policy_of()

    loaded = load_now(
        engine, policy, *foreign(ALICE), quota=LetterQuota(5, 10**6, LetterBudget(policy))
    )

    assert loaded.dead_letters == {NOT_AUTHORISED: 10}


def test_a_listed_publisher_beyond_its_budget_is_left_alone_and_a_stranger_only_counted(
    engine: Engine,
) -> None:
    """After letters have been dropped, there is room again."""
    policy = policy_of(rule("alice"))
    one = LETTER_BYTES + 900
    budget = LetterBudget(policy, owner_bytes=3 * one, all_bytes=100 * one, clock=lambda: clock[0])
    clock, quota = [0.0], LetterQuota(0, 10**6, budget)
    mine, strange = foreign(ALICE), foreign(MALLORY)

    with pytest.raises(LettersFull) as full:
        load_now(engine, policy, *strange, *mine, quota=quota)
    counted = load_now(engine, policy, *strange, quota=quota)
    kept = load_now(engine, policy, *mine[:3], quota=quota)

    assert full.value.owners == {"": "alice"}
    assert full.value.messages < {*map(id, mine)}
    assert counted.summarised_dead_letters > 0 < counted.dead_letters[NOT_AUTHORISED]
    assert kept.dead_letters == {NOT_AUTHORISED: 3}
    with acting_as("loader", engine) as loader:
        drop_dead_letters(loader, LetterFilter(), NOW)
    clock[0] += 3600
    assert load_now(engine, policy, *mine[3:6], quota=quota).dead_letters == {NOT_AUTHORISED: 3}


def test_a_publisher_has_the_name_of_the_policy_that_it_was_last_loaded_under(
    engine: Engine,
) -> None:
    for name in ("old", "new"):
        load_now(engine, policy_of(rule("alice").replace(name=name)), result("ce.alice.org"))

    assert query(engine, "SELECT identity, name FROM publisher") == [(ALICE, "new")]


@pytest.mark.parametrize("backdates", [True, False])
def test_only_a_publisher_that_may_backdates_an_announcement(
    engine: Engine, backdates: bool
) -> None:
    rule = PublisherRule(
        name="feed",
        identities=(FEED,),
        classes=("*",),
        sites=("*",),
        hosts=("*",),
        backdates=backdates,
    )

    load_now(
        engine,
        Policy(mode=ENFORCE, publishers=(rule,)),
        message_of("downtime", downtime(), sender=FEED),
    )

    [(timestamp, announced)] = query(engine, "SELECT timestamp, announcedAt FROM downtime")
    assert timestamp == "2026-11-18T00:00:00Z"
    assert (announced == timestamp) == backdates


# Random worlds ------------------------------------------------------------------------------------

WORLDS = 200
OWN_SITE, OWN_HOST = "B", "h2"
CLASSES = ("metricOutput", "serviceEndpoint", "downtime", "siteGroup")
DAYS = ("2026-10-31", "2026-11-01", "2026-11-02", "2026-11-03")
"""All times of the worlds are on the second or the third of them."""
PUBLISHERS = (
    PublisherRule(name="feed", identities=(FEED,), classes=("*",), sites=("*",), hosts=("*",)),
    PublisherRule(
        name="site",
        identities=(FORGER,),
        classes=CLASSES,
        sites=(f"*-{OWN_SITE}",),
        hosts=(f"*-{OWN_HOST}",),
    ),
)

Days = Collection[str]
Memberships = dict[tuple[str, ...], tuple[str, str, str, Days]]
"""Site, host, last time and days of the endpoints that were loaded, by their natural keys."""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_exactly_what_the_rule_permits_is_loaded(databases: Databases, dialect: str) -> None:
    worlds = random_worlds(1, WORLDS, (FEED, FORGER, FORGER), hosts=("h1", OWN_HOST, OWN_HOST))
    letters: Counter[str] = Counter()

    enforced = facts_after(
        databases, dialect, arriving(worlds, Policy(mode=ENFORCE, publishers=PUBLISHERS), letters)
    )

    permitted = [list(accepted(world)) for world in worlds]
    assert_same(enforced, facts_after(databases, dialect, arriving(permitted)), worlds)
    refused = sum(
        len({*world} - {*loaded}) for world, loaded in zip(worlds, permitted, strict=True)
    )
    assert letters.keys() == {NOT_AUTHORISED}
    assert refused <= letters[NOT_AUTHORISED] < sum(map(len, worlds))


def accepted(world: Sequence[Statement]) -> Iterator[Statement]:
    """The statements that the policy permits, each with the topology as it is by then."""
    memberships: Memberships = {}
    for said in world:
        record = dict(said.record)
        if said.publisher == FEED or is_permitted(said.message_class, record, memberships):
            if said.message_class == "serviceEndpoint":
                add_membership(memberships, record)
            yield said


def is_permitted(message_class: str, record: Mapping[str, str], memberships: Memberships) -> bool:
    """The rule, day by day."""
    if message_class not in CLASSES:
        return False
    host, named = record.get("hostName", ""), record.get("siteName", "")
    days = {*days_of(message_class, record)}
    sites = {site for site, of, _, on in memberships.values() if of == host and days & {*on}}
    named_sites = {named} - {""} if message_class != "metricOutput" else set()
    return sites | named_sites <= {OWN_SITE} and (bool(sites) or host in ("", OWN_HOST))


def days_of(message_class: str, record: Mapping[str, str]) -> Days:
    """The days of a moment, or those that a period touches."""
    if message_class == "metricOutput":
        return [record["timestamp"][:10]]
    if message_class == "downtime":
        return days_between(record["startTime"], record["endTime"])
    return days_between(record["validFrom"], record.get("validTo", DAYS[-1]))


def days_between(first: str, last: str) -> Days:
    return [day for day in DAYS if first[:10] <= day <= last[:10]]


def add_membership(memberships: Memberships, record: Mapping[str, str]) -> None:
    """Of two announcements, the one with the earlier end counts."""
    names = ("siteName", "hostName", "serviceFlavour", "validFrom")
    site, host, _, start = key = tuple(record[name] for name in names)
    _, _, earlier, _ = memberships.get(key, (site, host, DAYS[-1], ()))
    end = min(earlier, record.get("validTo", DAYS[-1]))
    # A membership that ends at midnight does not touch the day that begins then.
    days = [day for day in days_between(start, end) if f"{day}T00:00:00Z" != end or end == start]
    memberships[key] = (site, host, end, days)


# A policy that allows exactly what is stored ------------------------------------------------------

TOPOLOGY_FEED = "broker:stomp://b:1/CN=topology [feed]"


def said(engine: Engine) -> list[Said]:
    """What is stored, as readers see it."""
    catalogue, start = Catalogue(engine), datetime.now(UTC) - timedelta(days=7)
    views = catalogue.find_all(name.lower() for name in catalogue.names())
    with acting_as("reader", engine) as reader:
        with reading(reader) as connection:
            homes = homes_of(connection)
        return [one for view in views.values() for one in said_in_class(reader, view, start, homes)]


STREAM: Sequence[Message] = [
    message_of(message_class, *rows, sender=sender)
    for sender, message_class, *rows in (
        ("uid:7", "metricOutput", metric_result(hostName="early.example.org")),
        (
            *(TOPOLOGY_FEED, "serviceEndpoint", service_endpoint()),
            service_endpoint(hostName="early.example.org", siteName="SITE *"),
        ),
        (TOPOLOGY_FEED, "siteGroup", site_group()),
        ("uid:7", "metricOutput", metric_result(monitoringHost="nagios1")),
        ("uid:8", "metricOutput", metric_result(monitoringHost="nagios2")),
        ("anonymous", "metricOutput", metric_result(hostName="nowhere.example.org")),
        ("anonymous", "downtime", downtime(), downtime(siteName=None, downtimeId="D2")),
        ("uid:7", "siteContact", site_contact(siteName="SITE-ONLY-CONTACT")),
        # These lose against what is stored: nothing else shows that they were said.
        ("uid:9", "siteContact", site_contact(siteName="SITE-ONLY-CONTACT", contact="a")),
        ("uid:9", "siteGroup", site_group(weight="7")),
        ("uid:10", "metricOutput", metric_result(monitoringHost="nagios1", summaryData="x")),
        ("uid:10", "downtime", downtime(timestamp="2026-11-17T00:00:00Z", severity="WARNING")),
        ("uid:10", "serviceEndpoint", service_endpoint(production="N")),
    )
]


def test_the_same_stream_loads_under_the_suggested_policy(engine: Engine, tmp_path: Path) -> None:
    now, file = datetime.now(UTC), tmp_path / "publishers.toml"
    for message in STREAM:
        of_loading.load_now(engine, message, now=now)
    file.write_text("\n".join(suggested_policy(said(engine))), encoding="utf-8")
    authority = Authority(load_policy(file).replace(mode=ENFORCE))
    second = with_schema(f"sqlite:///{tmp_path}/second.db")

    of_loading.load_now(second, *STREAM, now=now, authority=authority)

    assert reasons(second) == []
    stranger = message_of("metricOutput", metric_result(), sender="uid:11")
    of_loading.load_now(second, stranger, now=now, authority=authority)
    assert reasons(second) == [(1, NOT_AUTHORISED)]
