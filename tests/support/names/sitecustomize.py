"""Python imports this module at start-up from PYTHONPATH; look-ups read a file first."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

_ask_the_system = socket.getaddrinfo


def getaddrinfo(host: Any, *arguments: Any, **keywords: Any) -> list[Any]:
    addresses = json.loads(Path(os.environ["NAMES_OF_TEST"]).read_text()).get(host)
    if addresses is None:
        return _ask_the_system(host, *arguments, **keywords)
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [
        info for address in addresses for info in _ask_the_system(address, *arguments, **keywords)
    ]


if "NAMES_OF_TEST" in os.environ:
    socket.getaddrinfo = getaddrinfo
