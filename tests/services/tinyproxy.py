"""A private tinyproxy: an HTTP proxy on a free port, open to all, or with a login.

with running_tinyproxy(user="sam", password="sam-secret") as proxy:
    publish_through(proxy.url)
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.services import ServiceMissing
from tests.services.process import HOST, Server, ServerProcess, free_ports, port_is_open, running

HOW_TO_GET_IT = "apt-get install tinyproxy-bin"

CONFIG = """\
Port {port}
Listen {host}
Allow {host}
Timeout 60
MaxClients 20
LogLevel Info
"""


@dataclass(frozen=True, kw_only=True)
class TinyProxy(Server):
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def url_with(self, login: str) -> str:
        return f"http://{login}@{HOST}:{self.port}"

    @property
    def asked(self) -> list[str]:
        """Method and target of each accepted request, from its log."""
        lines = self.process.log.read_text(errors="replace").splitlines()
        return [
            " ".join(line.split("): ", 1)[1].split()[:2]) for line in lines if "Request" in line
        ]


def running_tinyproxy(user: str = "", password: str = "") -> AbstractContextManager[TinyProxy]:
    login = f"BasicAuth {user} {password}\n" if user else ""
    return running("tinyproxy", lambda directory: _server(directory, login))


def _server(directory: Path, login: str) -> TinyProxy:
    if shutil.which("tinyproxy") is None:
        raise ServiceMissing("tinyproxy", HOW_TO_GET_IT)
    (port,) = free_ports(1)
    config = directory / "tinyproxy.conf"
    config.write_text(CONFIG.format(port=port, host=HOST) + login)
    command, ready = ["tinyproxy", "-d", "-c", str(config)], partial(port_is_open, port)
    process = ServerProcess(command, directory / "log", ready, cwd=directory)
    return TinyProxy(port=port, directory=directory, process=process)
