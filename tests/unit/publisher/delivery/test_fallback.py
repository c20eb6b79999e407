"""Publishing over STOMP: fallback, deadlines, receipts and limits, without losing messages."""

from __future__ import annotations

import logging
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.publisher.brokers import activemq
from sam_pipeline.publisher.delivery.outgoing import (
    MAX_MESSAGE_BYTES,
    fitted,
    fitted_record,
    outgoing,
    refusals_of,
    require_deliverable,
)
from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message
from sam_pipeline.schema.records.text import ReadRecord, read_wlcg
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message, metric_result
from tests.support.publishing import (
    TOPIC,
    config_for,
    dead_url,
    ids,
    messages,
    refusing,
    sized,
    spooled,
)

BOTH_WAYS = pytest.mark.parametrize("server", ["RabbitMQ/3.10", "ActiveMQ/6.3.1"])
"""Of confirming many messages: one by one, or by transaction."""


def test_a_message_arrives_unchanged_without_headers_that_a_broker_would_act_on() -> None:
    theirs = {"ack": "1", "expires": "5", "message-id": "2", "JMSXUserID": "root"}
    message = metric_message(**{"x-note": "a:b\\c\nd", **theirs})

    with FakeBroker() as broker:
        publication = publish([message], config_for(broker.url))

    (frame,) = broker.taken
    assert ids(receipt.message for receipt in publication.receipts) == broker.ids == ids([message])
    assert frame.body == message.body
    assert (frame.headers["destination"], frame.headers["persistent"]) == (TOPIC, "true")
    assert frame.headers["x-note"] == "a:b\\c\nd"
    assert not {"content-length", *map(str.lower, theirs)} & {*map(str.lower, frame.headers)}
    assert spooled() == []


@pytest.mark.parametrize(
    ("trouble", "stem"),
    [
        (FakeBroker(mute=True), "no answer"),
        (FakeBroker(eats_receipts=True), "no answer"),
        (FakeBroker(drips=True), "no answer"),
        (FakeBroker(refuses_login="Bad user"), "login failed: Bad user"),
        (FakeBroker(version="1.1"), "speaks STOMP 1.1, not 1.2"),
        (FakeBroker(drops_after=0), "closed the connection"),
        (FakeBroker(rejects=lambda frame: "Store is full"), "Store is full"),
    ],
    ids=["mute", "eats receipts", "drips", "refuses login", "old", "drops", "full"],
)
def test_a_failing_broker_leaves_time_for_the_next_one(trouble: FakeBroker, stem: str) -> None:
    (message,) = messages(1)

    with trouble, FakeBroker() as broker:
        config = config_for(trouble.url, broker.url, timeout_s=2.0)
        publication = publish([message], config)

    assert broker.ids == ids([message])
    assert stem in publication.failures[0].reason
    assert spooled() == []


@pytest.mark.parametrize(("spool", "code"), [(None, 69), (Path("/dev/null/spool"), 73)])
def test_the_caller_gets_a_message_back_that_nobody_took(spool: Path | None, code: int) -> None:
    with pytest.raises(NoBrokerTookIt, match="1 of 1 messages were neither") as caught:
        publish(sent := messages(1), config_for(dead_url(), spool=spool))

    assert (caught.value.exit_code, ids(caught.value.missing)) == (code, ids(sent))
    assert (str(spool) in str(caught.value)) == bool(spool)


@BOTH_WAYS
def test_many_messages_arrive_once_in_order_over_one_connection(server: str) -> None:
    sent = messages(350)

    with FakeBroker(server=server) as broker:
        publication = publish(sent, config_for(broker.url))

    transactions = {frame.headers.get("transaction") for frame in broker.taken}
    assert (broker.ids, broker.connections) == (ids(sent), 1)
    assert len(publication.receipts) == 350
    assert transactions == {None} if "Rabbit" in server else len(transactions) == 4
    assert ("receipt" in broker.taken[0].headers) == ("Rabbit" in server)


@pytest.mark.parametrize(
    ("server", "drops_after", "confirmed"), [("Fake/1.0", 120, 120), ("ActiveMQ/6", 150, 100)]
)
def test_the_next_broker_gets_what_is_left(server: str, drops_after: int, confirmed: int) -> None:
    sent = messages(300)

    with FakeBroker(server=server, drops_after=drops_after) as first, FakeBroker() as second:
        publication = publish(sent, config_for(first.url, second.url))

    by_first = [item for item in publication.receipts if str(item.address) == first.url]
    assert len(by_first) >= confirmed
    assert first.ids[:confirmed] == ids(sent[:confirmed])
    assert first.ids + second.ids == ids(sent)
    assert len(publication.receipts) == 300


def test_a_message_that_one_broker_refuses_is_offered_to_the_next() -> None:
    sent = messages(3)
    refused = sent[1].message_id

    with FakeBroker(rejects=refusing(refused)) as first, FakeBroker() as second:
        publication = publish(sent, config_for(first.url, second.url))

    assert (refused in first.ids, second.ids) == (False, [refused])
    assert (len(publication.receipts), publication.rejections) == (3, ())
    assert spooled() == []


@BOTH_WAYS
def test_a_rejected_message_is_spooled_and_the_others_are_published(server: str) -> None:
    sent = messages(30)
    refused = sent[12].message_id

    with FakeBroker(server=server, rejects=refusing(refused)) as broker:
        publication = publish(sent, config_for(broker.url))

    assert {*broker.ids} == {*ids(sent)} - {refused}
    assert ids(rejection.message for rejection in publication.rejections) == [refused]
    assert spooled() == [refused]


def test_a_broker_named_twice_is_tried_once() -> None:
    with FakeBroker(refuses_login="closed") as broker:
        localhost = broker.url.replace(HOST, "localhost")
        publication = publish(messages(1), config_for(broker.url, localhost))

    assert (broker.connections, len(publication.failures)) == (1, 1)


UNLOADABLE = [metric_message(destination="/topics/grid.x"), sized(4 * 1024 * 1024 + 1)]


@pytest.mark.parametrize("message", UNLOADABLE)
def test_nothing_is_sent_or_spooled_if_no_consumer_could_load_one(message: Message) -> None:
    with FakeBroker() as broker, pytest.raises(MessageRefused):
        publish([*messages(1), message], config_for(broker.url))

    assert broker.taken == []
    assert spooled() == []


SERVLET = "activemq-rest+http://msg.example.org:8161/api/message"
RABBIT = "rabbitmq-api+https://msg.example.org/%2F/amq.topic"
STOMP = PublisherConfig(brokers=("stomp://msg.example.org",))
AMS = PublisherConfig(brokers=("ams+https://msg.example.org/v1/projects/p",))
REST = PublisherConfig(brokers=(SERVLET,))
MARK = re.compile(r"\n\[(\d+) bytes were left out here\]$")


def with_details(details: str) -> Message:
    return metric_message(metric_result(detailsData=details))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (STOMP, "\u00e9\u20ac\U0001f600"),
        (PublisherConfig(), "x"),
        (AMS, "line\n"),
        *((REST, text) for text in ("x", "\u00e9\u20ac\U0001f600", "a=b&c;{}")),
    ],
)
def test_details_are_shortened_to_what_fits_with_a_mark_and_a_warning(
    config: PublisherConfig, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    details = text * (6_000_000 // len(text.encode()))
    message = with_details(details)

    with caplog.at_level(logging.WARNING):
        shortened = fitted(message, config)

    (read,) = read_wlcg(shortened.body)
    assert isinstance(read, ReadRecord)
    mark = MARK.search(kept := read.fields["detailsData"])
    assert mark is not None
    beginning = kept[: mark.start()]
    left_out = len(details.encode()) - len(beginning.encode())
    assert details.startswith(beginning)
    assert int(mark[1]) == left_out
    assert shortened.headers == message.headers
    assert len(caplog.messages) == 1 and str(left_out) in caplog.text
    if config in (REST, AMS):
        assert refusals_of(shortened, config) == {}
        assert len(shortened.body) > (activemq.MAX_FORM_BYTES if config is REST else 1e6) / 4
    else:
        assert MAX_MESSAGE_BYTES - 10 < len(shortened.body) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize("config", [REST, AMS], ids=["servlet", "AMS"])
def test_details_leave_room_for_a_signature(config: PublisherConfig, tmp_path: Path) -> None:
    make_key(tmp_path / "nagios1.pem")
    config = config.replace(signing_key_file=tmp_path / "nagios1.pem")

    shortened = fitted(with_details("+" * 4_000_000), config)

    for number in range(20):  # each signature is another one
        message = Message({**shortened.headers, MESSAGE_ID: f"{number:33}"}, shortened.body)
        assert refusals_of(outgoing(message, config), config) == {}


def test_what_fits_is_unchanged() -> None:
    message, record = with_details("x" * 150_000), metric_result()

    assert fitted(message, STOMP) is fitted(message, REST) is message
    assert fitted(with_details("x" * 300_000), PublisherConfig(brokers=(SERVLET, RABBIT)))
    assert fitted_record(record, REST, {}) is record


def test_what_is_too_large_without_its_details_is_refused() -> None:
    record = metric_result(performanceData="x" * 5_000_000, detailsData="short")

    with pytest.raises(MessageRefused, match=r"too-large: .*5000\d\d\d bytes"):
        fitted(metric_message(record), STOMP)


@pytest.mark.parametrize(
    ("config", "message", "refused"),
    [
        (STOMP, sized(MAX_MESSAGE_BYTES), ""),
        (STOMP, sized(MAX_MESSAGE_BYTES + 1), "too-large"),
        (PublisherConfig(), sized(MAX_MESSAGE_BYTES + 1), "too-large"),
        (REST, sized(190_000), ""),
        (REST, sized(200_000), "too-large"),
        (PublisherConfig(brokers=(SERVLET, "stomp://b")), sized(200_000), ""),
        (STOMP, metric_message(destination="/topics/x"), "is not a destination"),
        (STOMP, metric_message(destination="/topic/a.>"), "is not a destination"),
        (STOMP, Message({"messageClass": "disk usage"}, b""), "is not a destination"),
    ],
)
def test_a_message_is_refused_that_consumers_or_all_brokers_would_refuse(
    config: PublisherConfig, message: Message, refused: str
) -> None:
    expected = pytest.raises(MessageRefused, match=refused) if refused else nullcontext()
    with expected:
        require_deliverable(message, config)
