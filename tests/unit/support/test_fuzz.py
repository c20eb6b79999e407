"""A few thousand of the inputs that `make fuzz` runs by the million, and very long bodies."""

from __future__ import annotations

import time

import pytest

from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.text import write_wlcg
from tests.fuzz.run import fuzz
from tests.fuzz.targets import TARGETS
from tests.support.builders import NOW, metric_result

INPUTS = 2_000
LONG_BYTES = 400_000
LONGEST_S = 4.0
"""Ten times the slowest; a quadratic running time would take minutes."""


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_cause_only_documented_errors(name: str) -> None:
    fuzz(name, INPUTS, seed=6)


RECORD = write_wlcg(metric_result()).removesuffix("EOT\n").encode()
DETAILS = RECORD + b"detailsData: x\n"
JSON, NSTREAM = {"content-type": "application/json"}, {"samFormat": "nstream"}

LONG: dict[str, tuple[bytes, bytes, bytes, dict[str, str]]] = {
    "ends inside details": (DETAILS, b"EOT\n", b"", {}),
    "words that contain an end": (DETAILS, b"xEOT", b"\nEOT\n", {}),
    "lines that nearly end": (DETAILS, b"EOT x\n", b"EOT\n", {}),
    "carriage returns": (RECORD, b"\r\n", b"EOT\n", {}),
    "colons": (b"", b":", b"\nEOT\n", {}),
    "an authority": (RECORD + b"serviceURI: ", b"a@", b"\nEOT\n", {}),
    "brackets of an address": (RECORD + b"serviceURI: ", b"[", b"\nEOT\n", {}),
    "dots": (RECORD.replace(b"ce01", b"."), b"x: ", b"\nEOT\n", {}),
    "brackets": (b"", b"[", b"", JSON),
    "escapes": (b'{"a": "', b"\\u0041", b'"}', JSON),
    "digits": (b'{"a": ', b"9", b"}", JSON),
    "line ends of Nagios": (b'{"details": "', b"\\\\n", b'"}', NSTREAM),
}
"""The start of a body, the part that is repeated, its end, and the headers."""


@pytest.mark.parametrize(("start", "unit", "end", "headers"), LONG.values(), ids=LONG)
def test_no_body_takes_quadratic_time(
    start: bytes, unit: bytes, end: bytes, headers: dict[str, str]
) -> None:
    body = start + unit * (LONG_BYTES // len(unit)) + end
    message = Message({"messageClass": "metricOutput", **headers}, body)
    began = time.process_time()

    decoded = decode(message, METRIC_OUTPUT.keys, NOW)

    assert time.process_time() - began < LONGEST_S
    assert decoded.rows or decoded.bad
