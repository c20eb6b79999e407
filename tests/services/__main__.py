"""Fetches the brokers in Java: `python -m tests.services` (Maven and the network, once)."""

from __future__ import annotations

from tests.services import ServiceMissing, activemq, activemq5, artemis

try:
    for broker in (activemq, activemq5, artemis):
        print(broker.fetch())
except ServiceMissing as reason:
    raise SystemExit(str(reason)) from None
