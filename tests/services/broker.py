"""What every private broker is for a test: a STOMP port, a login, and a process to kill."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.services.process import HOST, ServerProcess

USER = "sam"
PASSWORD = "sam-secret"


@dataclass(frozen=True, kw_only=True)
class StompServer:
    port: int
    directory: Path
    process: ServerProcess
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

    def kill(self) -> None:
        """SIGKILL; what was stored stays."""
        self.process.kill()

    def restart(self) -> None:
        """Stop hard, if running, and start again on the same data and ports."""
        self.process.kill()
        self.process.start()
