"""Network brokers as a sink, and work between two batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import BROKER, NOWHERE, Delivery, Outcome
from sam_pipeline.consumer.core.recovery import Attempts
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import SinkAway
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import BrokerConfig
from sam_pipeline.consumer.sinks.relay import MAX_ATTEMPTS, MAX_SUSPECTS, BrokerSink
from sam_pipeline.consumer.sinks.upkeep import PeriodicTask, TurnResult, run_due
from sam_pipeline.schema.identity.identity import IDENTITY
from sam_pipeline.schema.messages.headers import REJECTED
from sam_pipeline.schema.messages.message import DESTINATION, Message, default_destination
from sam_pipeline.schema.net.broker import parse_broker
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.errors import DatabaseAway
from tests.support.brokers.fake_broker import FakeBroker, Frame
from tests.support.builders import metric_message
from tests.support.consumer.doubles import FakeSession, delivery

NOBODY = "stomp://127.0.0.1:1"
TOPIC = "/topic/grid.probe.metricOutput"


def deliveries(messages: Sequence[Message], answers: bool = False) -> list[Delivery]:
    session = FakeSession("spool:///in", answers)
    return [delivery(session, number, message) for number, message in enumerate(messages)]


class Relay:
    """A sink with these brokers and its directory of rejected messages."""

    def __init__(self, directory: Path, *brokers: FakeBroker | str, **keys: Any) -> None:
        urls = [broker if isinstance(broker, str) else broker.url for broker in brokers]
        self.config = ConsumerConfig(
            broker_urls=("spool:///in",), state_directory=directory, **keys
        )
        self.sink = BrokerSink(
            [parse_broker(url) for url in urls],
            self.config,
            State(),
            Attempts(directory / "attempts"),
        )

    def load(self, batch: Sequence[Delivery]) -> Outcome:
        return self.sink.load(batch)

    def move(self, *messages: Message, answers: bool = False) -> Outcome:
        return self.load(deliveries(messages, answers))

    def kept(self) -> list[Message]:
        """The rejected messages."""
        queue = DirectoryQueue(self.config.rejected_directory)
        return [queue.read(name) for name in queue.names()]


MakeRelay = Callable[..., Relay]


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[MakeRelay]:
    """Makes relays that are closed at the end."""
    with ExitStack() as stack:

        def make(*brokers: FakeBroker | str, **keys: Any) -> Relay:
            relay = Relay(tmp_path, *brokers, **keys)
            stack.callback(relay.sink.close)
            return relay

        yield make


def refusing(text: str, *bodies: bytes) -> FakeBroker:
    """A broker that ends the session with this error at messages with these bodies."""
    return FakeBroker(rejects=lambda frame: text if frame.body in bodies else "")


def message(body: bytes = b"x", **headers: str) -> Message:
    return Message({**metric_message(destination=TOPIC).headers, **headers}, body)


def bodies(broker: FakeBroker) -> list[bytes]:
    return [frame.body for frame in broker.taken]


GROUPS = default_destination("siteGroup")
CONSUMER_QUEUE = "/queue/Consumer.site-a.VirtualTopic.grid.probe"


@pytest.mark.parametrize(
    ("received", "name", "value"),
    [
        (message(expires="1"), "expires", None),
        (message(JMSXUserID="eve"), "JMSXUserID", None),
        (message(priority="99"), "priority", None),
        (message(priority="9"), "priority", "9"),
        (message(destination=CONSUMER_QUEUE), DESTINATION, "/topic/VirtualTopic.grid.probe"),
        (Message({"messageClass": "siteGroup"}, b"x"), DESTINATION, GROUPS),
    ],
)
def test_headers_on_which_brokers_act_are_dropped_or_translated(
    relay: MakeRelay, received: Message, name: str, value: str | None
) -> None:
    with FakeBroker() as broker:
        relay(broker).move(received)

    assert broker.taken[0].headers.get(name) == value


def test_the_next_broker_gets_what_the_first_did_not_confirm(relay: MakeRelay) -> None:
    sent = [message() for _ in range(100)]

    with FakeBroker(drops_after=30) as first, FakeBroker() as second:
        relay(first, second).move(*sent)

    assert (len(first.taken), len(second.taken)) == (30, 70)
    assert {*first.ids, *second.ids} == {message.message_id for message in sent}


def test_each_broker_gets_its_own_login_and_a_refused_one_needs_somebody_to_act(
    relay: MakeRelay, tmp_path: Path
) -> None:
    password_file = tmp_path / "password"
    password_file.touch(0o600)
    password_file.write_text("secret")

    with FakeBroker(refuses_login="password is invalid") as first, FakeBroker() as second:
        with pytest.raises(SinkAway) as caught:
            relay(first).move(message())
        table = BrokerConfig(url=second.url, user="bridge", password_file=password_file)
        relay(first, second, user="common", broker=(table,)).move(message())

    logins = [
        (login.headers.get("login"), login.headers.get("passcode"))
        for login in (first.logins[-1], *second.logins)
    ]
    assert logins == [("common", None), ("bridge", "secret")]
    assert (caught.value.needs_action, caught.value.exit_code) == (True, 69)


def test_a_repeated_batch_does_not_send_again_what_was_confirmed(relay: MakeRelay) -> None:
    batch = deliveries([message() for _ in range(10)])

    with FakeBroker(drops_after=4) as broker:
        moving = relay(broker)
        with pytest.raises(SinkAway):
            moving.load(batch)
        broker.drops_after = None
        moving.load(batch)

    assert len(broker.taken) == len(set(broker.ids)) == 10


def test_a_refused_message_is_kept_with_the_reason_and_the_others_are_sent(
    relay: MakeRelay,
) -> None:
    bad, good = message(b"bad", **{IDENTITY: "uid:7"}), [message() for _ in range(20)]

    with refusing("message too large", b"bad") as broker:
        moving = relay(broker)
        outcome = moving.move(*good[:10], bad, *good[10:])

    (kept,) = moving.kept()
    assert set(broker.ids) == {message.message_id for message in good}
    assert (outcome.counts.rejected_messages, outcome.counts.all_loaded) == (1, False)
    assert (kept.body, kept.message_id) == (b"bad", bad.message_id)
    assert bad.headers.items() <= kept.headers.items()
    assert kept.headers[REJECTED] == f"{broker.url}: message too large"


def test_a_message_that_ends_each_session_does_not_hold_up_the_others(relay: MakeRelay) -> None:
    good = [message(b"%d" % number) for number in range(60)]

    with refusing("Processing error", b"odd", b"bad") as broker:
        moving = relay(broker)
        outcome = moving.move(*good[:30], message(b"odd"), message(b"bad"), *good[30:])

    assert {*bodies(broker)} == {message.body for message in good}
    assert {message.body for message in moving.kept()} == {b"odd", b"bad"}
    assert outcome.counts.rejected_messages == 2


@pytest.mark.parametrize(("count", "is_rejected"), [(1, True), (5 * MAX_SUSPECTS, False)])
def test_a_message_that_ends_each_session_is_rejected_unless_the_broker_is_to_blame(
    relay: MakeRelay, count: int, is_rejected: bool
) -> None:
    batch = deliveries([message(b"odd") for _ in range(count)])

    with refusing("Processing error", b"odd") as broker:
        moving = relay(broker)
        for _ in range(MAX_ATTEMPTS - 1):
            with pytest.raises(SinkAway, match="Processing error"):
                moving.load(batch)
        assert moving.kept() == []
        if is_rejected:
            assert moving.load(batch).counts.rejected_messages == len(moving.kept()) == 1


def test_a_broker_that_confirms_nothing_is_left_for_the_next(
    relay: MakeRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sam_pipeline.consumer.sinks.relay.ANSWER_S", 0.3)

    with FakeBroker(eats_receipts=True) as mute, FakeBroker() as second:
        outcome = relay(mute, second).move(message(b"a"))

    assert (bodies(second), outcome.counts.rejected_messages) == ([b"a"], 0)


def test_a_refused_message_is_offered_to_the_other_brokers_unless_they_are_away(
    relay: MakeRelay,
) -> None:
    with refusing("access denied", b"bad") as strict, FakeBroker() as second:
        moving = relay(strict, second)
        offered = moving.move(message(b"bad"), message(b"good"))
        kept = moving.kept()
        alone = relay(NOBODY, strict).move(message(b"bad"), message(b"good"))
    with pytest.raises(SinkAway, match=NOBODY):
        relay(NOBODY).sink.prepare()

    assert (bodies(strict), bodies(second)) == ([b"good", b"good"], [b"bad"])
    assert (offered.counts.rejected_messages, kept) == (0, [])
    assert alone.counts.rejected_messages == len(moving.kept()) == 1


@pytest.mark.parametrize("bad", [{}, {DESTINATION: "/topic/a.>"}])
def test_a_message_that_nobody_could_receive_is_not_sent(
    relay: MakeRelay, bad: dict[str, str]
) -> None:
    with FakeBroker() as broker:
        moving = relay(broker)
        outcome = moving.move(Message(bad, b"x"), message(b"good"))

    assert bodies(broker) == [b"good"]
    assert outcome.counts.rejected_messages == len(moving.kept()) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("not authorized to write", "not-authorised"), ("message too large", "refused-by-broker")],
)
def test_a_sender_that_waits_for_an_answer_keeps_its_refused_message(
    relay: MakeRelay, answer: str, reason: str
) -> None:
    with refusing(answer, b"bad") as broker:
        moving = relay(broker)
        outcome = moving.move(message(b"good"), message(b"bad"), answers=True)

    (letter,) = outcome.answers[1].letters
    assert [outcome.answers[at].stored for at in (0, 1)] == [BROKER, NOWHERE]
    assert (letter.number, letter.reason) == (None, reason)
    assert answer in letter.text
    assert (outcome.counts.rejected_messages, moving.kept()) == (0, [])


def test_a_full_disk_delays_the_batch_and_the_answers_stay_the_same(relay: MakeRelay) -> None:
    answering = deliveries([message(b"bad"), message(b"good")], answers=True)
    batch, asked = [*deliveries([message(b"bad")]), *answering], list[Frame]()

    def refuse(frame: Frame) -> str:
        asked.append(frame)
        return "too large" if frame.body == b"bad" else ""

    with FakeBroker(rejects=refuse) as broker:
        moving = relay(broker)
        moving.config.rejected_directory.write_text("not a directory")
        with pytest.raises(SinkAway):
            moving.load(batch)
        asked_before = len(asked)
        moving.config.rejected_directory.unlink()
        outcome = moving.load(batch)

    assert len(asked) == asked_before  # nothing is sent a second time
    assert bodies(broker) == [b"good"]
    assert outcome.counts.rejected_messages == len(moving.kept()) == 1
    assert [outcome.answers[at].stored for at in (1, 2)] == [NOWHERE, BROKER]


SOON_S = 30.0
AWAY = DatabaseAway("connection refused")
DONE, WAITING, NOTHING = TurnResult.DONE, TurnResult.WAITING, TurnResult.NOTHING


@pytest.mark.parametrize(
    ("result", "every_s", "takes_s", "step_s", "steps", "news_at", "calls"),
    [
        (DONE, 1.0, 0.0, 0.1, 25, range(25), [0, 10, 20]),
        (DONE, 1.0, 0.5, 1.0, 12, range(12), [0, 6]),  # slow work is done less often
        (NOTHING, 1.0, 0.0, 1.0, 10, [6], [0, 1, 6, 7]),  # without news the database is left alone
        (DONE, 1.0, 0.0, 1.0, 4, [], [0, 1, 2, 3]),  # remaining work is done without news
        (AWAY, 1.0, 0.0, 1.0, 2, range(2), [0, 1]),
        (WAITING, 10.0, 0.0, 1.0, 31, range(0, 31, 2), [0, 10, 20, 30]),
        (DONE, 10.0, 0.0, 1.0, 3, range(3), [0, 1, 2]),  # more work continues without delay
    ],
)
def test_the_turns_of_a_task(
    result: TurnResult | Exception,
    every_s: float,
    takes_s: float,
    step_s: float,
    steps: int,
    news_at: Iterable[int],
    calls: list[int],
) -> None:
    now, took_turns = [100.0], list[int]()

    def turn() -> TurnResult:
        took_turns.append(step)
        now[0] += takes_s
        if isinstance(result, Exception):
            raise result
        return result

    task = PeriodicTask(turn, every_s, lambda: now[0])
    for step in range(steps):
        now[0] = 100.0 + step * step_s
        run_due([task], step in news_at)

    assert took_turns == calls


def test_loading_goes_on_during_work_in_the_background_which_is_begun_only_once() -> None:
    may_end, calls = threading.Event(), list[bool]()

    def turn() -> TurnResult:
        calls.append(may_end.wait(SOON_S))
        return NOTHING

    task = PeriodicTask(turn, every_s=0.0, in_background=True)
    for _ in range(3):
        run_due([task], news=True)
    may_end.set()
    task.wait()

    assert calls == [True]
