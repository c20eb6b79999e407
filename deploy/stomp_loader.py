"""A loader of your own with stomp.py: docs/embedding.md explains it."""

import os
import queue
from datetime import UTC, datetime

import stomp

from sam_pipeline.schema.identity.identity import ANONYMOUS, broker_identity, with_identity
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import require_compatible
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import load

DATABASE = "sqlite:///sam.db"
BROKER = ("msg1.example.org", 61613)
TOPIC = "/topic/grid.probe.metricOutput"
NAME = "my-loader"  # the broker keeps messages for this name while we are away
PREFETCH = 1000  # how many unacknowledged messages the broker may send
USER = "JMSXUserID"  # the header in which the broker names the user who sent a message
SUBSCRIPTION = {"activemq.subscriptionName": NAME, "activemq.prefetchSize": PREFETCH}


class Inbox(stomp.ConnectionListener):
    """A bounded queue between stomp.py's thread and ours."""

    def __init__(self) -> None:
        self._frames: queue.Queue[stomp.utils.Frame] = queue.Queue(PREFETCH)

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self._frames.put(frame)  # never blocks for long: the broker stops at PREFETCH

    on_connected = on_error = on_message

    def take(self, wait_s: float, at_most: int = 500) -> list[stomp.utils.Frame]:
        """The next frames; none if nothing arrives within `wait_s`."""
        frames = []
        try:
            frames.append(self._frames.get(timeout=wait_s))
            while len(frames) < at_most:
                frames.append(self._frames.get_nowait())
        except queue.Empty:
            pass
        for frame in frames:
            if frame.cmd == "ERROR":
                raise ConnectionError(frame.headers.get("message") or frame.body)
        return frames


def received(frame: stomp.utils.Frame) -> Message:
    """The message, with its sender according to the broker, whatever the message claims."""
    user = frame.headers.get(USER)
    sender = broker_identity(f"stomp://{BROKER[0]}:{BROKER[1]}", user) if user else ANONYMOUS
    message = Message(frame.headers, frame.body).with_default_class("metricOutput")
    return with_identity(message, sender)


engine = make_engine(DATABASE)
require_compatible(engine)
catalogue = Catalogue(engine)

inbox = Inbox()
connection = stomp.Connection12(
    [BROKER], timeout=10, heartbeats=(10_000, 10_000), vhost="/", auto_decode=False
)
connection.set_listener("inbox", inbox)
connection.connect("sam", os.environ["BROKER_PASSWORD"], headers={"client-id": NAME})
if not inbox.take(wait_s=10):
    raise ConnectionError("no answer to CONNECT")
connection.subscribe(TOPIC, id="1", ack="client-individual", headers=SUBSCRIPTION)

while connection.is_connected():
    frames = inbox.take(wait_s=1)
    if frames:
        messages = [received(frame) for frame in frames]
        loaded = load(engine, catalogue, messages, datetime.now(UTC))
        for frame in frames:  # committed: only now may the broker forget them
            connection.ack(frame.headers["ack"])
        fold_all(engine)
        print(len(frames), "messages,", loaded.rows, "rows", dict(loaded.dead_letters), flush=True)
inbox.take(wait_s=0)  # raises the broker's error, if it sent one before it closed the connection
raise ConnectionError("the connection to the broker was lost")
