"""A private S3-compatible server: moto's, which keeps its objects in memory.

with running_s3() as server:
    url = server.new_bucket()
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import boto3

from tests.services.process import HOST, Server, ServerProcess, free_ports, port_is_open, running

KEYS = {"AWS_ACCESS_KEY_ID": "sam", "AWS_SECRET_ACCESS_KEY": "sam-secret"}
REGION = "us-east-1"


@dataclass(frozen=True, kw_only=True)
class S3Server(Server):
    port: int
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


def running_s3() -> AbstractContextManager[S3Server]:
    """A running server without any bucket."""
    return running("s3", _server)


def _server(directory: Path) -> S3Server:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    ready = partial(port_is_open, port)
    process = ServerProcess(command, directory / "log", ready, cwd=directory)
    return S3Server(port=port, directory=directory, process=process)
