"""Files in a spool with no valid message, or an unusual one: the next element is loaded."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import CLASS
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.conservation import numbered
from tests.support.consumer.bad_inputs import A_ROW
from tests.support.consumer.daemon import Subscription, dead_letter_keys, row_keys, site_of

GOOD = numbered("good", [0])[0]
MIB = 1024 * 1024


def packed(size: int) -> bytes:
    """An element whose body is `size` zeros, compressed to about a thousandth."""
    body = base64.b64encode(zlib.compress(bytes(size))).decode()
    return json.dumps(
        {"header": {CLASS: "metricOutput"}, "body": body, "encoding": "base64+zlib"}
    ).encode()


def element(**parts: object) -> bytes:
    return json.dumps({"header": dict(GOOD.headers), "body": GOOD.body.decode(), **parts}).encode()


DAMAGED = {
    "empty": b"",
    "blanks": b" \n ",
    "zeros": bytes(4096),
    "random bytes": bytes(range(256)),
    "text": b"hostName: ce01",
    "half an element": serialise(GOOD)[:80],
    "two elements": serialise(GOOD) * 2,
    "an array": b"[1, 2]",
    "JSON of depth 100 000": b"[" * 100_000,
    "an object of depth 100 000": b'{"a":' * 100_000,
    "an array as header": element(header=["a", "b"]),
    "a number as header value": element(header={"a": 1}),
    "a number as body": element(body=17),
    "an unknown encoding": element(encoding="rot13"),
    "invalid base64": element(body="!!!", encoding="base64"),
    "an invalid compressed body": element(body="AAAA", encoding="base64+zlib"),
    "200 MB compressed": packed(200 * MIB),
}


def odd(number: int, body: object = None, **headers: str | None) -> bytes:
    """An element with these additional headers; the key of its record is `odd-<number>`."""
    [message] = numbered("odd", [number])
    return element(header={**message.headers, **headers}, body=body or message.body.decode())


NUL_IN_ID = "a NUL in the id"
REFUSED = "refused-by-database"

ODD: dict[str, tuple[bytes, str]] = {
    "NaN beside the body": (odd(0).replace(b"{", b'{"more": NaN, ', 1), A_ROW),
    "UTF-16": (odd(1).decode().encode("utf-16"), A_ROW),
    "a header without a value": (odd(2, destination=None), A_ROW),
    "a NUL in the class": (odd(3, messageClass="metric\0Output"), "unknown-class"),
    NUL_IN_ID: (odd(4, samMessageId="a\0b"), REFUSED),
    "half a character in the id": (odd(5, samMessageId="\ud800"), REFUSED),
    "half a character in the host": (odd(6, nagios_host="\udc00"), A_ROW),
    "half a character in a header": (odd(7, comment="\udc00"), A_ROW),
    "a NUL in the host": (odd(8, nagios_host="a\0b"), "nul-byte"),
    "an id of a megabyte": (odd(9, samMessageId="x" * MIB), A_ROW),
    "no id": (odd(10, samMessageId=None), A_ROW),
    "half a character in the class": (odd(11, messageClass="\ud800"), "unknown-class"),
    "a rename of NULs": (odd(12, samRename="%00=%00"), A_ROW),
    "a line end in the id": (odd(13, samMessageId="a\nb: c"), A_ROW),
    "a NUL and half a character as names": (odd(14, **{"\0": "\0", "\ud800": "\ud800"}), A_ROW),
    "control characters": (odd(15, **{"\x1b[31m": "\x1b]0;\x07\x7f", "": ""}), A_ROW),
    "an id beside other headers of 3 MB": (odd(16, comment="x" * 3 * MIB), "bad-frame"),
}
"""The content of an element, and the reason of its dead letter."""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sam.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


def fill(path: Path, contents: list[bytes]) -> None:
    queue = DirectoryQueue(path)
    for content in contents:
        queue.store(content)


def test_a_file_without_a_valid_message_is_moved_aside_and_the_next_one_is_loaded(
    tmp_path: Path, database: str
) -> None:
    spool = tmp_path / "spool"
    contents = [
        content
        for number, damaged in enumerate(DAMAGED.values())
        for content in (damaged, *map(serialise, numbered("after", [number])))
    ]
    fill(spool, contents)
    site = site_of(tmp_path, [f"spool://{spool}"], Subscription("/topic/none"), database=database)

    drained = site.drain()

    assert drained.code == 65
    assert drained.summary["damaged_elements"] == len(DAMAGED)
    assert site.rows() == len(DAMAGED)
    assert drained.log.count("; moved to ") == len(DAMAGED)
    aside = [path.read_bytes() for path in (tmp_path / "spool.bad").rglob("*") if path.is_file()]
    assert set(DAMAGED.values()) <= set(aside), "every damaged file is kept"
    assert DirectoryQueue(spool).count() == 0


def test_an_unusual_element_is_a_row_or_a_dead_letter_with_its_reason(
    tmp_path: Path, database: str
) -> None:
    spool = tmp_path / "spool"
    fill(spool, [content for content, _ in ODD.values()])
    site = site_of(tmp_path, [f"spool://{spool}"], Subscription("/topic/none"), database=database)

    drained = site.drain()

    letters = zip(
        dead_letter_keys(site), site.column("SELECT reason FROM dead_letter"), strict=True
    )
    reasons = {**dict.fromkeys(row_keys(site), A_ROW), **dict(letters)}
    names = {f"odd-{number}": name for number, name in enumerate(ODD)}
    outcome = {names[key]: reason for key, reason in reasons.items()}
    expected = {name: reason for name, (_, reason) in ODD.items()}
    if database.startswith("sqlite"):  # SQLite accepts a NUL in text
        expected[NUL_IN_ID] = A_ROW
    assert outcome == expected, drained.log


def test_a_message_compressed_a_thousandfold_is_too_large(tmp_path: Path, database: str) -> None:
    spool = tmp_path / "spool"
    fill(spool, [packed(100 * MIB), *map(serialise, numbered("after", [0]))])
    site = site_of(tmp_path, [f"spool://{spool}"], Subscription("/topic/none"), database=database)

    assert site.drain().code == 65

    assert site.column("SELECT reason FROM dead_letter") == ["too-large"]
    assert site.rows() == 1
