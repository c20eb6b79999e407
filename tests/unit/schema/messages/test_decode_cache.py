"""The cache of decoded records changes nothing but the time it takes.

`pytest --hypothesis-profile=soak` with this file searches much longer.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sam_pipeline.schema.messages import decode as module
from sam_pipeline.schema.messages.decode import CachedDecoder, decode
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import Record
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TEXT_TOKENS
from tests.support.builders import NOW, metric_message, metric_result

LOWER = tuple(key.lower() for key in METRIC_OUTPUT.keys)
VIEWS = st.sampled_from(
    [
        LOWER,
        METRIC_OUTPUT.keys,
        (*METRIC_OUTPUT.keys, "weight", "EOT"),
        tuple(key for key in LOWER if key != "summarydata"),
        (*LOWER, "summaryData"),
    ]
)

# Few values of each kind: so that texts come again, with other values in them.
PLAIN = {
    "hostName": ["ce01.example.org", "CE02.Example.org."],
    "serviceURI": ["https://ce03.example.org:8443/x"],
    "serviceFlavour": ["CE", "caf\xe9"],
    "siteName": ["EXAMPLE-LCG2", "S: T"],
    "metricStatus": ["OK", "WARNING", "CRITICAL"],
    "metricName": ["org.sam.CE-JobSubmit"],
    "summaryData": ["done", "a\tb", "c: d", "na\xefve", "hostName: x", "\x1c", "\u2028x"],
    "gatheredAt": ["wn17.example.org"],
    "timestamp": ["2026-11-20T12:00:00Z", "2026-11-20T12:29:59Z"],
    "voName": ["ops", "atlas"],
    "performanceData": ["time=1s;2;3", "time=2s", "x" * 3500],
    "detailsData": ["one", "one\ntwo", "a\n\nsummaryData: b\n", "\nvoName: x", " \n "],
}


def plain_text(chance: random.Random) -> str:
    """A record in the form of our writer, without some of the optional keys."""
    optional = [key for key in PLAIN if key not in METRIC_OUTPUT.required]
    left_out = chance.sample(optional, chance.randint(0, 4))
    record = {key: chance.choice(PLAIN[key]) for key in PLAIN if key not in left_out}
    return "".join(f"{key}: {value}\n" for key, value in record.items()) + "EOT\n"


HEADERS = st.fixed_dictionaries(
    {"messageClass": st.sampled_from(["metricOutput"] * 5 + ["METRICOUTPUT", "downtime", "own"])},
    optional={
        "content-type": st.sampled_from(["text/plain; charset=utf-8", "Application/JSON; x=y"]),
        "nagios_host": st.sampled_from(["", " ", "nagios.example.org", "a\nb"]),
        "nagiosHost": st.sampled_from(["nagios2.example.org", "x\0"]),
        "samFormat": st.sampled_from(["", "wlcg", "nstream"]),
        "samRename": st.sampled_from(["", "performanceData=summaryData"]),
        "recordCount": st.sampled_from(["1", "2", "x"]),
    },
)
LIMITS = st.sampled_from([Limits()] * 8 + [Limits(max_records=1), Limits(max_message_bytes=300)])


@given(st.integers(0), st.just({"messageClass": "metricOutput"}) | HEADERS, LIMITS, VIEWS)
def test_any_body_gives_the_same_rows_from_the_cache(
    seed: int, headers: dict[str, str], limits: Limits, columns: tuple[str, ...]
) -> None:
    chance = random.Random(seed)
    plain = "".join(plain_text(chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))).encode()
    for body in (plain, mutated([plain], TEXT_TOKENS, chance)):
        message = Message(headers, body)
        expected = decode(message, columns, NOW, limits)
        for _ in range(3):  # met, remembered, recalled
            assert CachedDecoder(columns, NOW, limits).decode(message) == expected
        event("from memory" if is_from_memory(message, columns) else "by decode()")


def is_from_memory(message: Message, columns: tuple[str, ...] = LOWER) -> bool:
    return bool(CachedDecoder(columns, NOW).cached_rows(message))


def met_twice(record: Record, **headers: str) -> None:
    for _ in range(2):
        CachedDecoder(LOWER, NOW).decode(metric_message(record, **headers))


def test_a_result_of_an_instance_that_was_seen_twice_is_not_decoded_again() -> None:
    met_twice(metric_result(summaryData="one", performanceData="a=1", detailsData="x\ny"))
    changes = {"metricStatus": "CRITICAL", "timestamp": "2026-11-20T12:05:00Z"}
    texts = {"summaryData": " na\xefve: two ", "detailsData": "hostName: z\n\ny"}

    later = metric_message(metric_result(**changes, **texts, performanceData="a=2"))

    assert is_from_memory(later)
    assert CachedDecoder(LOWER, NOW).decode(later) == decode(later, LOWER, NOW)


BAD = (
    *({"timestamp": f"{day}T12:00:00Z"} for day in ("2015-11-20", "2026-11-22", "2026-11-31")),
    {"metricStatus": "UP"},
)


@pytest.mark.parametrize("changes", BAD)
def test_a_bad_value_is_refused_for_a_cached_instance_too(changes: dict[str, str]) -> None:
    met_twice(metric_result())
    message = metric_message(metric_result(**changes))

    outcome = CachedDecoder(LOWER, NOW).decode(message)

    assert outcome.bad and outcome == decode(message, LOWER, NOW)
    # The limits and the time are those of the message, not of the cache.
    decoder = CachedDecoder(LOWER, NOW + timedelta(days=2), Limits(timedelta(days=1)))
    assert [refused.reason for refused in decoder.decode(metric_message()).bad] == ["too-old"]


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_TEMPLATES", 50)
    module._seen.clear()
    module._templates.cache_clear()

    for number in range(120):
        met_twice(metric_result(metricName=f"org.sam.M{number}"))
        met_twice(metric_result(metricName="M" * (3000 + number)))

    assert len(module._seen) <= 50
    assert not is_from_memory(metric_message(metric_result(metricName="M" * 3000)))
    templates: Any = module._templates(LOWER)
    assert templates.cache_info().currsize == 50
    module._templates.cache_clear()
