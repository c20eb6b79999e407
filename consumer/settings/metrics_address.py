"""Where the daemon serves its metrics, and who may read them: the keys `metrics_…`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from sam_pipeline.schema.net.broker_url import is_loopback

MAX_PORT = 65535


class MetricsAddress(NamedTuple):
    """An address of this machine, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> MetricsAddress:
    """The address of `HOST:PORT` or `[IPv6]:PORT`; raises ValueError."""
    parts = urlsplit(f"//{text}")
    if not parts.hostname or not parts.port or parts.netloc != text or set(text) & {"@", " "}:
        raise ValueError("no address and port")
    return MetricsAddress(parts.hostname, parts.port)


def check_address(text: str) -> str | None:
    """The problem of an address in the configuration."""
    try:
        parse_address(text)
    except ValueError:
        return f"expected ADDRESS:PORT, such as 127.0.0.1:9464, not {text!r}"
    return None


def exposure_problems(
    address: MetricsAddress, certificate: Path | None, token: Path | None
) -> Iterator[str]:
    """Why metrics at this address could be read by others, unless that is permitted."""
    missing = []
    if certificate is None:
        missing.append("metrics_certificate_file (TLS)")
    if token is None:
        missing.append("metrics_token_file")
    if missing and not is_loopback(address.host):
        yield (
            f"metrics_listen: anybody who reaches {address} could read the metrics: set"
            f" {' and '.join(missing)}, or metrics_insecure = true"
        )
