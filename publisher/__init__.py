"""Give each message to the first broker that takes it; spool what none took.

For probes written in Python: `Publisher`, a context manager for many records, and
`publish_record` for one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sam_pipeline.publisher.api import Publisher, publish_record
    from sam_pipeline.publisher.delivery.publication import (
        NoBrokerTookIt,
        Publication,
        Receipt,
        Rejection,
    )
    from sam_pipeline.publisher.delivery.publish import publish
    from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
    from sam_pipeline.publisher.settings.config import PublisherConfig
    from sam_pipeline.publisher.settings.load import load_config
    from sam_pipeline.schema.errors import ConfigError, RecordRefused

_HOMES = {
    "publisher.api": ("Publisher", "publish_record"),
    "publisher.delivery.publication": ("NoBrokerTookIt", "Publication", "Receipt", "Rejection"),
    "publisher.delivery.publish": ("publish",),
    "publisher.errors": ("BrokerUnavailable", "MessageRejected", "PublishError"),
    "publisher.settings.config": ("PublisherConfig",),
    "publisher.settings.load": ("load_config",),
    "schema.errors": ("ConfigError", "RecordRefused"),
}
"""The module of each name; `sam-publish`, which imports this package, needs only some of them."""

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


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"sam_pipeline.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
