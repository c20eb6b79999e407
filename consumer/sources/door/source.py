"""The HTTP door as a source: one event loop in the thread of the source."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from sam_pipeline.consumer.core.inbox import Inbox, MessageOutcome
from sam_pipeline.consumer.core.source import Delays, growing_delays
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.process.listening import BACKLOG
from sam_pipeline.consumer.sources.door.access import Access
from sam_pipeline.consumer.sources.door.entrance import TlsEntrance
from sam_pipeline.consumer.sources.door.intake import DoorSettings, Intake
from sam_pipeline.consumer.sources.door.requests import Requests
from sam_pipeline.consumer.sources.door.server import DoorServer
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import error_text

TICK_S = 0.1
"""How often to look whether to stop, and whether the sink is away."""
SHUTDOWN_S = 2.0
"""The time limit for answering when the door closes."""

logger = logging.getLogger(__name__)


class HttpSource:
    """Listens at one address. It is the session of all messages that arrive there."""

    answers = True

    def __init__(
        self,
        broker: Broker,
        settings: DoorSettings,
        state: State,
        *,
        delays: Delays = growing_delays,
    ) -> None:
        self.name = self.broker = str(broker)
        self._address = broker
        self._settings = settings
        self._state = state
        self._delays = delays
        self._problem = "not listening yet"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._intake: Intake | None = None

    @property
    def batch_size(self) -> int:
        """A batch takes all messages that have arrived, from whichever source, and waits for no
        more than those whose senders wait.
        """
        return self._intake.batch_size if self._intake else 1

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        asyncio.run(self._serve(inbox, stop))

    def missing(self) -> Sequence[str]:
        return [f"{self.name} ({self._problem})"] if self._problem else []

    def ack(self, tokens: Sequence[Any]) -> None:
        """Nothing: senders get answers instead."""

    def answer(self, outcomes: Sequence[tuple[Any, MessageOutcome]]) -> None:
        """Answer the senders of stored messages; called by another thread."""
        if self._loop is not None and self._intake is not None:
            with suppress(RuntimeError):  # it has stopped
                self._loop.call_soon_threadsafe(self._intake.resolve, outcomes)

    def give_back(self, tokens: Sequence[Any]) -> None:
        """Answer the senders that these messages can't be stored now; called by another thread."""
        if self._loop is not None and self._intake is not None:
            with suppress(RuntimeError):  # it has stopped
                self._loop.call_soon_threadsafe(self._intake.refuse, tokens)

    async def _serve(self, inbox: Inbox, stop: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        # One long body at a time: while it is read, it takes a multiple of its size.
        self._loop.set_default_executor(ThreadPoolExecutor(1, "long body"))
        settings = self._settings
        access = Access(
            settings.credentials,
            settings.signatures.policy,
            settings.config.admits_anonymous(self._address),
        )
        intake = self._intake = Intake(self, inbox, settings, self._state, access)
        requests = Requests(intake, access, self._state)
        limit = settings.config.max_connections
        server = DoorServer(self.name, requests.response, limit, requests.count)
        entrances = await self._open(server, stop)
        while not stop.is_set():
            intake.look()
            server.strangers.look()
            self._state.connections[self.name] = server.open_connections
            await asyncio.sleep(TICK_S)
        for entrance in entrances:
            entrance.close()
        await asyncio.sleep(0)  # answers of the last batch come first
        intake.stop()
        server.pre_shutdown()
        await server.shutdown(SHUTDOWN_S)
        self._state.connections[self.name] = 0

    async def _open(
        self, server: DoorServer, stop: threading.Event
    ) -> Sequence[TlsEntrance | asyncio.AbstractServer]:
        """Listen as soon as that is possible, at each address; at none if stopped before."""
        assert self._loop is not None
        tls = self._settings.credentials.tls if self._address.tls else None
        for delay_s in self._delays():
            try:
                sockets = self._settings.listeners.sockets_of(self._address)
            except OSError as error:
                problem = error_text(error)
                if problem != self._problem:
                    text = "door %s: %s; trying again"
                    logger.error(text, self.name, problem, extra={"broker": self.name})
                self._problem = problem
            else:
                logger.info("door %s: listening", self.name, extra={"broker": self.name})
                self._problem = ""
                if tls:
                    return [TlsEntrance(server, tls, item) for item in sockets]
                return [
                    await self._loop.create_server(server, sock=item, backlog=BACKLOG)
                    for item in sockets
                ]
            await asyncio.to_thread(stop.wait, delay_s)
            if stop.is_set():
                break
        return []
