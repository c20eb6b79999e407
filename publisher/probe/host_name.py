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
    try:
        full = str(within(Deadline.after(HOST_NAME_TIMEOUT_S), _full_name, name))
    except (OSError, UnicodeError):  # TimeoutError, too
        return name
    return name if full.startswith("localhost") else full


def _full_name(name: str) -> str:
    """The first of the names of a host that has a dot."""
    # `socket` has getfqdn, and takes longer to import than all of our own modules.
    from _socket import gethostbyaddr

    # Text would be encoded as IDNA, which is slow to import, too.
    host, aliases, _ = gethostbyaddr(name.encode())  # type: ignore[arg-type]
    return next((known for known in [host, *aliases] if "." in known), name)
