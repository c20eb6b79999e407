"""The name of this host."""

from __future__ import annotations

import os

from sam_pipeline.schema.net.deadline import Deadline, within

HOST_NAME_TIMEOUT_S = 2.0


def this_host() -> str:
    """The full name of this host; the short one where DNS has none, or does not answer quickly."""
    name = os.uname().nodename
    if "." in name:
        return name
    # `socket` has getfqdn, but takes longer to import than all of our own modules.
    from _socket import gethostbyaddr

    deadline = Deadline.after(HOST_NAME_TIMEOUT_S)
    try:
        # Text would be encoded as IDNA, which is slow to import, too.
        host, aliases, _ = within(deadline, gethostbyaddr, name.encode())
    except (OSError, UnicodeError):  # TimeoutError, too
        return name
    full = next((known for known in [host, *aliases] if "." in known), name)
    return name if full.startswith("localhost") else str(full)
