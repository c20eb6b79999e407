"""Makes what all runs of the tests share: `python -m tests.services` (the network, once).

The brokers in Java and the archive of Spark's classes; with --all our wheels and packages, and a
Debian.
"""

from __future__ import annotations

import sys

from tests.services import ServiceMissing, activemq, activemq5, artemis, spark_classes

try:
    for broker in (activemq, activemq5, artemis):
        print(broker.fetch())
    print(spark_classes.archive())
except (ServiceMissing, OSError) as reason:
    print(reason, file=sys.stderr)
    raise SystemExit(2) from None
if "--all" in sys.argv:
    from tests.services import debian, machine, packages

    for make in (
        machine.wheels,
        lambda: packages.built_packages().directory,
        lambda: debian.bare_debian().root,
    ):
        try:
            print(make())
        except ServiceMissing as reason:
            print(f"{reason}; tests that need it are skipped")
