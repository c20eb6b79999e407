"""What tests of the publisher share: messages, spools, secrets in files, brokers that are away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sam_pipeline.publisher.brokers.transport import kind_of, outcomes
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.identity.signature import load_signer, verify
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import Frame, closed_port
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message

RESULT = ("result", "--metric", "m", "--status", "OK", "--host", "ce01", "--flavour", "CE")
"""The arguments of `sam-publish` for a result; further options may follow."""
TOPIC = "/topic/grid.probe.metricOutput"


def dead_url() -> str:
    """A broker that refuses connections."""
    return f"stomp://{HOST}:{closed_port()}"


def config_for(*brokers: str, **settings: Any) -> PublisherConfig:
    """These brokers, and the spool of the working directory."""
    spool = {"spool": Path("spool").absolute(), "timeout_s": 5.0}
    return PublisherConfig(brokers=brokers, **{**spool, **settings})


def messages(count: int, **headers: str) -> list[Message]:
    return [metric_message(**headers) for _ in range(count)]


def sized(size: int, **headers: str) -> Message:
    """A message with a body of this many bytes."""
    return Message(metric_message(**headers).headers, b"x" * size)


def ids(messages: Iterable[Message]) -> list[str]:
    return [message.message_id for message in messages]


def spooled(path: str | Path = "spool") -> list[str]:
    """The ids of the messages in a spool, oldest first."""
    queue = DirectoryQueue(Path(path))
    return [queue.read(name).message_id for name in queue.names()] if queue.path.exists() else []


def filled(queue: DirectoryQueue, count: int, **headers: str) -> list[str]:
    """Spool this many messages; their ids."""
    added = messages(count, **headers)
    for message in added:
        queue.add(message)
    return ids(added)


def refusing(*refused: str) -> Callable[[Frame], str]:
    """For FakeBroker: rejects the messages with these ids."""
    return lambda frame: "access_refused" if frame.headers["samMessageId"] in refused else ""


def secret(path: Path, text: str = "canary", mode: int = 0o600) -> Path:
    """A file with a secret in its first line."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return path


def signer_of(key: Path, message: Message) -> str | None:
    """The name of the key in this file if it signed the message; None if it is unsigned.

    Raises:
        SignatureRefused: the signature is bad.
    """
    signer = load_signer(key)
    keys = {signer.name: [signer.public_key()]}
    return verify(message, keys, datetime.now(UTC), timedelta(days=1))


def sent_to(
    url: str, messages: Sequence[Message], config: PublisherConfig | None = None
) -> dict[int, str | None]:
    """By position: None if the broker confirmed the message, else why it rejected it."""
    target = (config or PublisherConfig()).target_of(parse_broker(url))._replace(ip=HOST)
    deadline = Deadline.after(10)
    with closing(kind_of(target.broker)(target, deadline)) as transport:
        return {
            position: rejection.reason if rejection else None
            for position, rejection in outcomes(transport, messages, deadline)
        }


def rejection_of(url: str, message: Message, config: PublisherConfig | None = None) -> str:
    reason = sent_to(url, [message], config)[0]
    assert reason is not None
    return reason
