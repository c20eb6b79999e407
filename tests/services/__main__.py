"""Fetches the brokers in Java, our wheels and a Debian: `python -m tests.services` (once).

It needs the network, the tests do not.
"""

from __future__ import annotations

from tests.services import ServiceMissing, activemq, activemq5, artemis, debian, machine

try:
    for broker in (activemq, activemq5, artemis):
        print(broker.fetch())
    print(machine.wheels())
except ServiceMissing as reason:
    raise SystemExit(str(reason)) from None
try:
    print(debian.bare_debian().root)
except ServiceMissing as reason:
    print(f"{reason}; the tests on a bare Debian are skipped")
