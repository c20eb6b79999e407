"""The files of the doors: the certificate of the server, and what identifies senders."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.extras import how_to_install

if TYPE_CHECKING:
    from ssl import SSLContext

    from sam_pipeline.schema.identity.tokens import Tokens


@dataclass(frozen=True)
class Credentials:
    """What all doors of a consumer have read from their files; None if not configured."""

    tls: SSLContext | None = None
    tokens: Tokens | None = None
    asks_for_certificates: bool = False
    proxy_depth: int = 0


def load_credentials(config: ConsumerConfig) -> Credentials:
    """The credentials; nothing is read without a door.

    Raises:
        ConfigError: the problems of all files; or the library of the doors is missing.
    """
    if not config.doors:
        return Credentials()
    if find_spec("aiohttp") is None:
        raise ConfigError(how_to_install("aiohttp"))
    from sam_pipeline.schema.identity.tokens import load_tokens
    from sam_pipeline.schema.net.tls import server_context  # `import ssl` is slow

    door, tls, tokens = config.door, None, None
    problems: list[str] = []
    try:
        if any(broker.tls for broker in config.doors):
            tls = server_context(door.tls_files, accepts_proxies=door.proxy_depth > 0)
    except ConfigError as error:
        problems += error.problems
    try:
        if door.tokens_file:
            tokens = load_tokens(door.tokens_file)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError([f"[consumer.door] {problem}" for problem in problems])
    asks_for_certificates = bool(tls and door.client_ca_file)
    return Credentials(tls, tokens, asks_for_certificates, door.proxy_depth)
