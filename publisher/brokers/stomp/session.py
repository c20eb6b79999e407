"""One STOMP connection, from CONNECT to DISCONNECT, on one thread.

Sending never waits for answers: what comes in meanwhile is kept for whoever asks. There are no
heart-beats: nobody listens longer than a deadline here.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Optional

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.connection import open_channel
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.channel import words_of
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_frame import Frame, FrameError, FrameReader, encode

VERSION = "1.2"
GOODBYE_S = 0.5
ANY_VIRTUAL_HOST = "/"
"""RabbitMQ refuses the host's name; the others do not look."""


class SessionEnded(Exception):
    """No more will come; `by_error` if the broker said why in an ERROR frame."""

    def __init__(self, words: str, by_error: bool = False) -> None:
        super().__init__(words)
        self.by_error = by_error


class StompSession:
    """Connected and logged in; `server` names the broker's software.

    A wait that reaches its deadline raises BrokerUnavailable, here and in all methods.
    """

    def __init__(self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> None:
        login = config.login(address.broker)
        self._address = address
        self._reader = FrameReader()
        self._receipts: list[str] = []
        self._frames: deque[Frame] = deque()
        self._end: Optional[SessionEnded] = None
        self._broken = ""
        """Why nothing can be sent any more."""
        self._channel = open_channel(address, config, deadline)
        # A broker that waits until we read what it says takes no bytes before.
        self._channel.arrived = self._take_while_sending
        try:
            self.server = self._log_in(login, deadline)
        except BaseException:
            self.drop()
            raise

    def send(self, frames: bytes, deadline: Deadline) -> None:
        """Hand whole frames to the kernel.

        A failure shows where one waits: the receipts of earlier frames may still come in. Nothing
        is sent after it, since half a frame would swallow the next one.
        """
        if self._broken or self._end:
            return
        self._channel.deadline = deadline
        try:
            self._channel.send(frames)
        except OSError as error:
            self._broken = words_of(error)

    def receipts(self, deadline: Deadline, meanwhile: Callable[[], bool]) -> list[str]:
        """The ids of the receipts that came since the last call, at least one.

        Until then `meanwhile` is called, as long as it had something to do.

        Raises:
            SessionEnded: none will come.
        """
        while not self._receipts:
            while not self._channel.has_arrived() and meanwhile():
                pass
            self._receive(deadline)
        found, self._receipts = self._receipts, []
        return found

    def frame(self, deadline: Deadline) -> Frame:
        """The next frame that is neither a receipt nor an ERROR.

        Raises:
            SessionEnded: none will come.
        """
        while not self._frames:
            self._receive(deadline)
        return self._frames.popleft()

    def close(self) -> None:
        """DISCONNECT and let go: all that counts was confirmed before."""
        self.send(encode("DISCONNECT", {}), Deadline.after(GOODBYE_S))
        self.drop()

    def drop(self) -> None:
        """Close the connection without a word."""
        self._end = self._end or SessionEnded("we closed the connection")
        self._channel.close()

    def _log_in(self, login: tuple[Optional[str], Optional[str]], deadline: Deadline) -> str:
        """The name of the server's software."""
        try:
            self.send(_connect_frame(*login), deadline)
            answer = self.frame(deadline)
        except (SessionEnded, ValueError) as error:
            raise BrokerUnavailable(self._address, f"at login: {error}") from error
        version = answer.headers.get("version", "1.0")
        if version != VERSION:
            raise BrokerUnavailable(self._address, f"speaks STOMP {version}, not {VERSION}")
        return answer.headers.get("server", "")

    def _receive(self, deadline: Deadline) -> None:
        if self._end:
            raise self._end
        self._channel.deadline = deadline
        try:
            data = self._channel.receive()
        except TimeoutError as error:
            raise BrokerUnavailable(self._address, self._broken or words_of(error)) from error
        except OSError as error:
            self._end = SessionEnded(words_of(error))
            return
        self._take(data)

    def _take_while_sending(self, data: bytes) -> None:
        self._take(data)
        if self._end:
            raise ConnectionAbortedError(str(self._end))

    def _take(self, data: bytes) -> None:
        """Sort what came; receipts before the end still count, those after it do not."""
        if not data:
            self._end = SessionEnded(self._broken or "it closed the connection")
        try:
            for frame in self._reader.feed(data):
                if (
                    self._end
                ):  # a COMMIT may get its receipt though one of its messages got an ERROR
                    return
                self._sort(frame)
        except FrameError as error:
            self._end = SessionEnded(str(error))

    def _sort(self, frame: Frame) -> None:
        if frame.command == "RECEIPT":
            self._receipts.append(frame.headers.get("receipt-id", ""))
        elif frame.command == "ERROR":
            self._end = SessionEnded(_error_words(frame), by_error=True)
        else:
            self._frames.append(frame)


def _connect_frame(user: Optional[str], password: Optional[str]) -> bytes:
    """Raises ValueError where STOMP can't carry the login; the words don't show it."""
    login = {"login": user, "passcode": password}
    given = {name: value for name, value in login.items() if value is not None}
    headers = {"accept-version": VERSION, "host": ANY_VIRTUAL_HOST, "heart-beat": "0,0", **given}
    return encode("CONNECT", headers)


def _error_words(frame: Frame) -> str:
    """The broker's words: the header, and what the body adds to it."""
    message = frame.headers.get("message", "").strip()
    line = next(iter(frame.body.decode("utf-8", "replace").strip("\0\n\r ").splitlines()), "")
    # ActiveMQ adds a stack trace, Artemis the same words with other colons.
    says_it_all = "Exception" in line or line.replace(":", "") in message.replace(":", "")
    words = [message] if message and says_it_all else [message, line]
    versions = frame.headers.get("version", VERSION)
    if VERSION not in versions.split(","):
        words.append(f"it speaks STOMP {versions}, not {VERSION}")
    return ": ".join(filter(None, words)) or "ERROR without words"
