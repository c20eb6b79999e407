"""Which identity said what, and a policy that allows exactly that."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.identity.policy import ENFORCE
from sam_pipeline.schema.identity.policy_file import load_policy
from sam_pipeline.schema.identity.suggestion import Said, suggested_policy
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.database.engine import make_engine, reading, writing
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from sam_pipeline.sql.loading.said import SETTLED, homes_of, said_in_class
from tests.support.builders import metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    Values,
    downtime,
    insert,
    service_endpoint,
    site_contact,
    site_group,
)

WEEK = timedelta(days=7)


def said(engine: Engine, since: timedelta = WEEK) -> list[Said]:
    """What is stored, as readers see it."""
    catalogue, start = Catalogue(engine), datetime.now(UTC) - since
    views = catalogue.find_all(name.lower() for name in catalogue.names())
    with acting_as("reader", engine) as reader, reading(reader) as connection:
        homes = homes_of(connection)
        return [
            one for view in views.values() for one in said_in_class(connection, view, start, homes)
        ]


def age(engine: Engine, table: str, by: timedelta) -> None:
    """Make the rows of a table look as if they had been received earlier."""
    seconds = int(by.total_seconds())
    earlier = {
        "sqlite": f"received_at - {seconds}",
        "postgresql": f"received_at - interval '{seconds} s'",
    }
    with writing(engine) as connection:
        connection.execute(
            text(f"UPDATE {table} SET received_at = {earlier[connection.dialect.name]}")
        )


def test_each_identity_has_a_line_for_each_class(engine: Engine) -> None:
    results = [metric_result(timestamp=f"2026-11-20T12:0{n}:00Z") for n in range(3)]
    for publisher, view, rows in (
        ("key:a", "metricOutput", results),
        ("key:a", "siteContact", [site_contact()]),
        ("uid:7", "downtime", [downtime()]),
    ):
        insert(engine, view, *({**row, "publisher": publisher} for row in rows))

    found = {(one.identity, one.message_class): one.records for one in said(engine)}

    assert found == {
        ("key:a", "metricOutput"): 3,
        ("key:a", "siteContact"): 1,
        ("uid:7", "downtime"): 1,
    }


def test_a_result_belongs_to_the_sites_of_its_host_on_its_day(engine: Engine) -> None:
    moves = [
        service_endpoint(siteName="OLD", validTo="2026-11-20T00:00:00Z"),
        service_endpoint(siteName="NEW", validFrom="2026-11-20T00:00:00Z"),
    ]
    insert(engine, "serviceEndpoint", *({**row, "publisher": "key:topology"} for row in moves))
    result = metric_result(siteName="CLAIMED", publisher="key:a", monitoringHost="Nagios1")
    insert(engine, "metricOutput", result)

    [of_results] = [one for one in said(engine) if one.identity == "key:a"]

    assert of_results.sites == {"NEW"}
    assert of_results.hosts == {"ce01.example.org"}
    assert of_results.monitoring_hosts == {"nagios1"}


def test_a_host_is_new_until_it_has_been_in_the_topology_for_a_while(engine: Engine) -> None:
    insert(engine, "serviceEndpoint", service_endpoint(publisher="key:topology"))
    insert(engine, "metricOutput", metric_result(publisher="key:a"))

    new = {one.identity: one.new_hosts for one in said(engine)}
    age(engine, "endpoint_membership", SETTLED)
    later = {one.identity: one.new_hosts for one in said(engine)}

    assert new == {"key:a": {"ce01.example.org"}, "key:topology": {"ce01.example.org"}}
    assert later == {"key:a": set(), "key:topology": {"ce01.example.org"}}


def test_records_received_before_are_left_out(engine: Engine) -> None:
    insert(engine, "siteContact", site_contact(publisher="key:a"))
    insert(engine, "metricOutput", metric_result(publisher="key:a"))
    age(engine, "metric_result", 2 * WEEK)

    assert [one.message_class for one in said(engine)] == ["siteContact"]


def message(identity: str, message_class: str, *rows: Values) -> Message:
    records = [
        {name: str(value) for name, value in row.items() if value is not None} for row in rows
    ]
    body = "".join(map(write_wlcg, records))
    return with_identity(new_message(message_class, body, record_count=len(rows)), identity)


STREAM: Sequence[Message] = (
    message("uid:7", "metricOutput", metric_result(hostName="early.example.org")),
    message(
        "broker:stomp://b:1/CN=topology [feed]",
        "serviceEndpoint",
        service_endpoint(),
        service_endpoint(hostName="early.example.org", siteName="SITE *"),
    ),
    message("broker:stomp://b:1/CN=topology [feed]", "siteGroup", site_group()),
    message("uid:7", "metricOutput", metric_result(monitoringHost="nagios1")),
    message("uid:8", "metricOutput", metric_result(monitoringHost="nagios2")),
    message("anonymous", "metricOutput", metric_result(hostName="nowhere.example.org")),
    message("anonymous", "downtime", downtime(), downtime(siteName=None, downtimeId="D2")),
    message("uid:7", "siteContact", site_contact(siteName="SITE-ONLY-CONTACT")),
    # These lose against what is stored: nothing else shows that they were said.
    message("uid:9", "siteContact", site_contact(siteName="SITE-ONLY-CONTACT", contact="a")),
    message("uid:9", "siteGroup", site_group(weight="7")),
    message("uid:10", "metricOutput", metric_result(monitoringHost="nagios1", summaryData="x")),
    message("uid:10", "downtime", downtime(timestamp="2026-11-17T00:00:00Z", severity="WARNING")),
    message("uid:10", "serviceEndpoint", service_endpoint(production="N")),
)


def loaded(engine: Engine, messages: Iterable[Message], **options: object) -> None:
    """Load each message as a batch of its own."""
    catalogue = Catalogue(engine)
    for one in messages:
        load(engine, catalogue, [one], datetime.now(UTC), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("of_one_batch", [False, True], ids=["batches", "one batch"])
def test_the_same_stream_loads_under_the_suggested_policy(
    engine: Engine, tmp_path: Path, of_one_batch: bool
) -> None:
    with acting_as("loader", engine) as loader:
        loaded(loader, STREAM)
    file = tmp_path / "publishers.toml"
    file.write_text("\n".join(suggested_policy(said(engine))), encoding="utf-8")
    policy = replace(load_policy(file), mode=ENFORCE)
    second = make_engine(f"sqlite:///{tmp_path}/second.db", create=True)
    upgrade(second)

    if of_one_batch:
        load(second, Catalogue(second), STREAM, datetime.now(UTC), authority=Authority(policy))
    else:
        loaded(second, STREAM, authority=Authority(policy))

    assert list_dead_letters(second) == []
    stranger = message("uid:11", "metricOutput", metric_result())
    loaded(second, [stranger], authority=Authority(policy))
    assert [letter.reason for letter in list_dead_letters(second)] == ["not-authorised"]


def random_stream(rng: random.Random) -> Iterator[Message]:
    """Messages of three identities about few names, which often contradict each other."""
    hosts, sites = ["a.example.org", "b.example.org", None], ["SITE-1", "SITE *", None]
    for _ in range(rng.randrange(3, 15)):
        first, last = sorted(f"2026-11-{rng.randrange(10, 16)}T00:00:00Z" for _ in range(2))
        site, host = rng.choice(sites), rng.choice(hosts)
        message_class, row = rng.choice(
            [
                (
                    "metricOutput",
                    metric_result(
                        siteName=site,
                        hostName=host or "c.example.org",
                        timestamp=first,
                        metricStatus=rng.choice(["OK", "CRITICAL"]),
                        monitoringHost=rng.choice(["nagios1", "nagios2", None]),
                    ),
                ),
                (
                    "serviceEndpoint",
                    service_endpoint(
                        siteName=site or "SITE-2",
                        hostName=host or "c.example.org",
                        validFrom=first,
                        validTo=rng.choice([last, None]),
                    ),
                ),
                (
                    "downtime",
                    downtime(
                        siteName=site or "SITE-2", hostName=host, startTime=first, endTime=last
                    ),
                ),
                ("siteGroup", site_group(siteName=site or "SITE-2", weight=str(rng.randrange(9)))),
            ]
        )
        identity = rng.choice(["uid:1", "anonymous", "broker:stomp://b:1/CN=*.example.org"])
        yield message(identity, message_class, row)


@pytest.mark.parametrize("seed", range(10))
def test_random_streams_load_under_their_suggested_policies(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stream = list(random_stream(rng))
    engines = [make_engine(f"sqlite:///{tmp_path}/{number}.db", create=True) for number in (1, 2)]
    for engine in engines:
        upgrade(engine)
    loaded(engines[0], stream)
    file = tmp_path / "publishers.toml"
    file.write_text("\n".join(suggested_policy(said(engines[0]))), encoding="utf-8")
    authority = Authority(replace(load_policy(file), mode=ENFORCE))

    loaded(engines[1], stream, authority=authority)

    assert [letter.error for letter in list_dead_letters(engines[1])] == []
    for engine in engines:
        engine.dispose()
