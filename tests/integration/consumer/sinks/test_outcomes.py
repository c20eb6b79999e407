"""What the sinks report on messages of sessions that answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from sqlalchemy import Engine

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery
from sam_pipeline.consumer.core.outcome import DATABASE, SPOOL, MessageOutcome
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sinks.database import DatabaseSink
from sam_pipeline.consumer.sinks.spool import SpoolSink
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.records.normalise import Limits
from tests.support.builders import metric_message, metric_result
from tests.support.database.roles import acting_as


class Source:
    """A session that is never acked."""

    broker = "listen+http://127.0.0.1:8080"
    batch_size = NO_LIMIT

    def __init__(self, answers: bool) -> None:
        self.answers = answers

    def ack(self, tokens: Sequence[object]) -> None:
        raise NotImplementedError


def batch(*messages: Message) -> list[Delivery]:
    """Every other one from a session that answers, the first one included."""
    sessions = Source(True), Source(False)
    return [Delivery(message, sessions[at % 2], at) for at, message in enumerate(messages)]


def test_the_database_reports_rows_duplicates_and_dead_letters(engine: Engine) -> None:
    known, bad = metric_message(), metric_result(metricStatus="FINE")
    unknown = Message({CLASS: "weatherReport"}, b"")
    with acting_as("loader", engine) as loader:
        sink = DatabaseSink(loader, "site-a", Limits(), State(), 1000, 20_000_000)
        sink.load(batch(known), (), nullcontext)

        copies = known, Message(*known)
        tally = sink.load(batch(metric_message(bad), unknown, *copies), (), nullcontext)
        again = sink.load(batch(metric_message(bad), known, unknown), (), nullcontext)

    [letter] = tally.outcomes[0].letters
    assert (letter.number, letter.reason) == (1, "bad-status")
    assert "FINE" in letter.text
    assert tally.outcomes == {
        0: MessageOutcome(DATABASE, letters=(letter,)),
        2: MessageOutcome(DATABASE, duplicates=1),
    }
    assert again.outcomes[0].letters == (letter,), "a repeated dead letter is one"
    assert [record[:2] for record in again.outcomes[2].letters] == [(None, "unknown-class")]


def test_a_summarised_dead_letter_is_reported_like_others(engine: Engine) -> None:
    messages = [Message({CLASS: "weatherReport"}, b"%d" % number) for number in range(4)]
    with acting_as("loader", engine) as loader:
        sink = DatabaseSink(loader, "site-a", Limits(), State(), 1, 20_000_000)

        tally = sink.load(batch(*messages), (), nullcontext)

    assert tally.summarised_dead_letters == 3
    letters = [outcome.letters for outcome in tally.outcomes.values()]
    assert [[record.reason for record in records] for records in letters] == [["unknown-class"]] * 2


def test_nothing_is_reported_to_sessions_that_do_not_answer(engine: Engine) -> None:
    silent = [Delivery(metric_message(), Source(False), 0)]
    with acting_as("loader", engine) as loader:
        sink = DatabaseSink(loader, "site-a", Limits(), State(), 1000, 20_000_000)

        assert sink.load(silent, (), nullcontext).outcomes == {}


def test_a_spool_reports_that_it_has_the_message(tmp_path: Path) -> None:
    sink = SpoolSink(parse_broker(f"spool://{tmp_path}/queue"))

    tally = sink.load(batch(metric_message(), metric_message(), metric_message()), (), nullcontext)

    assert tally.outcomes == dict.fromkeys((0, 2), MessageOutcome(SPOOL))
