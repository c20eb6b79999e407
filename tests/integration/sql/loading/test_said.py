"""Which identity said what, and a policy that allows exactly that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.identity.policy import ENFORCE
from sam_pipeline.schema.identity.policy_file import load_policy
from sam_pipeline.schema.identity.suggestion import Said, suggested_policy
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.said import SETTLED, homes_of, said_in_class
from tests.support.builders import metric_result
from tests.support.database.letters import list_dead_letters, load_now
from tests.support.database.own_class import run
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    downtime,
    insert,
    message_of,
    service_endpoint,
    site_contact,
    site_group,
)
from tests.support.database.with_schema import with_schema

WEEK = timedelta(days=7)
FEED = "broker:stomp://b:1/CN=topology [feed]"


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
    earlier = f"{seconds}" if engine.dialect.name == "sqlite" else f"interval '{seconds} s'"
    run(engine, f"UPDATE {table} SET received_at = received_at - {earlier}")


def test_each_identity_has_a_line_for_each_class_and_the_sites_of_its_hosts(engine: Engine) -> None:
    results = [metric_result(timestamp=f"2026-11-20T12:0{n}:00Z") for n in range(3)]
    moves = [
        service_endpoint(siteName="OLD", validTo="2026-11-20T00:00:00Z"),
        service_endpoint(siteName="NEW", validFrom="2026-11-20T00:00:00Z"),
    ]
    for publisher, view, rows in (
        ("key:a", "metricOutput", results),
        ("key:a", "siteContact", [site_contact()]),
        ("uid:7", "downtime", [downtime()]),
        ("key:b", "metricOutput", [metric_result(monitoringHost="Nagios1", siteName="CLAIMED")]),
        ("key:topology", "serviceEndpoint", moves),
    ):
        insert(engine, view, *({**row, "publisher": publisher} for row in rows))

    found = {(one.identity, one.message_class): one for one in said(engine)}

    assert {key: one.records for key, one in found.items()} == {
        ("key:a", "metricOutput"): 3,
        ("key:a", "siteContact"): 1,
        ("uid:7", "downtime"): 1,
        ("key:b", "metricOutput"): 1,
        ("key:topology", "serviceEndpoint"): 2,
    }
    of_results = found["key:b", "metricOutput"]
    assert of_results.sites == {"NEW"}  # of the host, on its day
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


STREAM: Sequence[Message] = [
    message_of(message_class, *rows, sender=sender)
    for sender, message_class, *rows in (
        ("uid:7", "metricOutput", metric_result(hostName="early.example.org")),
        (
            *(FEED, "serviceEndpoint", service_endpoint()),
            service_endpoint(hostName="early.example.org", siteName="SITE *"),
        ),
        (FEED, "siteGroup", site_group()),
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


def loaded(engine: Engine, messages: Iterable[Message], **options: object) -> None:
    """Load each message as a batch of its own."""
    for one in messages:
        load_now(engine, one, now=datetime.now(UTC), **options)


def suggested(engine: Engine, directory: Path) -> Authority:
    file = directory / "publishers.toml"
    file.write_text("\n".join(suggested_policy(said(engine))), encoding="utf-8")
    return Authority(replace(load_policy(file), mode=ENFORCE))


@pytest.mark.parametrize("of_one_batch", [False, True], ids=["batches", "one batch"])
def test_the_same_stream_loads_under_the_suggested_policy(
    engine: Engine, tmp_path: Path, of_one_batch: bool
) -> None:
    loaded(engine, STREAM)
    authority = suggested(engine, tmp_path)
    second = with_schema(f"sqlite:///{tmp_path}/second.db")

    if of_one_batch:
        load_now(second, *STREAM, now=datetime.now(UTC), authority=authority)
    else:
        loaded(second, STREAM, authority=authority)

    assert list_dead_letters(second) == []
    stranger = message_of("metricOutput", metric_result(), sender="uid:11")
    loaded(second, [stranger], authority=authority)
    assert [letter.reason for letter in list_dead_letters(second)] == ["not-authorised"]
