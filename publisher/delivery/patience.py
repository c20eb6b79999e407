"""For programs that run for ever: messages wait until a broker or the spool takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Union

from sam_pipeline.publisher.delivery.publication import (
    Courier,
    NoBrokerTookIt,
    Publication,
    Receipt,
)
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.net.deadline import Deadline

if TYPE_CHECKING:
    from sam_pipeline.publisher.delivery.copies import CopyingCourier
    from sam_pipeline.publisher.delivery.termination import Termination
    from sam_pipeline.schema.messages.message import Message

MIN_WAIT_S, MAX_WAIT_S = 1.0, 30.0

logger = lazy_logger(__name__)


def deliver_until_safe(
    courier: Union[Courier, CopyingCourier],
    messages: Sequence[Message],
    timeout_s: float,
    termination: Termination,
) -> Publication:
    """Deliver the messages, again and again until each is at a broker or in the spool.

    Raises:
        NoBrokerTookIt, ConfigError: there was a termination before that; some messages are lost.
    """
    receipts: list[Receipt] = []
    spooled: list[Message] = []
    wait_s = MIN_WAIT_S
    while True:
        is_last = termination.received
        problem: Union[NoBrokerTookIt, ConfigError, None] = None
        publication = Publication()
        try:
            publication = courier.deliver(messages, Deadline.after(timeout_s))
        except NoBrokerTookIt as error:
            problem, publication, messages = error, error.publication, error.missing
        except ConfigError as error:
            problem = error
        receipts += publication.receipts
        spooled += publication.spooled
        if problem is None:
            return publication._replace(receipts=receipts, spooled=spooled)
        if is_last:
            raise problem
        text = "%s; nothing more is read, trying again in %g s"
        logger.error(text, "; ".join(problem.lines), wait_s)
        termination.wait(wait_s)
        wait_s = min(2 * wait_s, MAX_WAIT_S)
