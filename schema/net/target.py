"""A broker as a program reaches it: its URL, who we are there, whom we trust, and on which way.

The annotations are evaluated, unlike those of other modules: `typing` would compile each string at
every start, which costs 1 % of publishing a result.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import LISTEN, Broker, problem_of_login
from sam_pipeline.schema.net.proxy import Proxy, chosen
from sam_pipeline.schema.secret_file import Secret

_PROXY_VARIABLES = {
    *("http_proxy", "https_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
}


class TlsFiles(NamedTuple):
    """Trusted CAs and our certificate; without a `key_file`, its file contains the key as well.

    With a `crl_file`, every authority on the way to a broker's certificate must have a list there.
    """

    ca_file: Optional[Path] = None
    certificate_file: Optional[Path] = None
    key_file: Optional[Path] = None
    crl_file: Optional[Path] = None


class SpoolLimits(NamedTuple):
    """The limits on a spool to which a publisher writes, and the directory of its state."""

    max_messages: int = 100_000
    max_bytes: int = 1024**3
    drops_oldest: bool = False
    state: Optional[Path] = None


class Target(NamedTuple):
    """One broker with everything that applies there; `str()` has neither login nor secrets."""

    broker: Broker
    ip: str = ""
    """The address behind its name; empty for a spool, and for a proxy, which resolves the name."""
    user: Optional[str] = None
    password: Secret = Secret()
    token: Secret = Secret()
    tls_files: TlsFiles = TlsFiles()
    proxy: Optional[str] = None
    """The key `proxy`: the URL of an HTTP proxy, or `none`; without it the environment decides."""
    proxy_section: str = ""
    """The section or table of that key, for messages."""
    proxy_password: Secret = Secret()
    insecure: bool = False
    """Whether a login may be sent in plain text."""
    vhost: str = "/"
    headers: Mapping[str, str] = {}
    """Further headers of each SEND or SUBSCRIBE."""
    destinations: Mapping[str, str] = {}
    """The destination of each class, in lower case, that has another one at this broker."""
    limits: SpoolLimits = SpoolLimits()

    def __str__(self) -> str:
        named = self.ip in ("", self.broker.host)
        return str(self.broker) if named else f"{self.broker} ({self.ip})"

    def problem_of_login(self) -> Optional[str]:
        """Why the login can't be used: others could read the password on its way."""
        return problem_of_login(self.broker._replace(user=None), self.user, self.insecure)

    def login(self) -> tuple[Optional[str], Optional[str]]:
        """User and password, read at each connect; (None, None) without a user.

        Raises:
            ConfigError: the password can't be read, or would be sent in plain text.
        """
        if not self.user:
            return None, None
        if problem := self.problem_of_login():
            raise ConfigError([problem])
        return self.user, self.password.read()

    def has_proxy(self) -> bool:
        """Whether `find_proxy` finds one; reads no password. Raises ConfigError as it does."""
        return self._replace(proxy_password=Secret()).find_proxy() is not None

    def find_proxy(self) -> Optional[Proxy]:
        """The HTTP proxy to the broker, with its password; None for a direct connection.

        Raises:
            ConfigError: the proxy can't be used, or its password can't be read.
        """
        if not self.broker.host or self.broker.kind == LISTEN:
            return None
        if not (self.proxy or _PROXY_VARIABLES & os.environ.keys()):
            return None
        read = self.proxy_password.read
        try:
            return chosen(self.broker, self.proxy, self.proxy_section, read, os.environ)
        except ValueError as error:
            raise ConfigError([str(error)]) from None
