"""Files that are read for each connection: a bad one leaves its last good content in use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from sam_pipeline.schema.errors import ConfigError

T = TypeVar("T")

logger = logging.getLogger(__name__)


class LastGood(Generic[T]):
    """The content of a file, as it was when it could last be read and used."""

    def __init__(
        self, name: str, read: Callable[[], T], show: Callable[[str, str], object]
    ) -> None:
        """`show` is called with the name, and why the previous content is in use, or ""."""
        self._name = name
        self._read = read
        self._show = show
        self._last: list[T] = []
        self._problem = ""

    def __call__(self) -> T:
        """Read it; raises ConfigError if it can't be used and never could."""
        try:
            self._last = [self._read()]
            problem = ""
        except ConfigError as error:
            if not self._last:
                raise
            problem = str(error)
        if problem != self._problem:
            if problem:
                logger.error("%s: %s; its last good content stays in use", self._name, problem)
            else:
                logger.info("%s: in use again", self._name)
            self._problem = problem
            self._show(self._name, problem)
        return self._last[0]
