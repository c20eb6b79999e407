"""Cutting a stream into lists that are bounded by count and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Callable, TypeVar

T = TypeVar("T")


def chunks(
    items: Iterable[T], size_of: Callable[[T], int], max_items: int, max_bytes: int
) -> Iterator[list[T]]:
    """Lists of at most `max_items` items and `max_bytes`; a larger item gets a list of its own.

    A full list is yielded before the next item is read.
    """
    chunk: list[T] = []
    size = 0
    for item in items:
        item_size = size_of(item)
        if chunk and size + item_size > max_bytes:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += item_size
        if len(chunk) == max_items or size >= max_bytes:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
