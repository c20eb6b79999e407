"""Which HTTP proxy stands before a broker.

The key `proxy` wins over everything, `no_proxy` included; "none" means no proxy. Else the
environment decides, as for curl: of each variable the lower-case spelling first, and one that
is set but empty means no proxy. HTTP_PROXY is not trusted in a CGI program: there a client's
header `Proxy:` sets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Optional
from urllib.parse import unquote, urlsplit

from sam_pipeline.schema.net.broker_url import STOMP, Broker
from sam_pipeline.schema.program.wording import one_line

KEY = "[publisher] proxy"
NONE = "none"
DEFAULT_PORT = 80
MAX_WORDS = 120

# By what the broker speaks: is it STOMP, is it over TLS. STOMP has no variable of its own; it
# always takes a CONNECT, but many sites set http_proxy alone.
VARIABLES = {
    (True, False): ("http_proxy", "all_proxy"),
    (True, True): ("https_proxy", "http_proxy", "all_proxy"),
    (False, False): ("http_proxy", "all_proxy"),
    (False, True): ("https_proxy", "all_proxy"),
}


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy; `source` is the variable or key that named it. `str()` shows no password."""

    host: str
    port: int
    source: str
    user: Optional[str] = field(default=None, repr=False)
    password: Optional[str] = field(default=None, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"proxy http://{host}:{self.port} ({self.source})"

    @property
    def headers(self) -> dict[str, str]:
        """What every request to the proxy itself carries."""
        if self.user is None:
            return {}
        from base64 import b64encode

        login = b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {login}"}

    def refusal(self, status: int, reason: str, wanted: str = "") -> str:
        """Words for an answer of the proxy itself; `wanted` is its header Proxy-Authenticate."""
        said = f"{self} answered {status} {one_line(reason, MAX_WORDS)}".rstrip()
        if status in (401, 407):  # tinyproxy answers 401 to a wrong login
            return f"{said}: {self._about_login(wanted)}"
        return f'{said} (no_proxy, or proxy = "none", go without it)'

    def _about_login(self, wanted: str) -> str:
        if wanted and "basic" not in wanted.lower():
            way = one_line(wanted.split()[0], MAX_WORDS)
            return f"it wants a login by {way}, only Basic is spoken here"
        if self.user is not None:
            return f"it does not accept the login of {one_line(self.user, MAX_WORDS)}"
        return (
            "it wants a login and was given none: "
            "http://USER:PASSWORD@… in the variable, or the keys proxy and proxy_password_file"
        )


def chosen(
    broker: Broker, key: Optional[str], password_file: Optional[Path], environ: Mapping[str, str]
) -> Optional[Proxy]:
    """The proxy to take to a broker.

    Raises:
        ValueError: the one that is named can't be used; no secret is in the words.
        ConfigError: nor can the file of its password.
    """
    if key:
        return None if key == NONE else _by_key(key, password_file)
    source = _first_set(VARIABLES[broker.kind == STOMP, broker.tls], environ)
    if not source or not environ[source]:
        return None
    exceptions = _first_set(("no_proxy",), environ)
    if exceptions and is_exempt(broker.host, broker.port, environ[exceptions]):
        return None
    return parse_proxy(environ[source], source)


def problem_of_proxy(key: str) -> Optional[str]:
    """What is wrong with the key; a password in it would be in a file that others read."""
    if key == NONE:
        return None
    try:
        proxy = parse_proxy(key, "")
    except ValueError as error:
        return str(error).lstrip(": ")
    return "a password has no place in it: proxy_password_file" if proxy.password else None


def parse_proxy(url: str, source: str) -> Proxy:
    """The proxy of a URL; `http://` may be left out, and so may the port (80).

    Raises:
        ValueError: what is wrong with it; no secret is in the words.
    """
    try:
        parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
        port = parts.port or DEFAULT_PORT
    except ValueError:  # its words may hold a part of a password
        raise ValueError(f"{source}: is no URL, want http://[USER@]HOST:PORT") from None
    if parts.scheme != "http":
        raise ValueError(f"{source}: a proxy {parts.scheme}://… can't be used, only http://…")
    if parts.path.strip("/") or parts.query or parts.fragment:  # or a password is cut at its /?#
        raise ValueError(f"{source}: nothing may follow the port; in a login / ? # are %2F %3F %23")
    if not parts.hostname:
        raise ValueError(f"{source}: names no host, want http://[USER@]HOST:PORT")
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    return Proxy(parts.hostname, port, source, user, password)


def _by_key(key: str, password_file: Optional[Path]) -> Proxy:
    proxy = parse_proxy(key, KEY)
    if proxy.user is None or password_file is None:
        return proxy
    from sam_pipeline.schema.net.secret_file import read_secret

    return replace(proxy, password=read_secret(password_file))


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Whether one of the names, domains, addresses and networks of `no_proxy` covers the host."""
    host = host.lower().rstrip(".")
    return any(_covers(item, host, port) for item in no_proxy.lower().replace(",", " ").split())


def _covers(item: str, host: str, port: int) -> bool:
    if item == "*":
        return True
    name, colon, item_port = item.rpartition(":")
    if colon and item_port.isdecimal() and (":" not in name or name.endswith("]")):
        if int(item_port) != port:
            return False
        item = name
    item = item.strip("[]")
    if ":" in host or host.replace(".", "").isdigit():
        return _covers_address(item, host)
    domain = item.lstrip("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _covers_address(item: str, host: str) -> bool:
    from ipaddress import ip_address, ip_network  # slow, and seldom needed

    try:
        return ip_address(host) in ip_network(item, strict=False)
    except ValueError:  # a name, which never covers an address
        return False


def _first_set(names: Sequence[str], environ: Mapping[str, str]) -> Optional[str]:
    """The first of these variables that is set, in lower case or else in upper case."""
    for name in names:
        for spelled in (name, name.upper()):
            if spelled in environ and not (spelled == "HTTP_PROXY" and "REQUEST_METHOD" in environ):
                return spelled
    return None
