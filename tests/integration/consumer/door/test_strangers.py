"""Senders that are not known can't keep those who are from sending; web pages are no senders."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlencode

import pytest

from sam_pipeline.consumer.sources.door import server
from sam_pipeline.consumer.sources.door.access import LOGGED, MAX_BODY_BYTES, MAX_BYTES, Credentials
from sam_pipeline.schema.identity.tokens import StoredToken, Tokens, make_token
from tests.support.builders import metric_result
from tests.support.consumer.bad_requests import CHUNKS, GZIP, post, wlcg
from tests.support.consumer.door import door_site
from tests.support.consumer.open_door import OpenDoor, open_door
from tests.support.raw_http import Field, NotHttp, RawConnection, request
from tests.support.waiting import SOON_S, eventually

TOKEN = "5ec4e7" * 10
KNOWN = ("Authorization", f"Bearer {TOKEN}")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
READY = request("GET", "/readyz")
MIB = 1024 * 1024
CHECK = '{{"checkresults": [{{"checkresult": {{"type": "service"}}, "hostname": "ce1",\
 "servicename": "m", "state": "0", "output": "{}"}}]}}'


@pytest.fixture
def door() -> Iterator[OpenDoor]:
    """A door for those who have the token."""
    with open_door(
        credentials=Credentials(tokens=tokens()), require_identity=True, max_connections=8
    ) as door:
        yield door


def tokens() -> Tokens:
    return Tokens([StoredToken("nagios1", sha256(TOKEN.encode()).digest(), 1)])


def form(**fields: str) -> bytes:
    return request("POST", "/nrdp/", FORM, body=urlencode(fields).encode())


def compressed(size: int) -> bytes:
    """The beginning of so many bytes, without an end."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compressor.compress(b"a" * size) + compressor.flush(zlib.Z_SYNC_FLUSH)


def attack(port: int, head: tuple[Field, ...], body: bytes, stop: threading.Event) -> None:
    """Begin requests that never end, one after the other."""
    data = request("POST", "/nrdp/", FORM, *head, ("Content-Length", str(len(body) + 9))) + body
    while not stop.is_set():
        with suppress(OSError, EOFError, NotHttp), RawConnection(port, 1.0) as connection:
            connection.send(data)
            connection.answer()
        stop.wait(0.1)


SECONDS, PER_S, ATTACKERS, SILENT = 6, 50, 24, 400


def test_strangers_delay_nobody_whose_sender_is_known(tmp_path: Path) -> None:
    token = make_token(tmp_path / "tokens", "good")
    good = post(("Authorization", f"Bearer {token}"), body=wlcg(metric_result()))
    stop, answers, took_s = threading.Event(), [], []
    with (
        door_site(
            tmp_path, tokens_file="tokens", require_identity=True, max_connections=SILENT // 2
        ) as door,
        ThreadPoolExecutor(ATTACKERS) as attackers,
        ExitStack() as stack,
    ):
        bodies = (((GZIP,), compressed(4_000_000)), ((), b"a" * 4_000_000), ((), b"a" * 60_000))
        for number in range(ATTACKERS):
            head, body = bodies[number % len(bodies)]
            attackers.submit(attack, door.door.port, head, body, stop)
        for _ in range(SILENT):
            stack.enter_context(door.connect())

        began = time.monotonic()
        for number in range(SECONDS * PER_S):
            time.sleep(max(began + number / PER_S - time.monotonic(), 0))
            asked = time.monotonic()
            answers.append(door.ask(good).status)
            took_s.append(time.monotonic() - asked)
        ready = door.get("/readyz").status
        stop.set()

    assert set(answers) == {200}
    assert quantiles(took_s, n=100)[98] < 1
    assert ready == 200


def test_a_long_form_needs_its_token_at_the_beginning(door: OpenDoor) -> None:
    checks = CHECK.format("x" * MAX_BODY_BYTES)
    submit = {"cmd": "submitcheck", "JSONDATA": checks}

    with door.storing():
        first = door.answer(form(token=TOKEN, **submit))
        last = door.answer(form(**submit, token=TOKEN))
        short = door.answer(form(cmd="submitcheck", JSONDATA=CHECK.format("x"), token=TOKEN))
        wrong = door.answer(form(token="wrong", **submit))
        in_url = door.answer(
            request("POST", f"/nrdp/?token={TOKEN}", FORM, body=urlencode(submit).encode())
        )
        zipped = door.answer(request("POST", "/nrdp/", FORM, GZIP, CHUNKS))

    answers = (first, last, short, wrong, in_url, zipped)
    assert [answer.status for answer in answers] == [200, 401, 200, 401, 200, 401]


def test_the_forms_of_strangers_together_have_little_room() -> None:
    credentials = Credentials(tokens=tokens())
    begun = request("POST", "/nrdp/", FORM, ("Content-Length", "90000")) + b"a" * 60_000
    with (
        open_door(credentials=credentials, require_identity=True, max_connections=100) as door,
        door.storing(),
        ExitStack() as stack,
    ):
        for _ in range(MAX_BYTES // 60_000):
            stack.enter_context(door.connect()).send(begun)
        refused = door.ask(begun)

        assert refused.result(SOON_S).status == 429
        assert door.answer(post(KNOWN)).status == 200


def test_a_connection_that_sends_nothing_is_closed(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.2)

    with door.connect() as silent:
        assert silent.answer().status == 408
        assert silent.at_end


def test_the_oldest_stranger_makes_way_and_known_senders_stay(door: OpenDoor) -> None:
    with door.storing(), ExitStack() as stack:
        known = stack.enter_context(door.connect())
        known.send(post(KNOWN))
        assert known.answer().status == 200
        strangers = [stack.enter_context(door.connect()) for _ in range(8)]

        assert strangers[0].answer().status == 503
        assert strangers[1].answer().status == 503
        for connection in (strangers[-1], known):
            connection.send(post(KNOWN))
            assert connection.answer().status == 200


def test_ready_means_that_there_is_room_beside_the_bodies_that_arrive() -> None:
    begun = post(("Content-Length", "900000"), body=None) + b"a" * 800_000
    with open_door(max_message_bytes=900_000, buffer_bytes=850_000) as door:
        assert door.answer(READY).status == 200

        with door.connect() as sender:
            sender.send(begun)
            eventually(lambda: door.answer(READY).status == 429)
        eventually(lambda: door.answer(READY).status == 200)


def test_refused_requests_are_logged_at_a_bounded_rate(
    door: OpenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3 * LOGGED):
        assert door.answer(post(("Authorization", "Bearer guess"))).status == 401

    lines = [record.getMessage() for record in caplog.records if "refused" in record.message]
    assert len(lines) == LOGGED
    assert "127.0.0.1" in lines[0] and "unknown token" in lines[0]
    assert "guess" not in "".join(lines)


PAGES: dict[str, tuple[Field, ...]] = {
    "a form": (("Origin", "https://evil.example"),),
    "a form of a file": (("Origin", "null"),),
    "a picture": (("Sec-Fetch-Site", "cross-site"),),
    "a script after a change of the name": (("Sec-Fetch-Site", "same-origin"),),
    "a name of another host": (("Host", "evil.example:8080"),),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_web_page_can_not_send(page: str) -> None:
    forged = urlencode({"cmd": "submitcheck", "JSONDATA": CHECK.format("x")})
    with open_door() as door, door.storing():
        answers = [
            door.answer(post(*PAGES[page])),
            door.answer(request("GET", f"/nrdp/?{forged}", *PAGES[page])),
            door.answer(post(*PAGES[page], target="/api/message/x", content_type="text/plain")),
        ]
        typed = door.answer(post(("Sec-Fetch-Site", "none"), ("Host", "[::1]:8080")))

    assert [answer.status for answer in answers] == [403] * 3
    assert (typed.status, len(door.stored)) == (200, 1)
