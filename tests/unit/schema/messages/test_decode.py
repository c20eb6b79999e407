"""Refused records of a message: the first ones in full, the others counted by reason."""

from __future__ import annotations

from sam_pipeline.schema.messages.decode import MOST_REFUSED, decode
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import Limits
from tests.support.builders import NOW, metric_message, metric_result


def test_of_many_refused_records_only_the_first_are_kept_and_all_are_counted() -> None:
    good, bad = metric_message().body, metric_message(metric_result(metricStatus="FINE")).body
    body = b"no key\nEOT\n" * 10_000 + good + bad * 2

    message = Message({CLASS: METRIC_OUTPUT.name}, body)
    decoded = decode(message, METRIC_OUTPUT.keys, NOW, Limits(max_records=20_000))

    assert [row.number for row in decoded.rows] == [10_001]
    assert [refused.number for refused in decoded.bad] == [*range(1, MOST_REFUSED + 2), 10_002]
    assert {refused.records for refused in decoded.bad[:MOST_REFUSED]} == {1}
    further = [(refused.reason, refused.records) for refused in decoded.bad[MOST_REFUSED:]]
    assert further == [("no-key", 10_000 - MOST_REFUSED), ("bad-status", 2)]
