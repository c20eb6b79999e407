"""The name of this host."""

from __future__ import annotations

import os

from sam_pipeline.schema.net.deadline import Deadline, within

HOST_NAME_TIMEOUT_S = 2.0


def this_host() -> str:
    """The full name of this host; the short one if DNS has no full name or is slow to answer."""
    name = os.uname().nodename
    if "." in name:
        return name
    # `import socket`, for getfqdn, would make publishing a result 7 % slower.
    from _socket import gethostbyaddr

    deadline = Deadline.after(HOST_NAME_TIMEOUT_S)
    try:
        # A str would be encoded as IDNA, whose codec is also slow to import.
        host, aliases, _ = within(deadline, gethostbyaddr, name.encode())
    except (OSError, UnicodeError, RuntimeError):  # including TimeoutError; no more threads
        return name
    for alias in (host, *aliases):
        if "." in alias:
            return name if alias.startswith("localhost") else str(alias)
    return name
