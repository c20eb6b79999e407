"""Draining the spool: by the next call that reaches a broker, or by command."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sam_pipeline.publisher import PublisherConfig, publish
from sam_pipeline.publisher.delivery import drain as drain_module
from sam_pipeline.publisher.delivery.drain import MAX_BATCH_S, DrainTotals, drain, drain_until
from sam_pipeline.publisher.errors import MessageRejected
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, Frame, closed_port
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


def config_for(spool: DirectoryQueue, *brokers: str, timeout_s: float = 5.0) -> PublisherConfig:
    return PublisherConfig(brokers=brokers, spool=spool.path, timeout_s=timeout_s)


def filled(spool: DirectoryQueue, count: int) -> list[str]:
    """Spool this many messages; their ids."""
    messages = [metric_message() for _ in range(count)]
    for message in messages:
        spool.add(message)
    return [message.message_id for message in messages]


def test_the_next_call_drains_the_spool_after_its_own_message_on_the_same_connection(
    spool: DirectoryQueue,
) -> None:
    waiting, message = filled(spool, 3), metric_message()

    with FakeBroker() as broker:
        publication = publish([message], config_for(spool, broker.url))

    assert broker.ids == [message.message_id, *waiting]
    assert broker.connections == 1
    assert publication.drained == 3
    assert spool.count() == 0


def test_a_message_spooled_without_a_broker_is_sent_by_the_next_call_to_its_own_destination(
    spool: DirectoryQueue,
) -> None:
    publish([metric_message(destination="/queue/mine")], config_for(spool))

    with FakeBroker() as broker:
        publish([metric_message()], config_for(spool, broker.url))

    assert [frame.headers["destination"] for frame in broker.taken] == [
        "/topic/grid.probe.metricOutput",
        "/queue/mine",
    ]


def test_a_drain_that_fails_does_not_fail_the_call_and_loses_nothing(
    spool: DirectoryQueue,
) -> None:
    waiting = filled(spool, 3)

    with FakeBroker(drops_after=2) as broker:
        publication = publish([metric_message()], config_for(spool, broker.url))

    assert len(publication.receipts) == 1
    assert publication.spooled == ()
    left = [spool.read(name).message_id for name in spool.names()]
    assert set(left) | set(broker.ids[1:]) == set(waiting)
    assert not list(spool.path.rglob("*.lck"))


def test_draining_during_a_publish_ends_at_the_deadline(spool: DirectoryQueue) -> None:
    filled(spool, 3)
    started = time.monotonic()

    with FakeBroker(freezes_after=2) as broker:
        publication = publish([metric_message()], config_for(spool, broker.url, timeout_s=1.0))
        elapsed_s = time.monotonic() - started

    assert len(publication.receipts) == 1
    assert elapsed_s < 1.7


def test_one_process_at_a_time_drains_during_a_publish(spool: DirectoryQueue) -> None:
    filled(spool, 3)
    held = os.open(spool.path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)

    with FakeBroker() as broker:
        publication = publish([metric_message()], config_for(spool, broker.url))
    os.close(held)

    assert publication.drained == 0
    assert len(broker.taken) == 1
    assert spool.count() == 3


def test_an_element_locked_by_another_process_is_skipped(spool: DirectoryQueue) -> None:
    waiting = filled(spool, 3)
    locked = next(spool.names())
    spool.lock(locked)

    with FakeBroker() as broker:
        result = drain(config_for(spool, broker.url))

    assert broker.ids == waiting[1:]
    assert result.sent == 2
    assert list(spool.names()) == [locked]


def test_drain_falls_back_to_the_next_broker_with_the_remaining_messages(
    spool: DirectoryQueue,
) -> None:
    waiting = filled(spool, 260)

    with FakeBroker(drops_after=230) as first, FakeBroker() as second:
        result = drain(config_for(spool, first.url, second.url))

    assert result.complete
    assert result.sent == 260
    assert set(first.ids) | set(second.ids) == set(waiting)
    assert len(second.ids) <= 260 - 200
    assert spool.count() == 0


def test_a_drain_without_broker_is_not_complete_and_keeps_everything(
    spool: DirectoryQueue,
) -> None:
    filled(spool, 2)

    result = drain(config_for(spool, f"stomp://127.0.0.1:{closed_port()}"))

    assert not result.complete
    assert spool.count() == 2


def test_an_empty_spool_is_drained_without_asking_a_broker(spool: DirectoryQueue) -> None:
    with FakeBroker() as broker:
        result = drain(config_for(spool, broker.url))

    assert result.complete
    assert broker.connections == 0


def test_a_damaged_element_is_set_aside_with_its_reason_and_the_others_are_sent(
    spool: DirectoryQueue,
) -> None:
    waiting = filled(spool, 3)
    first = next(spool.names())
    (spool.path / first).write_text("{")

    with FakeBroker() as broker:
        result = drain(config_for(spool, broker.url))

    assert broker.ids == waiting[1:]
    assert result.set_aside == 1
    reasons = [path.read_text() for path in Path(f"{spool.path}.bad").glob("*.reason")]
    assert len(reasons) == 1
    assert "is not a message" in reasons[0]


def test_a_rejected_element_stays_in_the_spool_and_the_others_are_sent(
    spool: DirectoryQueue,
) -> None:
    waiting = filled(spool, 5)

    def refuse_one(frame: Frame) -> str:
        return "access_refused" if frame.headers["samMessageId"] == waiting[1] else ""

    with FakeBroker(rejects=refuse_one) as broker:
        result = drain(config_for(spool, broker.url))

    assert set(broker.ids) == {*waiting} - {waiting[1]}
    assert [spool.read(name).message_id for name in spool.names()] == [waiting[1]]
    assert sum(result.rejections.values()) == 1
    assert result.complete


def test_an_element_rejected_during_a_publish_stays_locked_until_its_lock_expires(
    spool: DirectoryQueue,
) -> None:
    (waiting,) = filled(spool, 1)

    def refuse_it(frame: Frame) -> str:
        return "access_refused" if frame.headers["samMessageId"] == waiting else ""

    with FakeBroker(rejects=refuse_it) as broker:
        publish([metric_message()], config_for(spool, broker.url))
        connections = broker.connections
        publish([metric_message()], config_for(spool, broker.url))

    assert connections > 1  # the refusal cost one
    assert broker.connections == connections + 1
    assert [spool.read(name).message_id for name in spool.names()] == [waiting]


def test_an_element_of_a_foreign_writer_gets_our_class_and_destination(
    spool: DirectoryQueue,
) -> None:
    spool.add(Message({"message-id": "ID:1"}, metric_message().body))

    with FakeBroker() as broker:
        drain(config_for(spool, broker.url))

    (frame,) = broker.taken
    assert frame.headers["messageClass"] == "metricOutput"
    assert frame.headers["destination"] == "/topic/grid.probe.metricOutput"
    assert "message-id" not in frame.headers


def test_a_spool_that_is_also_the_broker_is_not_drained_into_itself(
    spool: DirectoryQueue,
) -> None:
    filled(spool, 2)
    config = config_for(spool, f"spool://{spool.path}")

    publication = publish([metric_message()], config)

    assert publication.drained == 0
    assert not drain(config).complete
    assert spool.count() == 3


class Scripted:
    """A broker in this process that accepts each message unless `refuses` returns a reason."""

    def __init__(self, refuses: Callable[[Message], str] = lambda _: "") -> None:
        self._refuses = refuses
        self.asked: list[str] = []
        self.taken: list[str] = []
        self.seconds: list[float] = []
        self.connections = 0

    def connect(self, *_: object) -> Scripted:
        self.connections += 1
        return self

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        self.seconds.append(deadline.remaining())
        for position, message in enumerate(messages):
            self.asked.append(message.message_id)
            why = self._refuses(message)
            if why:
                raise MessageRejected("a broker", position, why)
            self.taken.append(message.message_id)
            yield position

    def close(self) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    broker = Scripted()
    monkeypatch.setattr(drain_module, "kind_of", lambda _: broker)
    return broker


def locks(spool: DirectoryQueue) -> list[Path]:
    return list(spool.path.rglob("*.lck"))


def test_concurrent_drains_send_every_message_once(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, brokers = filled(spool, 300), [Scripted() for _ in range(3)]
    kinds = iter(brokers)
    monkeypatch.setattr(drain_module, "kind_of", lambda _: next(kinds))
    config = config_for(spool, "stomp://127.0.0.1:1")

    threads = [threading.Thread(target=drain, args=(config,)) for _ in brokers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(message_id for broker in brokers for message_id in broker.taken) == sorted(
        waiting
    )
    assert spool.count() == 0


def test_an_element_that_cannot_be_set_aside_does_not_delay_the_others(
    spool: DirectoryQueue, scripted: Scripted
) -> None:
    waiting = filled(spool, 3)
    (spool.path / next(spool.names())).write_text("{")
    Path(f"{spool.path}.bad").touch()

    result = drain(config_for(spool, "stomp://127.0.0.1:1"))

    assert scripted.taken == waiting[1:]
    assert (result.sent, result.set_aside, spool.count()) == (2, 0, 1)
    assert locks(spool) == []


def test_damaged_elements_of_every_kind_are_set_aside_and_the_others_are_sent(
    spool: DirectoryQueue, scripted: Scripted
) -> None:
    waiting, names = filled(spool, 6), list(spool.names())
    empty, cut, flipped, directory = (spool.path / name for name in names[:4])
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:-9])
    flipped.write_bytes(b"\xfb" + flipped.read_bytes()[1:])
    directory.unlink()
    directory.mkdir()
    (spool.path / "README").write_text("no element")
    (spool.path / names[4].split("/")[0] / "core").write_text("no element")

    result = drain(config_for(spool, "stomp://127.0.0.1:1"))

    quarantine = Path(f"{spool.path}.bad")
    assert scripted.taken == waiting[4:]
    assert (result.set_aside, spool.count(), locks(spool)) == (4, 0, [])
    for name in names[:4]:
        aside = quarantine / name.replace("/", ".")
        assert aside.exists()
        assert name in aside.with_name(f"{aside.name}.reason").read_text()


def test_a_batch_ends_before_its_locks_expire_even_with_a_long_timeout(
    spool: DirectoryQueue, scripted: Scripted
) -> None:
    filled(spool, 1)

    drain(config_for(spool, "stomp://127.0.0.1:1", timeout_s=86400))

    assert scripted.seconds == [pytest.approx(MAX_BATCH_S, abs=5)]


def test_an_interrupted_drain_leaves_no_lock(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(spool, 3)

    def interrupt(_: Message) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(drain_module, "kind_of", lambda _: Scripted(interrupt))
    with pytest.raises(KeyboardInterrupt):
        drain(config_for(spool, "stomp://127.0.0.1:1"))

    assert locks(spool) == []
    assert spool.count() == 3


def test_an_element_locked_by_a_killed_process_is_drained_once_the_lock_is_old(
    spool: DirectoryQueue,
) -> None:
    waiting = filled(spool, 2)
    name = next(spool.names())
    spool.lock(name)
    os.utime(spool.path / name, (0, time.time() - 601))

    with FakeBroker() as broker:
        publish([metric_message()], config_for(spool, broker.url))

    assert broker.ids[1:] == waiting


def test_a_drain_leaves_no_empty_directories_but_the_newest(
    spool: DirectoryQueue, scripted: Scripted
) -> None:
    filled(spool, 1)
    (directory,) = spool.path.iterdir()
    directory.rename(spool.path / "00000000")
    filled(spool, 1)

    drain(config_for(spool, "stomp://127.0.0.1:1"))

    assert len(list(spool.path.iterdir())) == 1


def test_a_drain_stops_after_the_current_batch_on_request(
    spool: DirectoryQueue, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(spool, 5)
    monkeypatch.setattr(drain_module, "BATCH", 2)

    result = drain(config_for(spool, "stomp://127.0.0.1:1"), lambda _: False)

    assert result.sent == 2
    assert spool.count() == 3
    assert locks(spool) == []


def test_a_drain_loop_sends_new_messages_until_it_is_stopped(spool: DirectoryQueue) -> None:
    stop, totals = threading.Event(), []
    with FakeBroker() as broker:
        config = config_for(spool, broker.url)
        run = threading.Thread(target=lambda: totals.append(drain_until(stop, config, 0.01)))
        run.start()
        first = filled(spool, 2)
        _until(lambda: len(broker.ids) == 2)
        second = filled(spool, 1)
        _until(lambda: len(broker.ids) == 3)
        stop.set()
        run.join(10)

    assert not run.is_alive()
    assert broker.ids == first + second
    assert totals[0].sent == 3


def test_a_drain_loop_retries_a_rejected_message_later(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Scripted(lambda _: "too big")
    (waiting,) = filled(spool, 1)
    rounds = _Rounds(4)
    monkeypatch.setattr(drain_module, "kind_of", lambda _: broker)

    total = drain_until(rounds, config_for(spool, "stomp://127.0.0.1:1"))  # type: ignore[arg-type]

    assert broker.asked == [waiting]
    assert broker.connections == 1
    assert total.rejections == {"a broker: too big": 1}
    assert spool.count() == 1


@pytest.mark.parametrize(
    ("waiting", "waits"), [(0, [1, 2, 4, 4, 4, 4, 4]), (1, [1, 2, 4, 8, 16, 30, 30])]
)
def test_a_drain_loop_backs_off_while_nothing_can_be_sent(
    spool: DirectoryQueue, waiting: int, waits: list[float]
) -> None:
    filled(spool, waiting)
    rounds = _Rounds(len(waits))

    drain_until(rounds, config_for(spool))  # type: ignore[arg-type]

    assert rounds.waits == waits


def test_a_drain_loop_survives_an_unavailable_file_server(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, sent = _Rounds(2), DrainTotals()
    sent.sent = 1
    rounds_of_drain = iter([SpoolError("the file server lost this export", 74), sent])

    def away_once(*_: object) -> DrainTotals:
        outcome = next(rounds_of_drain)
        if isinstance(outcome, SpoolError):
            raise outcome
        return outcome

    monkeypatch.setattr(drain_module, "drain", away_once)
    total = drain_until(rounds, config_for(spool))  # type: ignore[arg-type]

    assert total.sent == 1


class _Rounds:
    """A stop event that is set after this many rounds and never actually waits."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.waits: list[float] = []

    def is_set(self) -> bool:
        return len(self.waits) >= self._left

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


def _until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends_at, "the condition never became true"
        time.sleep(0.01)


SERVLET_LIMIT = 200_000


@pytest.mark.parametrize("destination", ["/topics/grid.probe.metricOutput", "foo", "/topic/a b"])
def test_an_element_to_where_nobody_can_subscribe_is_set_aside_and_the_others_are_sent(
    spool: DirectoryQueue, destination: str
) -> None:
    first = filled(spool, 1)
    spool.add(metric_message(destination=destination))
    last = filled(spool, 1)

    with FakeBroker() as broker:
        totals = drain(config_for(spool, broker.url))

    assert broker.ids == [*first, *last]
    assert (totals.sent, totals.set_aside, totals.complete) == (2, 1, True)
    assert spool.count() == 0
    (reason,) = Path(f"{spool.path}.bad").glob("*.reason")
    assert repr(destination) in reason.read_text()


def test_an_element_too_large_for_one_broker_waits_for_another_without_an_error(
    spool: DirectoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    large = Message(metric_message().headers, b"x" * (SERVLET_LIMIT + 1))
    spool.add(large)

    with HttpStandIn(lambda _: reply(200, b"Message sent", messageID="1")) as server:
        url = f"activemq-rest+http://{HOST}:{server.port}/api/message"
        with caplog.at_level("ERROR"):
            publish([metric_message()], config_for(spool, url))
        sent = [asked for asked in server.asked if b"samMessageId" in asked.body]
        assert len(sent) == 1
        assert caplog.messages == []
        spool.unlock(next(spool.names()))  # the lock expires
        with FakeBroker() as broker:
            totals = drain(config_for(spool, url, broker.url))

    assert broker.ids == [large.message_id]
    assert (totals.sent, totals.rejected) == (1, {})
    assert spool.count() == 0
