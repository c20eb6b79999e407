"""Give one message to the first broker that takes it; spool what none took."""

from publisher.config import PublisherConfig, load_config
from publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from publisher.publication import NoBrokerTookIt, Publication, Receipt, Rejection, publish

__all__ = [
    "BrokerUnavailable",
    "MessageRejected",
    "NoBrokerTookIt",
    "Publication",
    "PublishError",
    "PublisherConfig",
    "Receipt",
    "Rejection",
    "load_config",
    "publish",
]
