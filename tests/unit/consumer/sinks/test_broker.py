"""Network brokers as a sink: the first that confirms, and what becomes of refused messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery
from sam_pipeline.consumer.core.outcome import BROKER, NOWHERE
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.core.tally import Tally
from sam_pipeline.consumer.errors import SinkAway
from sam_pipeline.consumer.settings.broker_config import BrokerConfig
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sinks import broker_link
from sam_pipeline.consumer.sinks.broker import BrokerSink
from sam_pipeline.consumer.sinks.broker_link import MAX_ATTEMPTS, MAX_SUSPECTS
from sam_pipeline.schema.identity.identity import IDENTITY
from sam_pipeline.schema.messages.message import DESTINATION, Message, default_destination
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.stomp.headers import REJECTED
from sam_pipeline.schema.program.command import UNAVAILABLE
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, Frame
from tests.support.builders import metric_message

NOBODY = "stomp://127.0.0.1:1"
TOPIC = "/topic/grid.probe.metricOutput"


class Origin:
    """A session, which may answer its senders."""

    broker = "spool:///in"
    batch_size = NO_LIMIT

    def __init__(self, answers: bool = False) -> None:
        self.answers = answers

    def ack(self, tokens: Sequence[int]) -> None:
        raise NotImplementedError


def deliveries(messages: Sequence[Message], answers: bool = False) -> list[Delivery]:
    session = Origin(answers)
    return [Delivery(message, session, number) for number, message in enumerate(messages)]


class Relay:
    """A sink with these brokers and its directory of rejected messages."""

    def __init__(self, directory: Path, *urls: str, **keys: Any) -> None:
        self.config = ConsumerConfig(("spool:///in",), state_directory=directory, **keys)
        self.sink = BrokerSink([parse_broker(url) for url in urls], self.config, State())

    def load(self, batch: Sequence[Delivery]) -> Tally:
        return self.sink.load(batch, (), nullcontext)

    def move(self, *messages: Message, answers: bool = False) -> Tally:
        return self.load(deliveries(messages, answers))

    def kept(self) -> list[Message]:
        """The rejected messages."""
        queue = DirectoryQueue(self.config.rejected_directory)
        return [queue.read(name) for name in queue.names()]


def refusing(*reasons_by_body: tuple[bytes, str]) -> FakeBroker:
    """A broker that refuses the messages with these bodies."""
    reasons = dict(reasons_by_body)
    return FakeBroker(rejects=lambda frame: reasons.get(frame.body, ""))


def message(body: bytes = b"x", **headers: str) -> Message:
    return Message({**metric_message(destination=TOPIC).headers, **headers}, body)


def test_messages_arrive_with_their_ids_headers_and_bodies(tmp_path: Path) -> None:
    sent = [message(b"a", x="1", samIdentity="uid:7"), message(b"b\0\xff", samKey="k")]

    with FakeBroker() as broker, closing(Relay(tmp_path, broker.url).sink) as sink:
        tally = sink.load(deliveries(sent), (), nullcontext)

    assert [frame.body for frame in broker.taken] == [b"a", b"b\0\xff"]
    for frame, original in zip(broker.taken, sent, strict=True):
        assert original.headers.items() <= frame.headers.items()
    assert (tally.rejected, tally.all_loaded, tally.outcomes) == (0, True, {})


def test_headers_on_which_brokers_act_are_not_sent_on(tmp_path: Path) -> None:
    received = message(b"a", expires="1", JMSXUserID="eve", timestamp="soon", priority="99")

    with FakeBroker() as broker, closing(Relay(tmp_path, broker.url).sink) as sink:
        sink.load(deliveries([received]), (), nullcontext)

    assert not {"expires", "JMSXUserID", "timestamp", "priority"} & broker.taken[0].headers.keys()


def test_a_priority_that_all_brokers_understand_is_sent_on(tmp_path: Path) -> None:
    with FakeBroker() as broker, closing(Relay(tmp_path, broker.url).sink) as sink:
        sink.load(deliveries([message(b"a", priority="9")]), (), nullcontext)

    assert broker.taken[0].headers["priority"] == "9"


def test_a_message_without_a_destination_goes_to_that_of_its_class(tmp_path: Path) -> None:
    with FakeBroker() as broker, closing(Relay(tmp_path, broker.url).sink) as sink:
        sink.load(deliveries([Message({"messageClass": "siteGroup"}, b"x")]), (), nullcontext)

    assert broker.taken[0].headers[DESTINATION] == default_destination("siteGroup")


def test_a_copy_from_a_virtual_topic_goes_to_the_topic(tmp_path: Path) -> None:
    copy = message(destination="/queue/Consumer.site-a.VirtualTopic.grid.probe")

    with FakeBroker() as broker, closing(Relay(tmp_path, broker.url).sink) as sink:
        sink.load(deliveries([copy]), (), nullcontext)

    assert broker.taken[0].headers[DESTINATION] == "/topic/VirtualTopic.grid.probe"


def test_the_next_broker_gets_what_the_first_did_not_confirm(tmp_path: Path) -> None:
    sent = [message() for _ in range(100)]

    with FakeBroker(drops_after=30) as first, FakeBroker() as second:
        relay = Relay(tmp_path, first.url, second.url)
        relay.move(*sent)
        relay.sink.close()

    assert (len(first.taken), len(second.taken)) == (30, 70)
    assert {*first.ids, *second.ids} == {message.message_id for message in sent}


def test_the_broker_that_confirmed_last_is_tried_first(tmp_path: Path) -> None:
    with FakeBroker(refuses_login="no") as first, FakeBroker() as second:
        relay = Relay(tmp_path, first.url, second.url)
        for _ in range(3):
            relay.move(message())
        relay.sink.close()

    assert (first.connections, second.connections, len(second.taken)) == (1, 1, 3)


def test_each_broker_gets_its_own_login(tmp_path: Path) -> None:
    password_file = tmp_path / "password"
    password_file.write_text("secret")
    password_file.chmod(0o600)

    with FakeBroker(drops_after=0) as first, FakeBroker() as second:
        table = BrokerConfig(second.url, user="bridge", password_file=password_file)
        relay = Relay(tmp_path, first.url, second.url, user="common", broker=(table,))
        relay.move(message())
        relay.sink.close()

    users = [
        {(frame.headers.get("login"), frame.headers.get("passcode")) for frame in broker.logins}
        for broker in (first, second)
    ]
    assert users == [{("common", None)}, {("bridge", "secret")}]


def test_without_any_broker_nothing_is_stored(tmp_path: Path) -> None:
    relay = Relay(tmp_path, NOBODY)

    with pytest.raises(SinkAway, match=NOBODY):
        relay.sink.prepare()
    with pytest.raises(SinkAway, match=NOBODY):
        relay.move(message())

    assert relay.kept() == []


@pytest.mark.parametrize(
    ("answer", "acts"), [("User name or password is invalid", True), ("", False)]
)
def test_a_refused_login_needs_somebody_to_act(tmp_path: Path, answer: str, acts: bool) -> None:
    with FakeBroker(refuses_login=answer, drops_after=0) as broker:
        relay = Relay(tmp_path, broker.url)
        with pytest.raises(SinkAway) as caught:
            relay.move(message())
        relay.sink.close()

    assert caught.value.needs_action == acts
    assert caught.value.exit_code == UNAVAILABLE


def test_a_repeated_batch_does_not_send_again_what_was_confirmed(tmp_path: Path) -> None:
    batch = deliveries([message() for _ in range(10)])

    with FakeBroker(drops_after=4) as broker:
        relay = Relay(tmp_path, broker.url)
        with pytest.raises(SinkAway):
            relay.load(batch)
        broker.drops_after = None
        relay.load(batch)
        relay.sink.close()

    assert len(broker.taken) == 10
    assert len(set(broker.ids)) == 10


def test_a_refused_message_is_kept_with_the_reason_and_the_others_are_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = message(b"bad", **{IDENTITY: "uid:7"}), [message() for _ in range(20)]

    with refusing((b"bad", "message too large")) as broker:
        relay = Relay(tmp_path, broker.url)
        tally = relay.move(*good[:10], bad, *good[10:])
        relay.sink.close()

    (kept,) = relay.kept()
    assert set(broker.ids) == {message.message_id for message in good}
    assert (tally.rejected, tally.all_loaded) == (1, False)
    assert (kept.body, kept.message_id) == (b"bad", bad.message_id)
    assert bad.headers.items() <= kept.headers.items()
    assert kept.headers[REJECTED] == f"{broker.url}: message too large"
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert bad.message_id in line.getMessage()
    assert str(relay.config.rejected_directory) in line.getMessage()


def ending(*bodies: bytes) -> FakeBroker:
    """A broker that ends the session with any of these bodies, for a reason of its own."""
    return FakeBroker(rejects=lambda frame: "Processing error" if frame.body in bodies else "")


def test_a_message_that_ends_each_session_does_not_hold_up_the_others(tmp_path: Path) -> None:
    good = [message(b"%d" % number) for number in range(60)]

    with ending(b"odd", b"bad") as broker:
        relay = Relay(tmp_path, broker.url)
        tally = relay.move(*good[:30], message(b"odd"), message(b"bad"), *good[30:])
        relay.sink.close()

    assert {frame.body for frame in broker.taken} == {message.body for message in good}
    assert {message.body for message in relay.kept()} == {b"odd", b"bad"}
    assert tally.rejected == 2


def test_a_message_that_ends_each_session_is_rejected_at_the_last_attempt(tmp_path: Path) -> None:
    batch = deliveries([message(b"odd")])

    with ending(b"odd") as broker:
        relay = Relay(tmp_path, broker.url)
        for _ in range(MAX_ATTEMPTS - 1):
            with pytest.raises(SinkAway, match="Processing error"):
                relay.load(batch)
        assert relay.load(batch).rejected == 1
        relay.sink.close()

    assert [message.body for message in relay.kept()] == [b"odd"]


def test_a_broker_that_ends_every_session_is_to_blame_itself(tmp_path: Path) -> None:
    batch = deliveries([message() for _ in range(5 * MAX_SUSPECTS)])

    with FakeBroker(rejects=lambda frame: "the disk is in trouble") as broker:
        relay = Relay(tmp_path, broker.url)
        for _ in range(MAX_ATTEMPTS - 1):
            with pytest.raises(SinkAway, match="disk"):
                relay.load(batch)
        relay.sink.close()

    assert relay.kept() == []


def test_a_broker_that_confirms_nothing_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_link, "ANSWER_S", 0.3)

    with FakeBroker(eats_receipts=True) as mute, FakeBroker() as second:
        relay = Relay(tmp_path, mute.url, second.url)
        tally = relay.move(message(b"a"))
        relay.sink.close()

    assert [frame.body for frame in second.taken] == [b"a"]
    assert tally.rejected == 0


def test_a_refused_message_is_offered_to_the_other_brokers(tmp_path: Path) -> None:
    with refusing((b"bad", "access denied")) as strict, FakeBroker() as second:
        relay = Relay(tmp_path, strict.url, second.url)
        tally = relay.move(message(b"bad"), message(b"good"))
        relay.sink.close()

    assert [frame.body for frame in strict.taken] == [b"good"]
    assert [frame.body for frame in second.taken] == [b"bad"]
    assert (tally.rejected, relay.kept()) == (0, [])


def test_a_refused_message_does_not_wait_for_a_broker_that_is_away(tmp_path: Path) -> None:
    with refusing((b"bad", "access denied")) as strict:
        relay = Relay(tmp_path, NOBODY, strict.url)
        tally = relay.move(message(b"bad"), message(b"good"))
        relay.sink.close()

    assert [frame.body for frame in strict.taken] == [b"good"]
    assert tally.rejected == len(relay.kept()) == 1


@pytest.mark.parametrize("bad", [{}, {DESTINATION: "grid.probe.x"}, {DESTINATION: "/topic/a.>"}])
def test_a_message_that_nobody_could_receive_is_not_sent(
    tmp_path: Path, bad: dict[str, str]
) -> None:
    with FakeBroker() as broker:
        relay = Relay(tmp_path, broker.url)
        tally = relay.move(Message(bad, b"x"), message(b"good"))
        relay.sink.close()

    assert [frame.body for frame in broker.taken] == [b"good"]
    assert tally.rejected == len(relay.kept()) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("not authorized to write", "not-authorised"), ("message too large", "refused-by-broker")],
)
def test_a_sender_that_waits_for_an_answer_keeps_its_refused_message(
    tmp_path: Path, answer: str, reason: str
) -> None:
    with refusing((b"bad", answer)) as broker:
        relay = Relay(tmp_path, broker.url)
        tally = relay.move(message(b"good"), message(b"bad"), answers=True)
        relay.sink.close()

    (letter,) = tally.outcomes[1].letters
    assert [tally.outcomes[at].stored for at in (0, 1)] == [BROKER, NOWHERE]
    assert (letter.number, letter.reason) == (None, reason)
    assert answer in letter.text
    assert (tally.rejected, relay.kept()) == (0, [])


def test_a_full_disk_delays_the_batch_and_the_answers_stay_the_same(tmp_path: Path) -> None:
    batch = deliveries([message(b"bad")]) + deliveries(
        [message(b"bad"), message(b"good")], answers=True
    )
    asked: list[Frame] = []

    def refuse(frame: Frame) -> str:
        asked.append(frame)
        return "too large" if frame.body == b"bad" else ""

    with FakeBroker(rejects=refuse) as broker:
        relay = Relay(tmp_path, broker.url)
        relay.config.rejected_directory.write_text("not a directory")
        with pytest.raises(SinkAway):
            relay.load(batch)
        asked_before = len(asked)
        relay.config.rejected_directory.unlink()
        tally = relay.load(batch)
        relay.sink.close()

    assert len(asked) == asked_before  # nothing is sent a second time
    assert [frame.body for frame in broker.taken] == [b"good"]
    assert tally.rejected == len(relay.kept()) == 1
    assert [tally.outcomes[at].stored for at in (1, 2)] == [NOWHERE, BROKER]
