"""Valid objects to change one field of."""

from __future__ import annotations

from datetime import UTC, datetime

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.text import Record, write_wlcg

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


def metric_result(**changes: str | None) -> Record:
    """A record of a metric result; a key given as None is left out."""
    record: dict[str, str | None] = {
        "hostName": "ce01.example.org",
        "serviceFlavour": "CE",
        "siteName": "EXAMPLE-LCG2",
        "metricStatus": "OK",
        "metricName": "org.sam.CE-JobSubmit",
        "summaryData": "job finished in 312 s",
        "gatheredAt": "wn17.example.org",
        "timestamp": "2026-11-20T12:00:00Z",
        "voName": "ops",
        **changes,
    }
    return {key: value for key, value in record.items() if value is not None}


def metric_message(*records: Record, **headers: str) -> Message:
    """A message with these records, or with one default record."""
    chosen = records or (metric_result(),)
    body = "".join(write_wlcg(record) for record in chosen)
    return new_message("metricOutput", body, record_count=len(chosen), headers=headers)
