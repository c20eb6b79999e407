"""Real servers for tests and demo: private copies on free ports, which end with their owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn, TypeVar

Server = TypeVar("Server")


class ServiceMissing(Exception):
    """A server is not installed here; the message says how to install it."""

    def __init__(self, name: str, how_to_get_it: str) -> None:
        super().__init__(f"{name} is not installed: {how_to_get_it}")
        self.name = name
        self.how_to_get_it = how_to_get_it


def missing(name: str, how_to_get_it: str) -> NoReturn:
    """Skip the test on a laptop; fail it in CI, where a skipped service would go unnoticed."""
    import pytest  # the demo starts servers too, without pytest

    text = f"{name} is not installed: {how_to_get_it}"
    if os.environ.get("CI"):
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


@contextmanager
def needed(service: AbstractContextManager[Server]) -> Iterator[Server]:
    """The running service; if it is not installed, the test is skipped or fails (`missing`)."""
    try:
        with service as server:
            yield server
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)
