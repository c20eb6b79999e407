"""The login name of the person or service that runs this process."""

from __future__ import annotations

import getpass
import os


def login_name() -> str:
    """The login name of this process; `uid NUMBER` if it has none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
