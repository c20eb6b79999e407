"""The limit on open files, each of which may be a connection."""

from __future__ import annotations

import resource

OTHER_FILES = 256
"""The files that are left for the database, for other sources, and for elements of spools."""


def allow_connections(count: int) -> int:
    """Raise the limit on open files for this many connections; returns how many it allows.

    The usual soft limit is 1024; the hard limit, which stays, is much higher.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return count
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(limit - OTHER_FILES, 1)
