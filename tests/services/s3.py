"""A private S3-compatible server: moto's, which keeps its objects in memory.

with running_s3() as server:
    url = server.new_bucket()
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import boto3

from tests.services.process import HOST, ServerProcess, free_ports, port_is_open

KEYS = {"AWS_ACCESS_KEY_ID": "sam", "AWS_SECRET_ACCESS_KEY": "sam-secret"}
REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    port: int
    process: ServerProcess
    _numbers: Any = field(default_factory=lambda: count(1))

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables with which a program uses it."""
        return {**KEYS, "SAM_ARCHIVE_ENDPOINT": self.endpoint, "SAM_ARCHIVE_REGION": REGION}

    def new_bucket(self) -> str:
        """The URL of an archive in an empty bucket."""
        name = f"archive-{next(self._numbers)}"
        self.client().create_bucket(Bucket=name)
        return f"s3a://{name}/sam"

    def client(self) -> Any:
        keys = dict(zip(("aws_access_key_id", "aws_secret_access_key"), KEYS.values(), strict=True))
        return boto3.client("s3", endpoint_url=self.endpoint, region_name=REGION, **keys)


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """A running server without any bucket."""
    with tempfile.TemporaryDirectory(prefix="sam-s3-") as name:
        (port,) = free_ports(1)
        process = ServerProcess(
            command=[sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)],
            log=Path(name) / "log",
            ready=lambda: port_is_open(port),
            cwd=Path(name),
        )
        try:
            process.start()
            yield S3Server(port, process)
        finally:
            process.kill()
