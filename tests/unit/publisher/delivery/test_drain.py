"""Draining the spool, in passing or by command; nothing is lost while programs wait or end."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sam_pipeline.publisher import publish
from sam_pipeline.publisher.commands.passive import deliver_until_safe
from sam_pipeline.publisher.commands.send import ReadAhead
from sam_pipeline.publisher.delivery import drain as drain_module
from sam_pipeline.publisher.delivery.drain import (
    IN_PASSING,
    MAX_BATCH_S,
    DrainTotals,
    drain,
    drain_in_passing,
    drain_until,
)
from sam_pipeline.publisher.delivery.publication import Courier, NoBrokerTookIt
from sam_pipeline.publisher.delivery.termination import Termination
from sam_pipeline.publisher.errors import MessageRejected, Terminated
from sam_pipeline.publisher.settings import CopyTable, PublisherConfig
from sam_pipeline.schema.errors import ConfigError, SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import Target, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.stand_in import HOST
from tests.support.publishing import (
    TOPIC,
    config_for,
    dead_url,
    filled,
    ids,
    messages,
    sized,
    spooled,
)

ANY = "stomp://127.0.0.1:1"
AT_ANY = Target(parse_broker(ANY), HOST)


class Scripted:
    """A broker in this process that accepts each message unless `refuses` returns a reason."""

    def __init__(self, refuses: Callable[[Message], str] = lambda _: "") -> None:
        self.refuses = refuses
        self.taken: list[Message] = []
        self.seconds: list[float] = []
        self.connections = 0

    def __call__(self, *_: object) -> Scripted:
        self.connections += 1
        return self

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        self.seconds.append(deadline.remaining())
        for position, message in enumerate(messages):
            if why := self.refuses(message):
                raise MessageRejected("a broker", position, why)
            self.taken.append(message)
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


def test_the_next_call_drains_the_spool_on_the_same_connection(spool: DirectoryQueue) -> None:
    waiting, (message,) = filled(spool, 2), messages(1)
    publish(elsewhere := messages(1, destination="/queue/mine"), config_for())
    spool.add(Message({"samMessageId": "foreign", "message-id": "ID:1"}, b"x"))

    with FakeBroker() as broker:
        publication = publish([message], config_for(broker.url))

    assert broker.ids == [message.message_id, *waiting, *ids(elsewhere), "foreign"]
    destinations = [frame.headers["destination"] for frame in broker.taken]
    assert destinations == [TOPIC] * 3 + ["/queue/mine", TOPIC]
    assert broker.taken[-1].headers["messageClass"] == "metricOutput"
    assert "message-id" not in broker.taken[-1].headers
    assert (broker.connections, publication.drained, spooled()) == (1, 4, [])


@pytest.mark.parametrize(("left_s", "given_s"), [(60.0, [IN_PASSING * 5]), (0.2, [0.2]), (0.0, [])])
def test_draining_in_passing_takes_a_share_of_the_time_limit_and_ends_with_the_call(
    spool: DirectoryQueue, left_s: float, given_s: list[float]
) -> None:
    filled(spool, 3)
    broker = Scripted()

    sent = drain_in_passing(broker, AT_ANY, config_for(ANY), Deadline.after(left_s))

    assert broker.seconds == pytest.approx(given_s, abs=0.15)
    assert sent == 3 * len(given_s)


def test_one_process_at_a_time_drains_during_a_publish(spool: DirectoryQueue) -> None:
    filled(spool, 3)
    held = os.open(spool.path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)

    drained = drain_in_passing(Scripted(), AT_ANY, config_for(ANY), Deadline.after(5))
    os.close(held)

    assert (drained, spool.count()) == (0, 3)


def test_what_a_killed_process_locked_is_drained_after_ten_minutes(spool: DirectoryQueue) -> None:
    waiting = filled(spool, 2)
    name = next(spool.names())
    spool.lock(name)
    os.utime(spool.path / name, (0, time.time() - 601))

    with FakeBroker() as broker:
        publish(messages(1), config_for(broker.url))

    assert broker.ids[1:] == waiting


def test_a_spool_that_is_also_the_broker_is_not_drained_into_itself(spool: DirectoryQueue) -> None:
    filled(spool, 2)
    config = config_for(f"spool://{spool.path}")

    assert publish(messages(1), config).drained == 0
    assert not drain(config).complete
    assert spool.count() == 3


def test_an_element_too_large_for_one_broker_waits_for_another_without_an_error(
    spool: DirectoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    large = sized(200_001)
    spool.add(large)

    with HttpStandIn(lambda _: reply(200, b"Message sent", messageID="1")) as server:
        url = f"activemq-rest+http://{HOST}:{server.port}/api/message"
        with caplog.at_level("ERROR"):
            publish(messages(1), config_for(url))
        assert len([asked for asked in server.asked if b"samMessageId" in asked.body]) == 1
        assert caplog.messages == []
        spool.unlock(next(spool.names()))  # the lock expires
        with FakeBroker() as broker:
            totals = drain(config_for(url, broker.url))

    assert broker.ids == [large.message_id]
    assert (totals.sent, totals.rejected, spool.count()) == (1, {}, 0)


def test_a_drain_falls_back_to_the_next_broker_with_the_rest(spool: DirectoryQueue) -> None:
    waiting = filled(spool, 260)

    with FakeBroker(drops_after=230) as first, FakeBroker() as second:
        result = drain(config_for(first.url, second.url))

    assert (result.complete, result.sent, spool.count()) == (True, 260, 0)
    assert {*first.ids, *second.ids} == {*waiting}
    assert len(second.ids) <= 260 - 200


def test_locked_and_rejected_elements_stay_alone(spool: DirectoryQueue, scripted: Scripted) -> None:
    waiting, names = filled(spool, 6), list(spool.names())
    spool.lock(names[0])
    scripted.refuses = lambda message: "no" if message.message_id == waiting[2] else ""

    result = drain(config_for(ANY))

    assert ids(scripted.taken) == [waiting[1], *waiting[3:]]
    assert list(spool.names()) == [names[0], names[2]]
    assert (result.sent, sum(result.rejections.values()), result.complete) == (4, 1, True)
    assert result.locked == {names[0]}
    assert len(locks(spool)) == 1


def test_concurrent_drains_send_once(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, brokers = filled(spool, 300), [Scripted() for _ in range(3)]
    kinds = iter(brokers)
    monkeypatch.setattr(drain_module, "kind_of", lambda _: next(kinds))

    with ThreadPoolExecutor() as pool:
        list(pool.map(drain, [config_for(ANY)] * 3))

    assert sorted(id for broker in brokers for id in ids(broker.taken)) == sorted(waiting)
    assert spool.count() == 0


def test_damaged_elements_alone_are_set_aside(spool: DirectoryQueue, scripted: Scripted) -> None:
    waiting, names = filled(spool, 6), list(spool.names())
    empty, cut, flipped, directory = (spool.path / name for name in names[:4])
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:-9])
    flipped.write_bytes(b"\xfb" + flipped.read_bytes()[1:])
    directory.unlink()
    directory.mkdir()
    (spool.path / "README").write_text("no element")
    (spool.path / names[4].split("/")[0] / "core").write_text("no element")

    result = drain(config_for(ANY))

    assert ids(scripted.taken) == waiting[4:]
    assert (result.set_aside, spool.count(), locks(spool)) == (4, 0, [])
    for name in names[:4]:
        aside = Path(f"{spool.path}.bad", name.replace("/", "."))
        assert aside.exists()
        assert name in aside.with_name(f"{aside.name}.reason").read_text()


def test_one_that_cannot_be_set_aside_stays(spool: DirectoryQueue, scripted: Scripted) -> None:
    waiting = filled(spool, 3)
    (spool.path / next(spool.names())).write_text("{")
    Path(f"{spool.path}.bad").touch()

    result = drain(config_for(ANY))

    assert ids(scripted.taken) == waiting[1:]
    assert (result.sent, result.set_aside, spool.count()) == (2, 0, 1)
    assert (len(result.inaccessible), locks(spool)) == (1, [])


def test_an_element_for_nobody_is_set_aside(spool: DirectoryQueue, scripted: Scripted) -> None:
    waiting = [*filled(spool, 1), *filled(spool, 1, destination="/topics/x"), *filled(spool, 1)]

    totals = drain(config_for(ANY))

    assert ids(scripted.taken) == [waiting[0], waiting[2]]
    assert (totals.sent, totals.set_aside, totals.complete, spool.count()) == (2, 1, True, 0)
    (reason,) = Path(f"{spool.path}.bad").glob("*.reason")
    assert "did you mean /topic/x?" in reason.read_text()


def test_a_batch_ends_before_its_locks_expire(spool: DirectoryQueue, scripted: Scripted) -> None:
    filled(spool, 1)

    drain(config_for(ANY, timeout_s=86400))

    assert scripted.seconds == [pytest.approx(MAX_BATCH_S, abs=5)]


def test_an_interrupted_drain_leaves_no_lock(spool: DirectoryQueue, scripted: Scripted) -> None:
    filled(spool, 3)
    scripted.refuses = Mock(side_effect=KeyboardInterrupt)

    with pytest.raises(KeyboardInterrupt):
        drain(config_for(ANY))

    assert (locks(spool), spool.count()) == ([], 3)


class Rounds(threading.Event):
    """A stop event that is set after this many rounds and never actually waits."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        if len(self.waits) >= self._left:
            self.set()
        return self.is_set()


@pytest.mark.parametrize(
    ("waiting", "waits"), [(0, [1, 2, 4, 4, 4, 4, 4]), (1, [1, 2, 4, 8, 16, 30, 30])]
)
def test_a_drain_loop_backs_off(spool: DirectoryQueue, waiting: int, waits: list[float]) -> None:
    filled(spool, waiting)
    rounds = Rounds(len(waits))

    drain_until(rounds, config_for())

    assert rounds.waits == waits


def test_a_drain_loop_survives_an_unavailable_file_server(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = DrainTotals()
    sent.sent = 1
    rounds = Mock(side_effect=[SpoolError("the file server lost this export", 74), sent])
    monkeypatch.setattr(drain_module, "drain", rounds)

    assert drain_until(Rounds(2), config_for(dead_url())).sent == 1


class Ending:
    """A termination that arrives in the wait number `at`, before which `repair` is called."""

    def __init__(self, at: int = 99, repair: Any = lambda: None) -> None:
        self.received = False
        self.interrupts = False
        self.waits: list[float] = []
        self._at = at
        self._repair = repair

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.received = len(self.waits) >= self._at
        self._repair()


def test_what_does_not_fit_into_the_spool_waits_for_room(spool: DirectoryQueue) -> None:
    sent = messages(3)

    def drain() -> None:
        for name in list(spool.names()):
            assert spool.lock(name)
            spool.remove(name)

    termination: Any = Ending(repair=drain)
    with Courier(config_for(spool_max_messages=2)) as courier:
        done = deliver_until_safe(courier, sent, 1.0, termination)

    assert ids(done.spooled) == ids(sent)
    assert (spool.count(), len(termination.waits)) == (1, 1)


def test_a_copy_whose_spool_fails_neither_loses_nor_doubles_anything(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("in the way")
    copy = CopyTable(name="b", brokers=("spool:///dev/null/x",), spool=tmp_path / "b")
    config = PublisherConfig(spool=tmp_path / "a", copy=(copy,), state=tmp_path / "state")
    termination: Any = Ending(repair=(tmp_path / "b").unlink)
    sent = messages(3)

    with Courier(config) as courier:
        done = deliver_until_safe(courier, sent, 1.0, termination)

    assert ids(done.spooled) == spooled("a") == spooled("b") == ids(sent)


def test_at_a_termination_it_is_tried_once_more_and_the_loss_is_an_error() -> None:
    termination: Any = Ending(at=3)
    with Courier(PublisherConfig()) as courier, pytest.raises(NoBrokerTookIt) as raised:
        deliver_until_safe(courier, messages(3), 1.0, termination)

    assert raised.value.lost == 3
    assert termination.waits == [1.0, 2.0, 4.0]


def test_a_key_that_can_not_be_read_now_loses_nothing() -> None:
    def deliver(given: Sequence[Message], _: object) -> Any:
        if not termination.waits:
            raise ConfigError(["the key is gone"])
        return SimpleNamespace(receipts=[], spooled=given, _replace=SimpleNamespace)

    termination: Any = Ending()
    courier: Any = SimpleNamespace(deliver=deliver)
    sent = messages(3)

    assert ids(deliver_until_safe(courier, sent, 1.0, termination).spooled) == ids(sent)


def test_items_fetched_ahead_keep_their_order_up_to_a_limit() -> None:
    ahead = ReadAhead(iter(range(5)), max_items=2)
    first = next(ahead)

    assert [ahead.work() for _ in range(3)] == [True, True, False]
    assert [first, *ahead] == [0, 1, 2, 3, 4]


def test_an_error_is_raised_at_its_position() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = ReadAhead(broken(), max_items=10)
    assert [ahead.work() for _ in range(3)] == [True, False, False]

    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


@pytest.fixture
def termination() -> Iterator[Termination]:
    with Termination() as termination:
        yield termination
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_signal_only_sets_a_flag_and_ends_a_wait_for_input(termination: Termination) -> None:
    terminate()

    assert termination.received
    assert select.select([termination.descriptor], [], [], 5)[0]


def test_the_signal_interrupts_a_wait_for_a_broker_once(termination: Termination) -> None:
    termination.interrupts = True

    with pytest.raises(Terminated):
        terminate()
    terminate()


def test_work_beside_a_wait_is_finished_before_the_interrupt(termination: Termination) -> None:
    finished = []
    termination.interrupts = True

    with pytest.raises(Terminated):
        termination.shielded(lambda: terminate() or finished.append(True) or True)()

    assert finished
