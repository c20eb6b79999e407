"""Files in a spool with no valid message or an unusual one; the next message is loaded."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

from sam_pipeline.schema.messages.message import CLASS
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.conservation import numbered
from tests.support.consumer.daemon import dead_letter_keys, row_keys
from tests.support.consumer.site import make_site

GOOD = numbered("good", [0])[0]
MIB = 1024 * 1024
A_ROW = ""
"""The reason of an element that becomes a row."""


def packed(size: int) -> bytes:
    """An element whose body is `size` zeros, compressed to about a thousandth."""
    body = base64.b64encode(zlib.compress(bytes(size))).decode()
    element = {"header": {CLASS: "metricOutput"}, "body": body, "encoding": "base64+zlib"}
    return json.dumps(element).encode()


def element(**parts: object) -> bytes:
    return json.dumps({"header": dict(GOOD.headers), "body": GOOD.body.decode(), **parts}).encode()


DAMAGED = {
    "empty": b"",
    "zeros": bytes(4096),
    "random bytes": bytes(range(256)),
    "half an element": serialise(GOOD)[:80],
    "two elements": serialise(GOOD) * 2,
    "JSON of depth 100 000": b"[" * 100_000,
    "an array as header": element(header=["a", "b"]),
    "a number as body": element(body=17),
    "an invalid compressed body": element(body="AAAA", encoding="base64+zlib"),
    "200 MB compressed": packed(200 * MIB),
}


def odd(number: int, body: object = None, **headers: str | None) -> bytes:
    """An element with these additional headers; the key of its record is `odd-<number>`."""
    [message] = numbered("odd", [number])
    return element(header={**message.headers, **headers}, body=body or message.body.decode())


REFUSED = "refused-by-database"
ODD: dict[str, tuple[bytes, str]] = {
    "NaN beside the body": (odd(0).replace(b"{", b'{"more": NaN, ', 1), A_ROW),
    "UTF-16": (odd(1).decode().encode("utf-16"), A_ROW),
    "a header without a value": (odd(2, destination=None), A_ROW),
    "a NUL in the class": (odd(3, messageClass="metric\0Output"), "unknown-class"),
    "a NUL in the id": (odd(4, samMessageId="a\0b"), REFUSED),
    "half a character in the id": (odd(5, samMessageId="\ud800"), REFUSED),
    "half a character in the host": (odd(6, nagios_host="\udc00"), A_ROW),
    "a NUL in the host": (odd(7, nagios_host="a\0b"), "nul-byte"),
    "an id of a megabyte": (odd(8, samMessageId="x" * MIB), A_ROW),
    "no id": (odd(9, samMessageId=None), A_ROW),
    "a line end in the id": (odd(10, samMessageId="a\nb: c"), A_ROW),
    "a NUL and half a character as names": (odd(11, **{"\0": "\0", "\ud800": "\ud800"}), A_ROW),
    "control characters": (odd(12, **{"\x1b[31m": "\x1b]0;\x07\x7f", "": ""}), A_ROW),
    "an id beside other headers of 3 MB": (odd(13, comment="x" * 3 * MIB), "bad-frame"),
}


def test_a_bad_or_unusual_file_is_moved_aside_a_row_or_a_dead_letter_and_the_next_one_is_loaded(
    tmp_path: Path, own_url: str
) -> None:
    spool = tmp_path / "spool"
    queue = DirectoryQueue(spool)
    for number, content in enumerate(DAMAGED.values()):
        queue.store(content)
        queue.store(serialise(numbered("after", [number])[0]))
    for content, _ in ODD.values():
        queue.store(content)
    queue.store(packed(100 * MIB))  # a message compressed a thousandfold
    site = make_site(tmp_path, own_url, [f"spool://{spool}"])

    drained = site.drain()

    assert (drained.code, drained.summary["damaged_elements"]) == (65, len(DAMAGED)), drained.log
    aside = [path.read_bytes() for path in (tmp_path / "spool.bad").rglob("*") if path.is_file()]
    assert {*DAMAGED.values()} <= {*aside}, "every damaged file is kept"
    assert queue.count() == 0
    after = {f"after-{number}" for number in range(len(DAMAGED))}
    assert after <= {*row_keys(site)}
    site.execute("DELETE FROM dead_letter WHERE reason = 'too-large'")
    reasons = zip(
        dead_letter_keys(site), site.column("SELECT reason FROM dead_letter"), strict=True
    )
    outcome = {**dict.fromkeys({*row_keys(site)} - after, A_ROW), **dict(reasons)}
    expected = {f"odd-{n}": reason for n, (_, reason) in enumerate(ODD.values())}
    if own_url.startswith("sqlite"):  # SQLite accepts a NUL in text
        expected["odd-4"] = A_ROW
    assert outcome == expected
    assert drained.summary["dead_letters"]["too-large"] == 1
