"""Broker URLs: where messages go to and come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional
from urllib.parse import unquote, urlsplit

STOMP = "stomp"
SPOOL = "spool"

DEFAULT_PORT = {STOMP: 61613}


@dataclass(frozen=True)
class Broker:
    """One broker: `host` and `port` of a network broker, or `path` of a directory queue.

    `str()` of it never shows a secret.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    user: Optional[str] = field(default=None, repr=False)

    def __str__(self) -> str:
        if self.scheme == SPOOL:
            return f"{SPOOL}://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_broker(url: str) -> Broker:
    """The broker a URL names.

    Raises:
        ValueError: what is wrong with the URL, without any secret of it.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ValueError(f"broker URL: {error}") from None
    if parts.scheme == SPOOL:
        return _spool(parts.netloc, parts.path)
    if parts.scheme not in DEFAULT_PORT:
        known = ", ".join(f"{scheme}://" for scheme in (*DEFAULT_PORT, SPOOL))
        raise ValueError(
            f"broker URL begins with {parts.scheme or url[:20]!r}, want one of {known}"
        )
    if parts.password is not None:
        raise ValueError(f"broker URL of {parts.hostname}: a password has no place in it")
    if not parts.hostname:
        raise ValueError("broker URL names no host")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"broker URL of {parts.hostname}: nothing may follow the port")
    user = unquote(parts.username) if parts.username else None
    return Broker(parts.scheme, parts.hostname, port or DEFAULT_PORT[parts.scheme], user=user)


def _spool(netloc: str, path: str) -> Broker:
    if netloc:
        raise ValueError(f"broker URL spool://{netloc}…: want three slashes, spool:///path")
    if not path.strip("/"):
        raise ValueError("broker URL spool:///: names no directory")
    return Broker(SPOOL, path=unquote(path))
