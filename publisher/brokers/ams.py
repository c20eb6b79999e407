"""The ARGO Messaging Service: many messages per request, and an id for each stored message.

Topic names consist of letters, digits, `-` and `_`, so the dots in ours become `-`:
`/topic/grid.probe.metricOutput` is the topic `grid-probe-metricOutput`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from sam_pipeline.publisher.brokers.connection import usable
from sam_pipeline.publisher.brokers.http import (
    JSON,
    TOPIC,
    CannotTravel,
    EncodedMessage,
    HttpRequest,
    HttpTransport,
    RefusedByBroker,
    destination_of,
    rejecting,
    travelling_headers,
)
from sam_pipeline.publisher.brokers.tokens import token_for
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected
from sam_pipeline.schema.messages.message import Message, chunks
from sam_pipeline.schema.net.broker import Broker, Target
from sam_pipeline.schema.net.deadline import Deadline

MAX_BATCH = 100
MAX_BATCH_BYTES = 1_000_000
"""Approximately the limit on a request; a larger message is sent alone, and AMS decides."""

TOKEN = "x-api-key"
NO_TOKEN = "requires a token: the key token_file, or WLCG token discovery"

_TOPIC = re.compile(r"[A-Za-z0-9_-]+")
# AMS copies attributes into its own JSON without escapes: these characters break it, and nothing is
# stored although AMS returns an id.
_BREAKS_JSON = re.compile(r'["\\\x00-\x1f]')


class Ams(HttpTransport):
    """Remembers refusals, so that no refused message is sent again."""

    def __init__(self, target: Target, deadline: Deadline) -> None:
        super().__init__(target, deadline)
        self._refused: dict[str, str] = {}
        """The reason, by message id or topic."""

    @classmethod
    def secrets(cls, target: Target) -> dict[str, str]:
        token = usable(target, lambda: token_for(target))
        if not token:
            raise BrokerUnavailable(target, NO_TOKEN)
        return {TOKEN: token}

    @classmethod
    def secrets_shown(cls, target: Target) -> list[str]:
        return [TOKEN]

    @classmethod
    def request_of(cls, broker: Broker, message: Message) -> HttpRequest:
        return _publish_request(broker, _topic_of(message), [_encoded(0, message)])

    @classmethod
    def refusal_of(cls, broker: Broker, message: Message) -> str:
        refusal = super().refusal_of(broker, message)
        if not refusal and (size := len(_encoded(0, message).text)) > MAX_BATCH_BYTES:
            return f"a request of {size} bytes exceeds AMS's limit of about 1 MB"
        return refusal

    def prove(self, message: Message, deadline: Deadline) -> str:
        """A publisher may not read from AMS: proves that the topic exists and returns an id."""
        list(self.send([message], deadline))
        return "confirmed: the topic exists and returned an id"

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        by_topic: dict[str, list[EncodedMessage]] = {}
        for position, message in enumerate(messages):
            with rejecting(self._target, position):
                topic = _topic_of(message)
                reason = self._refused.get(topic) or self._refused.get(message.message_id)
                if reason:
                    raise RefusedByBroker(reason)
                by_topic.setdefault(topic, []).append(_encoded(position, message))
        for topic, items in by_topic.items():
            for batch in chunks(items, lambda item: len(item.text), MAX_BATCH, MAX_BATCH_BYTES):
                yield from self._publish(topic, batch, deadline)
                for item in batch:
                    if item.message_id in self._refused:
                        reason = self._refused[item.message_id]
                        raise MessageRejected(self._target, item.position, reason)

    def _publish(
        self, topic: str, batch: Sequence[EncodedMessage], deadline: Deadline
    ) -> Iterator[int]:
        """The positions of the messages that got an id; adds the others to `_refused`."""
        request = _publish_request(self._target.broker, topic, batch)
        answer = self._session.request(request, deadline)
        if answer.status == 200:
            try:
                ids = json.loads(answer.body)["messageIds"]
            except (ValueError, TypeError, KeyError, RecursionError):
                ids = []
            if not isinstance(ids, list) or len(ids) != len(batch) or not all(ids):
                missing = f"answered 200 without an id for each of {len(batch)} messages"
                raise BrokerUnavailable(self._target, missing)
            yield from (item.position for item in batch)
        elif answer.status == 403 or (answer.status == 404 and "topic" in answer.message.lower()):
            self._refused[topic] = f"topic {topic}: {answer}"
            self._refused.update((item.message_id, self._refused[topic]) for item in batch)
        elif answer.status not in (400, 413):
            raise BrokerUnavailable(self._target, str(answer))
        elif len(batch) == 1:
            self._refused[batch[0].message_id] = str(answer)
        else:  # one of them is bad: halve the batch to find it; sending an id twice is harmless
            middle = len(batch) // 2
            yield from self._publish(topic, batch[:middle], deadline)
            yield from self._publish(topic, batch[middle:], deadline)


def _topic_of(message: Message) -> str:
    kind, name = destination_of(message)
    topic = name.replace(".", "-")
    if kind != TOPIC:
        raise CannotTravel(f"destination /queue/{name}: AMS has only topics")
    if not _TOPIC.fullmatch(topic):
        raise CannotTravel(
            f"topic {name}: AMS allows only letters, digits, - and _ (and . becomes -)"
        )
    return topic


def _encoded(position: int, message: Message) -> EncodedMessage:
    attributes = travelling_headers(message)
    for name, value in attributes.items():
        if _BREAKS_JSON.search(name + value):
            raise CannotTravel(
                f"header {name}: AMS loses messages with a quote, backslash or line end"
            )
    data = base64.b64encode(message.body).decode()
    text = json.dumps({"attributes": attributes, "data": data}, ensure_ascii=False)
    return EncodedMessage(position, message.message_id, text.encode("utf-8", "replace"))


def _publish_request(broker: Broker, topic: str, batch: Sequence[EncodedMessage]) -> HttpRequest:
    path = quote(broker.path, safe="/%")
    body = b'{"messages":[%b]}' % b",".join(item.text for item in batch)
    return HttpRequest("POST", f"{path}/topics/{topic}:publish", JSON, body)
