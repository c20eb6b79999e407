"""The table `[consumer.door]`: the sources `listen+https://` and `listen+http://`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sam_pipeline.consumer.config_key import config_key, expected
from sam_pipeline.schema.secret_file import problem_of_certificate, problem_of_secret

if TYPE_CHECKING:
    from sam_pipeline.schema.net.tls import TlsFiles

MAX_TIMEOUT_S = 3600
_POSITIVE = expected("more than 0", lambda number: number > 0)


@dataclass(frozen=True)
class DoorConfig:
    """What all doors of a consumer share."""

    certificate_file: Path | None = config_key(
        "the certificate of the server, and its chain, for `listen+https://`",
        problem_of_certificate,
        None,
    )
    key_file: Path | None = config_key(
        "its private key, mode 0600; may be part of `certificate_file`", problem_of_secret, None
    )
    insecure: bool = config_key(
        "permit `listen+http://`, without TLS, beyond this machine", default=False
    )
    answer_timeout_s: float = config_key(
        "how long a sender waits for its message to be stored; then it gets 504 and repeats it",
        expected(f"1 to {MAX_TIMEOUT_S} s", lambda seconds: 1 <= seconds <= MAX_TIMEOUT_S),
        30.0,
    )
    max_connections: int = config_key(
        "the maximum number of connections; further ones get 503", _POSITIVE, 2500
    )
    requests_per_minute: int = config_key(
        "the maximum number of requests of one client, 0 for no limit; beyond it they get 429",
        expected("a number of requests, or 0 for no limit", lambda number: number >= 0),
        0,
    )

    @property
    def tls_files(self) -> TlsFiles:
        """The files for connections over TLS."""
        from sam_pipeline.schema.net.tls import TlsFiles  # `import ssl` is slow

        return TlsFiles(certificate_file=self.certificate_file, key_file=self.key_file)
