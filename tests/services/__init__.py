"""Real servers for tests and demo: private copies on free ports, which end with their owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn, TypeVar

Server = TypeVar("Server")

PRIVILEGED = "run as root, and let a container do so (docker run --cap-add SYS_ADMIN)"
"""How to get what the kernel permits only to a privileged process."""


class ServiceMissing(Exception):
    """A server, program or privilege is missing here; the message says how to get it."""

    def __init__(self, name: str, how_to_get_it: str) -> None:
        super().__init__(name, how_to_get_it)
        self.name = name
        self.how_to_get_it = how_to_get_it

    def __str__(self) -> str:
        return f"{self.name} is missing here: {self.how_to_get_it}"


def missing(name: str, how_to_get_it: str) -> NoReturn:
    """Skip the test on a laptop; fail it in CI, where nobody would notice that it is skipped."""
    import pytest  # the demo starts servers too, without pytest

    text = str(ServiceMissing(name, how_to_get_it))
    if os.environ.get("CI"):
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


@contextmanager
def needed(service: AbstractContextManager[Server]) -> Iterator[Server]:
    """The running service; if it is missing, the test is skipped or fails (`missing`)."""
    try:
        with service as server:
            yield server
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)
