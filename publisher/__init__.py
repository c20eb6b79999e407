"""Give each message to the first broker that takes it; spool what none took.

For probes written in Python: `Publisher`, a context manager for many records, and
`publish_record` for one.
"""

from __future__ import annotations

from sam_pipeline.publisher.api import Publisher, publish_record
from sam_pipeline.publisher.delivery.publication import (
    NoBrokerTookIt,
    Publication,
    Receipt,
    Rejection,
    publish,
)
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from sam_pipeline.publisher.settings import PublisherConfig, load_config
from sam_pipeline.schema.errors import ConfigError, RecordRefused

__all__ = [
    "BrokerUnavailable",
    "ConfigError",
    "MessageRejected",
    "NoBrokerTookIt",
    "Publication",
    "PublishError",
    "Publisher",
    "PublisherConfig",
    "Receipt",
    "RecordRefused",
    "Rejection",
    "load_config",
    "publish",
    "publish_record",
]
