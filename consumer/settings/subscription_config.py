"""The tables `[[consumer.subscription]]`."""

from __future__ import annotations

from functools import cached_property

from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.messages.foreign import FORMATS, Stamp, make_stamp, rename_problems
from sam_pipeline.schema.net.broker_url import LISTEN, SPOOL, STOMP, Broker, parse_broker
from sam_pipeline.schema.settings.key import Settings, config_key, joined, one_of


def problem_of_source(url: str) -> str | None:
    """The problem of the URL of a broker from which a consumer reads."""
    try:
        broker = parse_broker(url)
    except ValueError as error:
        return str(error)
    if broker.kind in (STOMP, LISTEN, SPOOL):
        return None
    return f"{broker}: sam-consume can't read from {broker.scheme}://"


def _check_destination(destination: str) -> str | None:
    if destination.startswith(f"{SPOOL}:"):
        return problem_of_source(destination)
    problem = problem_of_destination(destination, wildcards=True)
    if problem and not destination.startswith("/"):
        problem += f"; or the URL of a spool, {SPOOL}:///DIRECTORY"
    return problem


class SubscriptionConfig(Settings):
    """A destination of the network brokers, or one of the spools, and its kind of messages.

    Class, format and renames apply to messages whose headers do not give them.
    """

    destination: str = config_key(
        "`/topic/…` or `/queue/…` on every network broker, and of messages through a door, or the"
        " URL of one of the spools",
        _check_destination,
    )
    message_class: str = config_key("the class of messages that name none", default="", key="class")
    shared: bool = config_key("several processes with one name share the messages", default=False)
    format: str = config_key(
        "the format of the messages; `nstream` for foreign writers",
        one_of(*FORMATS),
        "wlcg",
    )
    rename: dict[str, str] = config_key(
        '`{ theirs = "ours" }`: our names of foreign keys',
        joined(lambda rename: rename_problems(rename.items())),
        default={},
    )

    @cached_property
    def spool(self) -> Broker | None:
        """The spool to read; None for a destination of the network brokers."""
        return None if self.destination.startswith("/") else parse_broker(self.destination)

    @cached_property
    def stamp(self) -> Stamp:
        """The headers for messages that lack them."""
        return make_stamp(self.message_class, self.format, self.rename)
