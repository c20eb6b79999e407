"""Makes what all runs of the tests share: `python -m tests.services` (the network, once).

The brokers in Java, our wheels, a Debian, the archive of Spark's classes.
"""

from __future__ import annotations

from tests.services import (
    ServiceMissing,
    activemq,
    activemq5,
    artemis,
    debian,
    machine,
    spark_classes,
)

try:
    for broker in (activemq, activemq5, artemis):
        print(broker.fetch())
    print(machine.wheels())
    print(spark_classes.archive())
except ServiceMissing as reason:
    raise SystemExit(str(reason)) from None
try:
    print(debian.bare_debian().root)
except ServiceMissing as reason:
    print(f"{reason}; the tests on a bare Debian are skipped")
