"""Destinations: the topics and queues by which publishers and consumers meet.

A destination is `/topic/NAME` or `/queue/NAME`; RabbitMQ also has `/amq/queue/NAME`, for a queue
that exists, and `/exchange/NAME/KEY`. Brokers also accept any other text, and confirm its messages,
but no consumer receives them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Optional

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.program.wording import did_you_mean

TOPICS = "/topic/"
QUEUES = ("/queue/", "/amq/queue/")
"""They store messages and share them among their consumers."""
EXCHANGES = "/exchange/"
FORMS = (TOPICS, *QUEUES, EXCHANGES)

VIRTUAL_TOPIC = "VirtualTopic."
"""The prefix of the topics of ActiveMQ Classic that fill one queue per shared name."""

WILDCARDS = frozenset("*#>")
"""Parts of a name, between dots, that match others in a subscription; each broker knows some."""

EXPECTED = "expected /topic/NAME or /queue/NAME"


@lru_cache(maxsize=100)
def problem_of_destination(destination: str, wildcards: bool = False) -> Optional[str]:
    """Why no consumer can receive messages from there; None if one can.

    With `wildcards`, which a subscription may have, why nothing can be received from there.
    """
    form = next(filter(destination.startswith, FORMS), "")
    name = destination[len(form) :]
    problem = None
    if not form:
        suggestion = _suggestion(destination)
        problem = f"{EXPECTED}{suggestion and f' ({suggestion})'}"
    elif not name.strip("/"):
        problem = "its name is empty"
    elif not name.isprintable() or " " in name:
        problem = "it contains a blank or a control character"
    elif name.startswith("/") or name.endswith("/"):
        problem = f"a slash too many (did you mean {form}{name.strip('/')}?)"
    elif not (wildcards or WILDCARDS.isdisjoint(name.replace("/", ".").split("."))):
        problem = "a wildcard can be subscribed to, but nothing can be sent there"
    return problem and f"{destination[:200]!r} is not a destination: {problem}"


@lru_cache(maxsize=100)
def name_of_destination(destination: str) -> str:
    """The NAME of `/topic/NAME`, `/queue/NAME` or `/exchange/EXCHANGE/NAME`.

    A broker delivers with another form than the one that was sent to, or with the name alone.
    ActiveMQ delivers messages to `VirtualTopic.X` from queues `Consumer.NAME.VirtualTopic.X`.
    """
    form = next(filter(destination.startswith, FORMS), "")
    name = destination[len(form) :]
    if form == EXCHANGES:
        return name.partition("/")[2] or name
    consumer, virtual, rest = name.partition(f".{VIRTUAL_TOPIC}")
    is_copy = consumer.startswith("Consumer.") and consumer.count(".") == 1
    return VIRTUAL_TOPIC + rest if virtual and is_copy else name


def forwarding_destination(destination: str) -> str:
    """Where a relay sends what it received from a destination: a copy of ActiveMQ, to its topic."""
    name = name_of_destination(destination)
    is_copy = destination.startswith(QUEUES) and not destination.endswith(f"/{name}")
    return f"{TOPICS}{name}" if is_copy else destination


def require_destination(destination: str) -> None:
    """Raises MessageRefused if no consumer can receive messages from there."""
    if problem := problem_of_destination(destination):
        raise MessageRefused("bad-destination", problem)


def _suggestion(destination: str) -> str:
    """The correct form of a near miss such as `/topics/x`, `topic/x` or `x`."""
    kind, slash, name = destination.strip().strip("/").partition("/")
    if not slash and kind not in ("topic", "queue"):
        kind, name = "topic", kind
    if not name.isprintable() or " " in name or not name:
        return ""
    near = [form + name.strip("/") for form in (TOPICS, QUEUES[0])]
    return did_you_mean(kind, ("topic", "queue")) and did_you_mean(f"/{kind}/{name}", near)
