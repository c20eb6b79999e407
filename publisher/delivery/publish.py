"""Publish messages as configured: to the brokers, and to those of each copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sam_pipeline.publisher.delivery.publication import Courier, Publication
from sam_pipeline.schema.net.deadline import Deadline

if TYPE_CHECKING:
    from typing import Callable

    from sam_pipeline.publisher.delivery.copies import CopyingCourier
    from sam_pipeline.publisher.delivery.termination import Termination
    from sam_pipeline.publisher.settings import PublisherConfig
    from sam_pipeline.schema.messages.message import Message


def publish(messages: Sequence[Message], config: PublisherConfig) -> Publication:
    """Publish the messages to the configured brokers within `config.timeout_s`.

    On return each message is confirmed by a broker or on disk in the spool, and so it is for each
    copy. Spooled messages of earlier calls are also sent, in at most a fifth of that time.

    Raises:
        MessageRefused: no consumer could receive one of them, or it is too large. Nothing was sent.
        NoBrokerTookIt: some messages were lost; its `publication` has the others.
    """
    from sam_pipeline.publisher.delivery.limits import require_deliverable  # saves 0.5 ms

    for message in messages:
        require_deliverable(message, config)
    deadline = Deadline.after(config.timeout_s)
    with courier_for(config) as courier:
        publication = courier.deliver(messages, deadline)
        return publication._replace(drained=courier.drain(deadline))


def courier_for(
    config: PublisherConfig,
    meanwhile: Callable[[], bool] | None = None,
    termination: Termination | None = None,
) -> Courier | CopyingCourier:
    """A courier for the brokers of the configuration, and those of its copies."""
    if not config.copy:
        return Courier(config, meanwhile, termination)
    from sam_pipeline.publisher.delivery.copies import CopyingCourier

    return CopyingCourier(config, meanwhile, termination)
