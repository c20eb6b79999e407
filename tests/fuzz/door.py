"""The HTTP door without sockets: bytes go to a connection, its answers must be HTTP.

Everything runs in one thread, so that the same bytes take the same way each time.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any
from urllib.parse import quote_plus

from sam_pipeline.consumer.core.inbox import DATABASE, BatchRule, Inbox, MessageOutcome
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.process.listening import Listeners
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sources.door.access import Access, Credentials, DoorSettings
from sam_pipeline.consumer.sources.door.answers import PROBLEM
from sam_pipeline.consumer.sources.door.intake import Intake
from sam_pipeline.consumer.sources.door.server import DoorServer
from sam_pipeline.consumer.sources.door.source import OPENAPI, Requests
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.json_form import write_json
from sam_pipeline.schema.spool.element import serialise
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.consumer.bad_requests import BAD_REQUESTS, chunked, post
from tests.support.http_client import JSON, LINES, HttpAnswer
from tests.support.raw_http import AnswerReader, Truncated, request

MAX_BODY_BYTES = 16_384
STATUSES = json.loads(OPENAPI.read_bytes())["components"]["responses"]
LONGEST_SEED = 4096
NRDP = (JSON, "text/xml")
"""The content types of all answers of NRDP."""
FORM = "application/x-www-form-urlencoded"
IDLE_TURNS = 5
"""A connection that did nothing in as many turns of the loop waits for more bytes."""


class _Transport(asyncio.Transport):
    """Collects what is written, and reads nothing while it is paused."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", 8080)})
        self.written = bytearray()
        self.is_reading_paused = False
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.written += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False


class _Inline(ThreadPoolExecutor):
    """Runs everything at once, in the thread that submits it."""

    def submit(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(run(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class _Door:
    """A door whose messages are decoded at once, as the only session of its inbox."""

    broker = "listen+http://127.0.0.1:8080"
    batch_size = 1000
    answers = True

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_Inline())
        self._inbox = Inbox(1000)
        state = State()
        state.can_commit()
        config = ConsumerConfig(max_message_bytes=MAX_BODY_BYTES, buffer_bytes=100 * MAX_BODY_BYTES)
        settings = DoorSettings(config, Listeners())
        access = Access(Credentials(), None, admits_anonymous=True)
        self._intake = Intake(self, self._inbox, settings, state, access)
        self._requests = Requests(self._intake, access, state)
        self._taken: list[Message] = []

    def ack(self, tokens: Sequence[Any]) -> None:
        raise AssertionError("a door answers")

    def answer(self, outcomes: Sequence[tuple[Any, MessageOutcome]]) -> None:
        self._intake.resolve(outcomes)

    async def exchange(self, pieces: Iterable[bytes]) -> tuple[bytes, bool, list[Message]]:
        """What a connection answers to these pieces, whether it closes, and what it delivered."""
        self._taken = []
        transport = _Transport()
        connection = DoorServer("fuzz", self._requests.response, 10, self._requests.count)()
        connection._lingering_time = 0.0  # or it would outlive its input
        connection.connection_made(transport)
        await self._until_idle(transport)
        for piece in pieces:
            if not transport.is_reading_paused:
                connection.data_received(piece)
            await self._until_idle(transport)
        written, is_closed = bytes(transport.written), transport.is_closing()
        connection.connection_lost(None)
        await self._until_idle(transport)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a task outlives its connection"
        assert not self._intake.waiting and not self._intake.reading_bytes
        return written, is_closed, self._taken

    async def _until_idle(self, transport: _Transport) -> None:
        idle = 0
        while idle < IDLE_TURNS:
            before = len(transport.written)
            await asyncio.sleep(0)
            batch = self._inbox.take(BatchRule(1000, 0), 0)
            for delivery in batch:
                self._taken.append(delivery.message)
                decoded = decode(delivery.message, METRIC_OUTPUT.keys, NOW)
                outcome = MessageOutcome(DATABASE, rows=len(decoded.rows))
                self.answer([(delivery.token, outcome)])
            idle = 0 if batch or len(transport.written) > before else idle + 1


def read_requests(data: bytes, chance: random.Random) -> None:
    """Send the bytes in some pieces; every answer must be one that the door documents."""
    if chance.randrange(3):
        data = _with_length(data)
    cuts = sorted(chance.randint(0, len(data)) for _ in range(chance.choice([0, 0, 1, 3])))
    pieces = [data[start:end] for start, end in pairwise([0, *cuts, len(data)])]
    door = _door()
    written, closed, taken = door.loop.run_until_complete(door.exchange(pieces))
    ids = [message.message_id for message in taken]
    for answer in _answers(written, closed):
        if answer.status >= 300:
            assert str(answer.status) in STATUSES, answer
            if not answer.headers["content-type"].startswith(NRDP):
                assert answer.headers["content-type"].startswith(PROBLEM), answer
                assert answer.document["status"] == answer.status, answer
        for line in answer.documents:
            if line.get("status", answer.status) == 200 and "messageId" in line:
                assert line["messageId"] in ids, "stored, but never delivered"
                ids.remove(line["messageId"])


def _with_length(data: bytes) -> bytes:
    """The data with the right length of its last body, if a length is there."""
    head, end, body = data.rpartition(b"\r\n\r\n")
    before, name, length = head.rpartition(b"Content-Length: ")
    if not name:
        return data
    return before + name + b"%d" % len(body) + length.lstrip(b"0123456789") + end + body


def _answers(written: bytes, closed: bool) -> Iterator[HttpAnswer]:
    parts = iter([written])
    reader = AnswerReader(lambda: next(parts, b""))
    try:
        while not reader.at_end:
            yield reader.answer()
    except Truncated:
        assert not closed, "closed before the end of an answer"


@cache
def _door() -> _Door:
    return _Door()


def _submitted(form: bytes, results: bytes) -> bytes:
    body = b"cmd=submitcheck&token=t&" + form + b"=" + results
    return post(target="/nrdp/", content_type=FORM, body=body)


_NRDP_JSON = quote_plus(
    '{"checkresults": [{"checkresult": {"type": "service", "checktype": "1"}, "state": "0",'
    ' "hostname": "ce01.example.org", "servicename": "org.sam.M", "output": "OK|t=1s"}]}'
).encode()
_NRDP_XML = quote_plus(
    "<?xml version='1.0'?><checkresults><checkresult type='service' checktype='1'>"
    "<hostname>ce01.example.org</hostname><servicename>org.sam.M</servicename><state>0</state>"
    "<output>OK</output></checkresult></checkresults>"
).encode()
_GOOD = (
    post(),
    post() * 3,
    post(("Sam-Message-Id", "x"), ("Sam-Record-Count", "1")),
    post(("Transfer-Encoding", "chunked"), body=None) + chunked(b"hostName: ", b"x\nEOT\n"),
    request("GET", "/readyz") + request("GET", "/v1/openapi.json"),
    post(target="/v1/messages", content_type=LINES, body=serialise(metric_message()) + b"\n{}\n"),
    post(content_type=JSON, body=write_json([metric_result()]).encode()),
    post(content_type="application/jsonl", body=b'{"hostName": "a"}\n{"hostName": 1}\n'),
    post(target="/api/message/q?type=queue&messageClass=metricOutput&JMSPriority=4"),
    post(target="/api/message/a.b?body=x", content_type=FORM, body=b"body=a%3A+b&type=topic"),
    _submitted(b"JSONDATA", _NRDP_JSON),
    _submitted(b"XMLDATA", _NRDP_XML),
    post(target="/nrdp/?cmd=hello", content_type=FORM, body=b""),
)
SEEDS = tuple(bad.data for bad in BAD_REQUESTS if len(bad.data) <= LONGEST_SEED) + 8 * _GOOD
TOKENS = (
    *(b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\t", b"\xff", b",", b";", b'"', b"%00", b"%zz"),
    *(b"Content-Length: 5\r\n", b"Content-Length: 99999999999\r\n", b"content-length:0\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"1;a=b\r\n"),
    *(b"Content-Encoding: gzip\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n"),
    *(b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"Host: b\r\n", b"HTTP/1.0", b"HTTP/2.0"),
    *(b"GET ", b"PUT ", b"OPTIONS * ", b"/../", b"//", b"?", b"#", b"http://a:b@[::1"),
    *(b"/api/message/", b"POST /v1/messages/metricOutput HTTP/1.1\r\n", b"Sam-Key: x\r\n"),
    *(b"Sam-Message-Id: y\r\n", b"%3C!DOCTYPE+x+%5B%3C!ENTITY+a+%22b%22%3E%5D%3E", b"%26a%3B"),
    *(b"&", b"=", b"+", b"cmd=", b"Content-Type: application/json\r\n", b"{}", b"["),
    b'{"header": {}, "body": ""}\n',
)
