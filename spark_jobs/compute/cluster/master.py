"""Whether the master of a standalone cluster can be reached.

Spark itself would wait a minute for one that is away, and forget why.
"""

from __future__ import annotations

import socket

from sam_pipeline.spark_jobs.errors import SparkFailed

STANDALONE = "spark://"
TIMEOUT_S = 10.0


def require_master(url: str) -> None:
    """Check that a master listens, if `url` is one of a standalone cluster.

    Raises:
        SparkFailed: none of its masters can be reached.
    """
    if not url.startswith(STANDALONE):
        return
    failures = []
    for address in url.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            failures.append(f"{address}: not a master (expected HOST:PORT)")
            continue
        try:
            socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S).close()
            return
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            failures.append(f"{address}: {reason}")
    raise SparkFailed(f"no Spark master answers: {'; '.join(failures)}")
