"""Give one message to the first broker that takes it; spool what none took.

For probes in Python: `Publisher`, a context manager for many records, and `publish_record` for
one. Names are imported when first used: `python -m sam_pipeline.publisher` comes through here, too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sam_pipeline.publisher.api import Publisher, publish_record
    from sam_pipeline.publisher.delivery.publication import (
        NoBrokerTookIt,
        Publication,
        Receipt,
        Rejection,
        publish,
    )
    from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
    from sam_pipeline.publisher.settings.config import PublisherConfig, load_config

_HOMES = {
    "BrokerUnavailable": "errors",
    "MessageRejected": "errors",
    "NoBrokerTookIt": "delivery.publication",
    "Publication": "delivery.publication",
    "PublishError": "errors",
    "Publisher": "api",
    "PublisherConfig": "settings.config",
    "Receipt": "delivery.publication",
    "Rejection": "delivery.publication",
    "load_config": "settings.config",
    "publish": "delivery.publication",
    "publish_record": "api",
}

__all__ = [
    "BrokerUnavailable",
    "MessageRejected",
    "NoBrokerTookIt",
    "Publication",
    "PublishError",
    "Publisher",
    "PublisherConfig",
    "Receipt",
    "Rejection",
    "load_config",
    "publish",
    "publish_record",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
