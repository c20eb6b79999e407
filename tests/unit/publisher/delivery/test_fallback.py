"""Publishing over STOMP: fallback, deadlines and receipts, without losing messages."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, Frame, closed_port
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message

SLACK_S = 0.7
"""What a loaded machine may add to a deadline."""


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


def config_for(spool: DirectoryQueue, *brokers: str, timeout_s: float = 5.0) -> PublisherConfig:
    return PublisherConfig(brokers=brokers, spool=spool.path, timeout_s=timeout_s)


def spooled_ids(spool: DirectoryQueue) -> list[str]:
    return [spool.read(name).message_id for name in spool.names()]


def ids_of(messages: list[Message]) -> list[str]:
    return [message.message_id for message in messages]


def dead_url() -> str:
    return f"stomp://127.0.0.1:{closed_port()}"


def test_publish_returns_when_the_broker_confirmed(spool: DirectoryQueue) -> None:
    message = metric_message()

    with FakeBroker() as broker:
        publication = publish([message], config_for(spool, broker.url))

    assert [receipt.message.message_id for receipt in publication.receipts] == [message.message_id]
    assert broker.ids == [message.message_id]
    assert spool.count() == 0


def test_a_message_is_sent_persistently_with_unchanged_body_and_headers(
    spool: DirectoryQueue,
) -> None:
    message = metric_message(**{"x-note": "a:b\\c\nd"})

    with FakeBroker() as broker:
        publish([message], config_for(spool, broker.url))

    (frame,) = broker.taken
    assert frame.body == message.body
    assert frame.headers["destination"] == "/topic/grid.probe.metricOutput"
    assert frame.headers["persistent"] == "true"
    assert frame.headers["x-note"] == "a:b\\c\nd"
    assert "content-length" not in frame.headers


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a\0b"])
def test_a_binary_body_is_sent_with_its_length(spool: DirectoryQueue, body: bytes) -> None:
    message = Message({"messageClass": "metricOutput", "samMessageId": "1"}, body)

    with FakeBroker() as broker:
        publish([message], config_for(spool, broker.url))

    (frame,) = broker.taken
    assert frame.body == body
    assert frame.headers["content-length"] == str(len(body))


def test_publish_falls_back_to_the_next_broker(spool: DirectoryQueue) -> None:
    message = metric_message()
    dead = dead_url()

    with FakeBroker() as broker:
        publication = publish([message], config_for(spool, dead, broker.url))

    assert broker.ids == [message.message_id]
    assert [str(failure) for failure in publication.failures] == [f"{dead}: connection refused"]


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
def test_a_failing_broker_uses_only_its_share_of_the_deadline(
    spool: DirectoryQueue, trouble: FakeBroker, stem: str
) -> None:
    message = metric_message()
    started = time.monotonic()

    with trouble, FakeBroker() as broker:
        publication = publish([message], config_for(spool, trouble.url, broker.url, timeout_s=1.0))
        elapsed_s = time.monotonic() - started

    assert broker.ids == [message.message_id]
    assert stem in publication.failures[0].reason
    assert elapsed_s < 0.5 + SLACK_S
    assert spool.count() == 0


def test_the_deadline_holds_for_all_brokers_together(spool: DirectoryQueue) -> None:
    message = metric_message()
    started = time.monotonic()

    with FakeBroker(mute=True) as first, FakeBroker(mute=True) as second:
        publish([message], config_for(spool, first.url, second.url, timeout_s=1.0))
        elapsed_s = time.monotonic() - started

    assert elapsed_s < 1.0 + SLACK_S
    assert spooled_ids(spool) == [message.message_id]


def test_sending_to_a_broker_that_freezes_ends_at_the_deadline(
    spool: DirectoryQueue,
) -> None:
    large = [Message(metric_message().headers, b"x" * 1_000_000) for _ in range(16)]
    started = time.monotonic()

    with FakeBroker(freezes_after=1) as frozen:
        publication = publish(large, config_for(spool, frozen.url, timeout_s=1.0))
        elapsed_s = time.monotonic() - started

    assert elapsed_s < 1.0 + 16 * 0.3 + SLACK_S  # spooling 16 MB takes its time
    assert len(publication.receipts) == 1
    assert spool.count() == 15


def test_a_message_that_no_broker_accepts_is_spooled_once_with_its_destination(
    spool: DirectoryQueue,
) -> None:
    message = metric_message(destination="/queue/mine")

    publication = publish([message], config_for(spool, dead_url(), dead_url()))

    assert [kept.message_id for kept in publication.spooled] == [message.message_id]
    (element,) = [spool.read(name) for name in spool.names()]
    assert element.message_id == message.message_id
    assert element.headers["destination"] == "/queue/mine"
    assert len(publication.failures) == 2


def test_a_message_that_no_broker_accepts_is_an_error_without_a_spool() -> None:
    config = PublisherConfig(brokers=(dead_url(),))

    with pytest.raises(NoBrokerTookIt, match="1 of 1 messages were neither") as caught:
        publish([metric_message()], config)

    assert caught.value.exit_code == 69


def test_the_caller_gets_the_message_back_without_a_broker_and_a_writable_spool(
    tmp_path: Path,
) -> None:
    blocked = tmp_path / "spool"
    blocked.write_text("a file, not a directory")

    with pytest.raises(NoBrokerTookIt, match="neither published nor spooled") as caught:
        publish([metric_message()], PublisherConfig(brokers=(dead_url(),), spool=blocked))

    assert str(blocked) in str(caught.value)
    assert caught.value.exit_code == 73


@pytest.mark.parametrize("server", ["RabbitMQ/3.10", "ActiveMQ/6.3.1"])
def test_many_messages_arrive_once_in_order_over_one_connection(
    spool: DirectoryQueue, server: str
) -> None:
    messages = [metric_message() for _ in range(350)]

    with FakeBroker(server=server) as broker:
        publication = publish(messages, config_for(spool, broker.url))

    assert broker.ids == ids_of(messages)
    assert broker.connections == 1
    assert len(publication.receipts) == 350


def test_activemq_gets_many_messages_in_transactions_and_others_do_not(
    spool: DirectoryQueue,
) -> None:
    messages = [metric_message() for _ in range(150)]

    with FakeBroker(server="ActiveMQ/5.18.3") as activemq, FakeBroker() as other:
        publish(messages, config_for(spool, activemq.url))
        publish(messages, config_for(spool, other.url))

    assert len({frame.headers["transaction"] for frame in activemq.taken}) == 2
    assert not any("receipt" in frame.headers for frame in activemq.taken)
    assert not any("transaction" in frame.headers for frame in other.taken)


def test_messages_confirmed_before_a_failure_are_not_sent_to_the_next_broker(
    spool: DirectoryQueue,
) -> None:
    messages = [metric_message() for _ in range(300)]

    with FakeBroker(drops_after=120) as first, FakeBroker() as second:
        publication = publish(messages, config_for(spool, first.url, second.url))

    by_first = [item for item in publication.receipts if str(item.address) == first.url]
    assert len(by_first) == 120
    assert second.ids == ids_of(messages[len(by_first) :])
    assert len(publication.receipts) == 300


def test_each_message_of_a_failed_transaction_is_accepted_once(spool: DirectoryQueue) -> None:
    messages = [metric_message() for _ in range(300)]

    with (
        FakeBroker(server="ActiveMQ/6", drops_after=150) as first,
        FakeBroker(server="ActiveMQ/6") as second,
    ):
        publish(messages, config_for(spool, first.url, second.url))

    assert first.ids[:100] == ids_of(messages[:100])
    assert first.ids + second.ids == ids_of(messages)


def test_a_message_that_one_broker_refuses_is_offered_to_the_next(spool: DirectoryQueue) -> None:
    messages = [metric_message() for _ in range(3)]
    refused = messages[1].message_id

    def refuse_one(frame: Frame) -> str:
        return "access_refused" if frame.headers["samMessageId"] == refused else ""

    with FakeBroker(rejects=refuse_one) as first, FakeBroker() as second:
        publication = publish(messages, config_for(spool, first.url, second.url))

    assert refused not in first.ids
    assert second.ids == [refused]
    assert len(publication.receipts) == 3
    assert publication.rejections == ()
    assert spool.count() == 0


@pytest.mark.parametrize("server", ["RabbitMQ/3.10", "ActiveMQ/6.3.1"])
def test_a_rejected_message_is_spooled_and_the_others_are_published(
    spool: DirectoryQueue, server: str
) -> None:
    messages = [metric_message() for _ in range(30)]
    refused_id = messages[12].message_id

    def refuse_one(frame: Frame) -> str:
        refused = frame.headers["samMessageId"] == refused_id
        return "User is not authorized to write" if refused else ""

    with FakeBroker(server=server, rejects=refuse_one) as broker:
        publication = publish(messages, config_for(spool, broker.url))

    others = [message_id for message_id in ids_of(messages) if message_id != refused_id]
    assert set(broker.ids) == set(others)
    assert [item.message.message_id for item in publication.rejections] == [refused_id]
    assert spooled_ids(spool) == [refused_id]


def test_a_broker_named_twice_is_tried_once(spool: DirectoryQueue) -> None:
    with FakeBroker(refuses_login="closed") as broker:
        localhost = broker.url.replace("127.0.0.1", "localhost")
        publication = publish([metric_message()], config_for(spool, broker.url, localhost))

    assert broker.connections == 1
    assert len(publication.failures) == 1


def test_a_broker_whose_name_does_not_resolve_is_unavailable(
    spool: DirectoryQueue,
) -> None:
    with FakeBroker() as broker:
        config = config_for(spool, "stomp://no-such-host.invalid", broker.url)
        publication = publish([metric_message()], config)

    assert "name resolution failed" in publication.failures[0].reason
    assert len(broker.taken) == 1


def test_the_login_comes_from_url_and_password_file(
    spool: DirectoryQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password_file = tmp_path / "password"
    password_file.write_text("secret:word\n")
    password_file.chmod(0o600)
    with FakeBroker() as broker:
        config = PublisherConfig(
            brokers=(broker.url.replace("//", "//probe@"),),
            spool=spool.path,
            user="somebody else",
            password_file=password_file,
        )
        publish([metric_message()], config)

    (login,) = broker.logins
    assert (login.headers["login"], login.headers["passcode"]) == ("probe", "secret:word")
    assert login.headers["host"] == "/"


def test_headers_reserved_by_a_broker_are_not_sent(spool: DirectoryQueue) -> None:
    message = metric_message(ack="1", expires="5", **{"message-id": "2", "JMSXUserID": "root"})

    with FakeBroker() as broker:
        publish([message], config_for(spool, broker.url))

    names = {name.lower() for name in broker.taken[0].headers}
    assert not names & {"ack", "expires", "message-id", "jmsxuserid"}


def test_a_directory_queue_can_be_the_broker(spool: DirectoryQueue, tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "queue")
    message = metric_message()

    publication = publish([message], config_for(spool, f"spool://{queue.path}"))

    assert spooled_ids(queue) == [message.message_id]
    assert len(publication.receipts) == 1
    assert spool.count() == 0


def test_a_directory_queue_that_cannot_be_written_is_an_unavailable_broker(
    spool: DirectoryQueue, tmp_path: Path
) -> None:
    blocked = tmp_path / "queue"
    blocked.write_text("")

    publication = publish([metric_message()], config_for(spool, f"spool://{blocked}"))

    assert "is not a directory" in publication.failures[0].reason
    assert spool.count() == 1


def test_a_message_too_large_for_one_broker_waits_for_another_that_is_away(
    spool: DirectoryQueue,
) -> None:
    large = Message(metric_message().headers, b"x" * 300_000)

    with HttpStandIn(lambda _: reply(200, b"Message sent", messageID="1")) as server:
        servlet = f"activemq-rest+http://{HOST}:{server.port}/api/message"
        publication = publish([large], config_for(spool, servlet, dead_url()))

    assert publication.rejections == ()
    assert publication.spooled == (large._replace(headers=publication.spooled[0].headers),)
    assert spooled_ids(spool) == [large.message_id]


@pytest.mark.parametrize(
    "message",
    [
        metric_message(destination="/topics/grid.probe.metricOutput"),
        Message(metric_message().headers, b"x" * (4 * 1024 * 1024 + 1)),
    ],
)
def test_nothing_is_sent_or_spooled_if_no_consumer_could_load_one_of_the_messages(
    spool: DirectoryQueue, message: Message
) -> None:
    with FakeBroker() as broker, pytest.raises(MessageRefused):
        publish([metric_message(), message], config_for(spool, broker.url))

    assert broker.taken == []
    assert spool.count() == 0
