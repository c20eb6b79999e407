"""A private tinyproxy: an HTTP proxy on a free port, open to all, or with a login.

with running_tinyproxy(user="sam", password="sam-secret") as proxy:
    publish_through(proxy.url)
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceMissing
from tests.services.process import HOST, ServerProcess, free_ports, port_is_open

HOW_TO_GET_IT = "apt-get install tinyproxy-bin"

CONFIG = """\
Port {port}
Listen {host}
Allow {host}
Timeout 60
MaxClients 20
LogLevel Info
"""


@dataclass(frozen=True)
class TinyProxy:
    port: int
    log: Path
    process: ServerProcess
    host: str = HOST

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def url_with(self, login: str) -> str:
        return f"http://{login}@{self.host}:{self.port}"

    @property
    def asked(self) -> list[str]:
        """Method and target of each accepted request, from its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [
            " ".join(line.split("): ", 1)[1].split()[:2]) for line in lines if "Request" in line
        ]


@contextlib.contextmanager
def running_tinyproxy(user: str = "", password: str = "") -> Iterator[TinyProxy]:
    """A running proxy in a new directory, which is removed on leaving the block."""
    program = shutil.which("tinyproxy")
    if program is None:
        raise ServiceMissing("tinyproxy", HOW_TO_GET_IT)
    with tempfile.TemporaryDirectory(prefix="sam-tinyproxy-") as name:
        proxy = _server(program, Path(name), f"BasicAuth {user} {password}\n" if user else "")
        try:
            proxy.process.start()
            yield proxy
        finally:
            proxy.process.kill()


def _server(program: str, directory: Path, login: str) -> TinyProxy:
    (port,) = free_ports(1)
    config = directory / "tinyproxy.conf"
    config.write_text(CONFIG.format(port=port, host=HOST) + login)
    log = directory / "log"
    process = ServerProcess(
        command=[program, "-d", "-c", str(config)],
        log=log,
        ready=lambda: port_is_open(port),
        cwd=directory,
    )
    return TinyProxy(port=port, log=log, process=process)
