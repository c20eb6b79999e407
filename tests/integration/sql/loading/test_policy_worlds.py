"""Random worlds under a policy: what is loaded of a publisher is what the rule permits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest

from sam_pipeline.schema.identity.policy import (
    ENFORCE,
    NOT_AUTHORISED,
    OBSERVE,
    Policy,
    PublisherRule,
)
from tests.oracle.databases import DIALECTS, Databases
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.database.statement_worlds import arriving, assert_same, facts_after
from tests.worlds.statements import FEED, FORGER, Statement, random_worlds

WORLDS = 200
OWN_SITE, OWN_HOST = "B", "h2"
HOSTS = ("h1", OWN_HOST, OWN_HOST)
CLASSES = ("metricOutput", "serviceEndpoint", "downtime", "siteGroup")
DAYS = ("2026-10-31", "2026-11-01", "2026-11-02", "2026-11-03")
"""All times of the worlds are on the second or the third of them."""
PUBLISHERS = (
    PublisherRule("feed", (FEED,), ("*",), sites=("*",), hosts=("*",)),
    PublisherRule("site", (FORGER,), CLASSES, sites=(f"*-{OWN_SITE}",), hosts=(f"*-{OWN_HOST}",)),
)

Days = Collection[str]
Memberships = dict[tuple[str, ...], tuple[str, str, str, Days]]
"""Site, host, last time and days of the endpoints that were loaded, by their natural keys."""


@pytest.fixture(scope="module")
def databases(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return Databases(tmp_path_factory.mktemp("worlds"), fresh_database(postgres))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_exactly_what_the_rule_permits_is_loaded(databases: Databases, dialect: str) -> None:
    worlds = random_worlds(1, WORLDS, (FEED, FORGER, FORGER), hosts=HOSTS)
    letters: Counter[str] = Counter()

    enforced = facts_after(
        databases, dialect, arriving(worlds, Policy(ENFORCE, PUBLISHERS), letters)
    )

    permitted = [list(accepted(world)) for world in worlds]
    assert_same(enforced, facts_after(databases, dialect, arriving(permitted)), worlds)
    refused = sum(
        len({*world} - {*loaded}) for world, loaded in zip(worlds, permitted, strict=True)
    )
    assert letters.keys() == {NOT_AUTHORISED}
    assert refused <= letters[NOT_AUTHORISED] < sum(map(len, worlds))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_policy_that_only_observes_changes_no_row(databases: Databases, dialect: str) -> None:
    worlds = random_worlds(2, WORLDS, (FEED, FORGER), hosts=HOSTS)

    observed = facts_after(databases, dialect, arriving(worlds, Policy(OBSERVE, PUBLISHERS)))

    assert_same(observed, facts_after(databases, dialect, arriving(worlds)), worlds)


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
