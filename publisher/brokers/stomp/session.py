"""The publisher's STOMP session, and whose fault its end is: the message's, or the broker's.

There are no heart-beats: nobody waits longer than a deadline here.
"""

from __future__ import annotations

import re
from typing import Callable

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.connection import open_channel
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.channel import words_of
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_frame import encode
from sam_pipeline.schema.net.stomp_session import SessionLost, StompSession

GOODBYE_S = 0.5

# What brokers say when the message or its destination is the trouble. After any other text the
# next broker is tried.
MISSING = r"not.?found|no such|unknown (exchange|destination)"
FORBIDDEN = r"not authorized|access.?refused|denied|permission"
_REFUSAL = (
    rf"{MISSING}|{FORBIDDEN}|too (large|big|long)|maximum .*(length|size)"
    r"|inequivalent|precondition|invalid|illegal"
)


class PublishingSession(StompSession):
    """Connected and logged in; `server` names the broker's software.

    A wait that reaches its deadline raises BrokerUnavailable, here and in all methods.
    """

    def __init__(self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> None:
        self._address = address
        user, password = config.login(address.broker)
        super().__init__(open_channel(address, config, deadline))
        login = {"login": user, "passcode": password, "heart-beat": "0,0"}
        try:
            self.server = self.log_in(login, deadline).get("server", "")
        except SessionLost as loss:
            self.drop()
            raise BrokerUnavailable(address, f"at login: {loss}") from loss
        except BaseException:
            self.drop()
            raise

    def receipts(self, deadline: Deadline, meanwhile: Callable[[], bool]) -> list[str]:
        """The ids of the receipts that arrived since the last call, at least one.

        Until then `meanwhile` is called, as long as it had something to do.

        Raises:
            SessionLost: none will arrive.
        """
        while not self._receipts:
            while not self._channel.has_arrived() and meanwhile():
                pass
            self.receive(deadline)
        receipts, self._receipts = self._receipts, []
        return receipts

    def receive(self, deadline: Deadline) -> None:
        try:
            super().receive(deadline)
        except TimeoutError as error:
            reason = self._send_failure or words_of(error)
            raise BrokerUnavailable(self._address, reason) from error

    def close(self, timeout_s: float = GOODBYE_S) -> None:
        """DISCONNECT without waiting for a receipt: all that counts was confirmed before."""
        self.send(encode("DISCONNECT", {}), Deadline.after(timeout_s))
        self.drop()


def says(pattern: str, text: object) -> bool:
    return re.search(pattern, str(text), re.IGNORECASE) is not None


def judged(address: BrokerAddress, position: int, loss: SessionLost) -> PublishError:
    """Whether the end of a session, while one message was under way, is the message's fault."""
    if loss.by_error and says(_REFUSAL, loss):
        return MessageRejected(address, position, str(loss))
    return BrokerUnavailable(address, str(loss))
