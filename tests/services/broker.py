"""What every private broker is for a test: a STOMP port, a login, and a process to kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.process import HOST, ServerProcess, descendants

USER = "sam"
PASSWORD = "sam-secret"


@dataclass(frozen=True)
class HostCertificate:
    """What a broker shows, and whom it trusts: as files, and as stores for those in Java."""

    ca_file: Path
    certificate_file: Path
    key_file: Path
    key_store: Path
    trust_store: Path
    store_password: str


@dataclass(frozen=True)
class Rules:
    """What a broker of a test's own does otherwise."""

    certificate: HostCertificate | None = None
    """It has a second STOMP port, over TLS, for clients with a certificate."""
    needs_login: bool = False


AS_USUAL = Rules()


@dataclass(frozen=True, kw_only=True)
class StompServer:
    port: int
    directory: Path
    process: ServerProcess
    tls_port: int
    """For clients with a certificate; nobody listens on it unless the broker has got its own."""
    host: str = HOST
    user: str = USER
    password: str = PASSWORD

    @property
    def url(self) -> str:
        """STOMP, without a login: anonymous may do everything."""
        return f"stomp://{self.host}:{self.port}"

    @property
    def url_with_user(self) -> str:
        return f"stomp://{self.user}@{self.host}:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"stomp+ssl://{self.host}:{self.tls_port}"

    def kill(self) -> None:
        """SIGKILL; what was stored stays."""
        self.process.kill()

    def restart(self) -> None:
        """Stop hard, if running, and start again on the same data and ports."""
        self.process.kill()
        self.process.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP: its ports are open, and nobody is there. On leaving the block it goes on."""
        family = [self.process.pid, *descendants(self.process.pid)]
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in family:
                os.kill(pid, signal.SIGCONT)
