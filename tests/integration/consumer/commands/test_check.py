"""`sam-consume check`: every problem at once, and round trips through real brokers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from sam_pipeline.sql.database.engine import make_engine, parse_url
from tests.services.broker import StompServer
from tests.support.brokers.queue_reader import ids, received
from tests.support.conservation import numbered
from tests.support.consumer.daemon import Subscription, checked, row_keys, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, make_site
from tests.support.database.own_class import make_class

POLICY = 'mode = "{}"\n[[publisher]]\nname = "a"\nis = ["broker:*/x"]\nclasses = ["{}"]\n'


def with_policy(mode: str, name: str = "metricOutput") -> Callable[[Site], None]:
    def prepare(site: Site) -> None:
        site.config.with_name("policy.toml").write_text(POLICY.format(mode, name))
        site.configure('publishers = "policy.toml"')

    return prepare


@pytest.mark.parametrize(
    ("prepare", "code", "words"),
    [
        (lambda site: None, 0, ["there is no policy"]),
        (with_policy("enforce"), 0, ["1 publisher, first a, can't be recognised"]),
        (with_policy("inforce"), 78, ["inforce"]),
        (with_policy("enforce", "serviceEndpiont"), 78, ["did you mean serviceEndpoint?"]),
        (lambda site: site.execute("DROP TRIGGER downtime_insert"), 78, ["class downtime: view"]),
        (lambda site: site.config.with_name("spool").write_text(""), 78, ["not a directory"]),
        (
            lambda site: site.config.write_text(
                '[consumer]\nbroker = ["x"]\nbatch_size = 0\n[database]\nurl = "sqlite:///n.db"\n'
            ),
            *(78, ["did you mean brokers?", "batch_size", "n.db: no such database"]),
        ),
    ],
)
def test_check_reports_every_problem_at_once_and_notes_the_rest(
    small_site: Site, prepare: Callable[[Site], object], code: int, words: list[str]
) -> None:
    prepare(small_site)

    found = small_site.json("check", code=code)["problems" if code else "notes"]

    assert [word for word in words if not any(word in text for text in found)] == [], found
    assert len(found) == len(words) or code
    assert ("no problem found" in small_site.run("check").stdout) is (code == 0)


BROKEN = [
    ("DROP TRIGGER metricOutput_insert ON metricOutput", "metricoutput"),
    ("REVOKE INSERT ON waiting FROM sam_loader", "lacks INSERT on waiting"),
    ("REVOKE INSERT ON dead_letter FROM sam_loader", "lacks INSERT on dead_letter"),
    ("ALTER ROLE loader_login IN DATABASE {} SET synchronous_commit = off", "commit is off"),
    ("ALTER DATABASE {} SET session_replication_role = replica", "role is replica"),
]


def test_check_reports_a_database_that_cannot_store_messages(
    tmp_path: Path, postgres_url: str
) -> None:
    site = make_site(tmp_path, postgres_url, [f"spool://{tmp_path}/spool"])
    engine = make_engine(postgres_url)
    make_class(engine, "waiting", ce="text")
    engine.dispose()
    site.execute("GRANT INSERT ON waiting TO sam_loader")
    for statement, _ in BROKEN:
        site.execute(statement.format(parse_url(site.database).database))

    problems = "\n".join(site.json("check", code=78)["problems"])

    assert [words for _, words in BROKEN if words not in problems] == []


@pytest.fixture
def name() -> str:
    return f"grid.probe.{uuid.uuid4().hex}"


def test_every_topic_passes_a_round_trip_beside_a_running_consumer(
    tmp_path: Path, broker: StompServer, name: str
) -> None:
    """The consumer counts the messages of the check and loads none of them."""
    subscriptions = [Subscription(f"/topic/{name}"), Subscription(f"/topic/{name}.*", "downtime")]
    site = site_of(tmp_path, [broker.url], *subscriptions)
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        code, document = checked(site)
        publish(broker.host, broker.port, f"/topic/{name}", numbered("after", range(5)))
        site.wait_for_rows(5)
        stopped = daemon.stop()

    trips = document["brokers"]
    assert (code, document["problems"]) == (0, [])
    assert [trip["proven"] for trip in trips] == ["round trip"] * 2
    assert [trip["destination"] for trip in trips] == [item.destination for item in subscriptions]
    assert all(trip["seconds"] > 0 and trip["anybody_may_publish"] for trip in trips)
    assert ["anybody may publish" in note for note in document["notes"]] == [False, True, True]
    assert "2 checks" in daemon.log
    assert (stopped.messages, len(row_keys(site))) == (7, 5)


def test_a_check_consumes_nothing_from_a_queue(
    tmp_path: Path, broker: StompServer, name: str
) -> None:
    queue, waiting = f"/queue/q.{name}", numbered("standing", range(3))
    site = site_of(tmp_path, [broker.url], Subscription(queue))
    publish(broker.host, broker.port, queue, waiting)

    code, document = checked(site)

    assert (code, document["problems"]) == (0, [])
    assert ids(received(broker, queue, 3)) == [message.message_id for message in waiting]
