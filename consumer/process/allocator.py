"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes

LARGE_BYTES = 2 * 1024 * 1024
"""More than any piece of an ordinary batch, so that returning it costs such a batch nothing."""
SPARE_BYTES = 32 * 1024 * 1024
"""How much free memory the heap may keep at its end for the next batch."""

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
