"""Sends messages to a STOMP broker: many at once, with the fewest receipts that are safe.

There are no heart-beats: no wait here is longer than a deadline.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

from sam_pipeline.schema.messages.headers import RECEIPT, TRANSACTION, send_headers
from sam_pipeline.schema.messages.message import DESTINATION, Message
from sam_pipeline.schema.net.channel import Channel
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.frame import encode
from sam_pipeline.schema.net.stomp.session import NoAnswer, SessionLost, StompSession

GOODBYE_S = 0.5
RABBITMQ = "RabbitMQ/"

# Texts of brokers that refuse the message or its destination. After any other ERROR the next broker
# is tried.
MISSING = r"not.?found|no such|unknown (exchange|destination)"
FORBIDDEN = r"not authorized|access.?refused|denied|permission"
OTHER_USER = r"user_id property set to"
"""The text of RabbitMQ if it knows us by another name than the one we sent."""
_REFUSAL = (
    rf"{MISSING}|{FORBIDDEN}|too (large|big|long)|maximum .*(length|size)"
    r"|inequivalent|precondition|invalid|illegal"
)

WRITE_BYTES = 64 * 1024
"""Frames are joined up to this size and written at once."""

MAX_REFUSALS = 3
"""After this many refusals, no more messages are sent to a destination."""

MAX_UNCONFIRMED = 500
"""The limit on messages under way: more are not faster, and after a failure they are in doubt."""
REDUCTION = 10
"""A lost session divides the limit by this, until only the message to blame is under way."""

# ActiveMQ syncs its disk for each receipt: a receipt per message is seven times slower there.
PER_RECEIPT = {"ActiveMQ": 100}
"""Messages per transaction, by server; other servers give a receipt for each message."""

Unit = Sequence[int]
"""The positions of the messages that one receipt confirms."""


class SendRefused(Exception):
    """The broker read and refused the message at `position` of those it was sent."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


class EndedByMessage(SessionLost):
    """The session ended while only the message at `position` was under way: perhaps by it."""

    def __init__(self, position: int, loss: SessionLost) -> None:
        super().__init__(str(loss), loss.by_error)
        self.position = position


class SendingSession(StompSession):
    """Connected and logged in; `server` names the broker's software."""

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
        except BaseException as error:
            self.drop()
            if isinstance(error, SessionLost) and not isinstance(error, NoAnswer):
                raise SessionLost(f"login failed: {error}", error.by_error) from error
            raise

    def user_headers(self) -> dict[str, str]:
        """Headers of a SEND by which the broker can vouch for us.

        Only RabbitMQ needs one: it verifies the user that a publisher names, but adds none.
        """
        user = self._user
        if not self.server.startswith(RABBITMQ):
            return {}
        if user is None and self._certificate is not None:
            from sam_pipeline.schema.net.certificate import subject_of

            user = subject_of(self._certificate)
        return {"user-id": user} if user else {}

    def receipts(self, deadline: Deadline, meanwhile: Callable[[], bool]) -> list[str]:
        """The ids of the receipts that arrived since the last call, at least one.

        While none has arrived, `meanwhile` is called until it has nothing more to do.

        Raises:
            SessionLost: no more receipts will arrive.
        """
        while not (receipts := self.receipts_now()):
            while not self._channel.has_arrived() and meanwhile():
                pass
            self.receive(deadline)
        return receipts

    def close(self, timeout_s: float = GOODBYE_S) -> None:
        """DISCONNECT without waiting for a receipt: the messages were confirmed before."""
        self.send(encode("DISCONNECT", {}), Deadline.after(timeout_s))
        self.drop()


class StompSender:
    """One connection at a time; after a message that ended it, a new one is opened."""

    def __init__(
        self,
        open_session: Callable[[Deadline], SendingSession],
        deadline: Deadline,
        headers: Optional[Mapping[str, str]] = None,
    ) -> None:
        """`headers` are added to each SEND, whatever brokers do about them."""
        self.meanwhile: Callable[[], bool] = lambda: False
        """Does a piece of other work while the broker works; returns False if there is none."""
        self._open_session = open_session
        self._receipts = map(str, itertools.count(1))
        self._forbidden: dict[str, list[str]] = {}
        """The broker's reasons for refusing us, by destination."""
        self._headers = headers or {}
        self._session = open_session(deadline)
        self._user_headers = self._session.user_headers()

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        """The position of each message as the broker confirms it, in any order.

        All of them have a destination.

        Raises:
            SendRefused: the broker refused one message; the sender still works.
            SessionLost: the other messages are not confirmed, and will not be; EndedByMessage if
                one of them may be the reason.
        """
        # Each refusal costs a connection.
        for position, message in enumerate(messages if self._forbidden else ()):
            reasons = self._forbidden.get(message.headers[DESTINATION], [])
            if len(reasons) >= MAX_REFUSALS:
                raise SendRefused(position, reasons[-1])
        yield from self._confirmed(messages, range(len(messages)), MAX_UNCONFIRMED, deadline)

    def close(self) -> None:
        self._session.close()

    def _confirmed(
        self, messages: Sequence[Message], positions: Sequence[int], limit: int, deadline: Deadline
    ) -> Iterator[int]:
        """The positions as they are confirmed; at most `limit` messages are under way at a time."""
        size = min(limit, PER_RECEIPT.get(self._session.server.partition("/")[0], 1))
        units = (positions[start : start + size] for start in range(0, len(positions), size))
        window = limit // size
        while True:
            waiting: dict[str, Unit] = {}
            """The units that are under way on this connection, by receipt."""
            try:
                while True:
                    if len(waiting) <= window // 2:  # few large writes, no idle broker
                        fresh = itertools.islice(units, window - len(waiting))
                        self._send_units(messages, fresh, waiting, deadline)
                    if not waiting:
                        return
                    for receipt in self._session.receipts(deadline, self.meanwhile):
                        yield from waiting.pop(receipt, ())
            except NoAnswer:
                raise
            except SessionLost as loss:
                doubtful = [position for unit in waiting.values() for position in unit]
                if self._user_headers and says(OTHER_USER, loss):
                    self._user_headers = {}  # it may map certificates to users in its own way
                elif limit == 1 or (loss.by_error and len(doubtful) == 1):
                    if not doubtful:
                        raise
                    if not is_refusal(loss):
                        raise EndedByMessage(doubtful[0], loss) from loss
                    self._reopen(deadline)  # for the other messages
                    if says(FORBIDDEN, loss):
                        destination = messages[doubtful[0]].headers[DESTINATION]
                        self._forbidden.setdefault(destination, []).append(str(loss))
                    raise SendRefused(doubtful[0], str(loss)) from loss
            # Perhaps one of them is to blame: the broker's ERROR may be lost with the connection.
            self._reopen(deadline)
            yield from self._confirmed(messages, doubtful, max(1, limit // REDUCTION), deadline)

    def _send_units(
        self,
        messages: Sequence[Message],
        units: Iterable[Unit],
        waiting: dict[str, Unit],
        deadline: Deadline,
    ) -> None:
        """Send each unit as one message with a receipt, or as a transaction with one."""
        frames: list[bytes] = []
        size = 0
        for unit in units:
            receipt = next(self._receipts)
            waiting[receipt] = unit
            if len(unit) == 1:
                more = {**self._headers, **self._user_headers, RECEIPT: receipt}
                unit_frames = [send_frame(messages[unit[0]], more)]
            else:
                transaction = {TRANSACTION: receipt}
                more = {**self._headers, **self._user_headers, **transaction}
                unit_frames = [
                    encode("BEGIN", transaction),
                    *(send_frame(messages[position], more) for position in unit),
                    encode("COMMIT", {**transaction, RECEIPT: receipt}),
                ]
            for frame in unit_frames:
                frames.append(frame)
                size += len(frame)
                if size >= WRITE_BYTES:
                    self._session.send(b"".join(frames), deadline)
                    frames, size = [], 0
        self._session.send(b"".join(frames), deadline)

    def _reopen(self, deadline: Deadline) -> None:
        self._session.drop()
        self._session = self._open_session(deadline)


def send_frame(message: Message, more_headers: dict[str, str]) -> bytes:
    """The SEND of a message that has a destination."""
    headers = send_headers(message)
    headers.update(more_headers)
    return encode("SEND", headers, message.body)


def says(pattern: str, text: object) -> bool:
    """Whether the text of a broker contains the pattern, in any case."""
    return re.search(pattern, str(text), re.IGNORECASE) is not None


def is_refusal(loss: SessionLost) -> bool:
    """Whether a session ended because the broker refused the only message under way."""
    return loss.by_error and says(_REFUSAL, loss)
