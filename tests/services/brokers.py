"""The brokers that accept STOMP from anonymous clients, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from tests.services.activemq import running_activemq
from tests.services.artemis import running_artemis
from tests.services.broker import StompServer
from tests.services.rabbitmq import running_rabbitmq

BROKERS: Mapping[str, Callable[..., AbstractContextManager[StompServer]]] = {
    "activemq": running_activemq,
    "artemis": running_artemis,
    "rabbitmq": running_rabbitmq,
}
"""How to start each of them; all accept `Rules`."""
