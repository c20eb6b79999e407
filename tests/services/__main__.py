"""Fetches the brokers in Java, and our wheels: `python -m tests.services` (the network, once)."""

from __future__ import annotations

from tests.services import ServiceMissing, activemq, activemq5, artemis, machine

try:
    for broker in (activemq, activemq5, artemis):
        print(broker.fetch())
    print(machine.wheels())
except ServiceMissing as reason:
    raise SystemExit(str(reason)) from None
