"""The C library's memory allocator: free memory goes back to the system."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LARGE_BYTES = 2 * 1024 * 1024
"""More than any piece of an ordinary batch, so that returning it costs such a batch nothing."""
SPARE_BYTES = 32 * 1024 * 1024
"""How much free memory the heap may keep at its end for the next batch."""
EVERY_S = 1.0

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def return_large_blocks() -> None:
    """Make glibc return each large block to the system when it is freed, and use only two heaps.

    By default it keeps blocks as large as the largest one that was ever freed, in a heap for each
    thread. After some large messages these heaps are fragmented, and the process stays large. With
    a single heap, the threads would wait for each other: some 5 % less throughput.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library has an allocator of its own
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, SPARE_BYTES)
        mallopt(_M_ARENA_MAX, 2)


@contextmanager
def returning_free_pages(every_s: float = EVERY_S) -> Iterator[None]:
    """Return free pages to the system again and again inside the block, in a thread.

    By itself glibc only returns those at the end of a heap. Each outage leaves free pages in the
    middle, so that a process that lives for weeks would get larger with the worst of its outages.
    The interval is short because later messages use such pages again, and more of them each second.
    """
    ending = threading.Event()

    def run(trim: Callable[[int], int]) -> None:
        while not ending.wait(every_s):
            trim(0)  # takes a millisecond or two, without Python's lock

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # only glibc has it
        threading.Thread(target=run, args=[trim], name="allocator", daemon=True).start()
    try:
        yield
    finally:
        ending.set()
