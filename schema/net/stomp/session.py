"""The STOMP session of a sender; whether the message or the broker is to blame for its end.

There are no heart-beats: no wait here is longer than a deadline.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, Optional

from sam_pipeline.schema.net.channel import Channel, error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_frame import encode
from sam_pipeline.schema.net.stomp_session import SessionLost, StompSession

GOODBYE_S = 0.5
RABBITMQ = "RabbitMQ/"

# Texts of brokers that refuse the message or its destination. After any other ERROR the next broker
# is tried.
MISSING = r"not.?found|no such|unknown (exchange|destination)"
FORBIDDEN = r"not authorized|access.?refused|denied|permission"
OTHER_USER = r"user_id property set to"
"""How RabbitMQ says that it knows us by another name than the one we sent."""
_REFUSAL = (
    rf"{MISSING}|{FORBIDDEN}|too (large|big|long)|maximum .*(length|size)"
    r"|inequivalent|precondition|invalid|illegal"
)


class NoAnswer(SessionLost):
    """The deadline has passed."""


class SendingSession(StompSession):
    """Connected and logged in; `server` names the broker's software.

    All methods raise NoAnswer once their deadline has passed.
    """

    def __init__(
        self,
        channel: Channel,
        user: Optional[str],
        password: Optional[str],
        certificate: Optional[Path],
        deadline: Deadline,
        vhost: Optional[str] = None,
    ) -> None:
        """`certificate`: the file of the one by which the broker of the channel knows us."""
        super().__init__(channel)
        self._user = user
        self._certificate = certificate
        login = {"login": user, "passcode": password, "heart-beat": "0,0", "host": vhost}
        try:
            self.server = self.log_in(login, deadline).get("server", "")
        except NoAnswer:
            self.drop()
            raise
        except SessionLost as loss:
            self.drop()
            raise SessionLost(f"login failed: {loss}", loss.by_error) from loss
        except BaseException:
            self.drop()
            raise

    def user_headers(self) -> dict[str, str]:
        """Headers of a SEND by which the broker can vouch for us.

        Only RabbitMQ needs one: it verifies the user that a publisher names, but adds none.
        """
        user = self._user
        if not self.server.startswith(RABBITMQ):
            return {}
        if user is None and self._certificate is not None:
            from sam_pipeline.schema.net.subject import subject_of

            user = subject_of(self._certificate)
        return {"user-id": user} if user else {}

    def receipts(self, deadline: Deadline, meanwhile: Callable[[], bool]) -> list[str]:
        """The ids of the receipts that arrived since the last call, at least one.

        While none has arrived, `meanwhile` is called until it has nothing more to do.

        Raises:
            SessionLost: no more receipts will arrive.
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
            raise NoAnswer(self._send_failure or error_text(error)) from error

    def close(self, timeout_s: float = GOODBYE_S) -> None:
        """DISCONNECT without waiting for a receipt: the messages were confirmed before."""
        self.send(encode("DISCONNECT", {}), Deadline.after(timeout_s))
        self.drop()


def says(pattern: str, text: object) -> bool:
    """Whether the text of a broker contains the pattern, in any case."""
    return re.search(pattern, str(text), re.IGNORECASE) is not None


def is_refusal(loss: SessionLost) -> bool:
    """Whether a session ended because the broker refused the only message under way."""
    return loss.by_error and says(_REFUSAL, loss)
