"""The HTTP proxy for a broker.

The key `proxy` overrides everything, including `no_proxy`; "none" means no proxy. Otherwise the
environment decides, as for curl: each variable in lower case first, and one that is set but empty
means no proxy. HTTP_PROXY is ignored in a CGI program, where a client's header `Proxy:` sets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Callable, NamedTuple, Optional
from urllib.parse import unquote, urlsplit

from sam_pipeline.schema.net.broker_url import STOMP, Broker
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.schema.secret_file import basic_login

NONE = "none"
DEFAULT_PORT = 80
MAX_QUOTED = 120

# By protocol: whether it is STOMP, and whether it is over TLS. STOMP has no variable of its own; it
# always goes through CONNECT, but many sites set http_proxy only.
VARIABLES = {
    (True, False): ("http_proxy", "all_proxy"),
    (True, True): ("https_proxy", "http_proxy", "all_proxy"),
    (False, False): ("http_proxy", "all_proxy"),
    (False, True): ("https_proxy", "all_proxy"),
}


class Proxy(NamedTuple):
    """An HTTP proxy; `source` names the variable or key. `str()` and `repr()` have no password."""

    host: str
    port: int
    source: str
    user: Optional[str] = None
    password: Optional[str] = None

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"proxy http://{host}:{self.port} ({self.source})"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request to the proxy itself."""
        if self.user is None:
            return {}
        return {"Proxy-Authorization": basic_login(self.user, self.password)}

    def refusal(self, status: int, reason: str, schemes: str = "") -> str:
        """The message for an error of the proxy itself; `schemes` is its Proxy-Authenticate."""
        answer = f"{self} answered {status} {one_line(reason, MAX_QUOTED)}".rstrip()
        if status not in (401, 407):  # tinyproxy answers 401 to a wrong login
            return f'{answer} (use no_proxy, or proxy = "none", to bypass it)'
        if schemes and "basic" not in schemes.lower():
            scheme = one_line(schemes.split()[0], MAX_QUOTED)
            return f"{answer}: it requires {scheme} authentication, but only Basic is supported"
        if self.user is not None:
            return f"{answer}: it rejected the login of {one_line(self.user, MAX_QUOTED)}"
        return (
            f"{answer}: it requires a login: "
            "http://USER:PASSWORD@… in the variable, or the keys proxy and proxy_password_file"
        )


def chosen(
    broker: Broker,
    key: Optional[str],
    section: str,
    password: Callable[[], Optional[str]],
    environ: Mapping[str, str],
) -> Optional[Proxy]:
    """The proxy for a broker: that of the key `proxy` in a section, or else of the environment.

    `password` reads the password for the proxy of the key.

    Raises:
        ValueError: the proxy can't be used; the message contains no secret.
        ConfigError: the password can't be read.
    """
    if key == NONE:
        return None
    if key:
        proxy = parse_proxy(key, f"[{section}] proxy")
        return proxy if proxy.user is None else proxy._replace(password=password())
    source = _first_set(VARIABLES[broker.kind == STOMP, broker.tls], environ)
    if not source or not environ[source]:
        return None
    exceptions = _first_set(("no_proxy",), environ)
    if exceptions and is_exempt(broker.host, broker.port, environ[exceptions]):
        return None
    return parse_proxy(environ[source], source)


def problem_of_proxy(key: str) -> Optional[str]:
    """The problem of the key, such as a password, which other users could read in the file."""
    if key == NONE:
        return None
    try:
        proxy = parse_proxy(key, "")
    except ValueError as error:
        return str(error).lstrip(": ")
    return "must not contain a password: use proxy_password_file" if proxy.password else None


def parse_proxy(url: str, source: str) -> Proxy:
    """The proxy of a URL; `http://` may be left out, and so may the port (80).

    Raises:
        ValueError: it can't be used; the message contains no secret.
    """
    try:
        parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
        port = parts.port or DEFAULT_PORT
    except ValueError:  # its message may quote a part of a password
        raise ValueError(f"{source}: is not a URL (expected http://[USER@]HOST:PORT)") from None
    if parts.scheme != "http":
        raise ValueError(f"{source}: unsupported scheme {parts.scheme}:// (expected http://)")
    # Perhaps the URL was cut at a / ? # in its password.
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(
            f"{source}: nothing may follow the port; write / ? # in a login as %2F %3F %23"
        )
    if not parts.hostname:
        raise ValueError(f"{source}: has no host (expected http://[USER@]HOST:PORT)")
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    return Proxy(parts.hostname, port, source, user, password)


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Whether a name, domain, address or network in `no_proxy` matches the host."""
    host = host.lower().rstrip(".")
    is_address = ":" in host or host.replace(".", "").isdigit()
    for item in no_proxy.lower().replace(",", " ").split():
        if item == "*":
            return True
        name, colon, item_port = item.rpartition(":")
        if not (colon and item_port.isdecimal() and (":" not in name or name.endswith("]"))):
            name = item
        elif int(item_port) != port:
            continue
        name = name.replace("[", "").replace("]", "")
        domain = name.lstrip("*").strip(".")
        if is_address:
            with suppress(ValueError):  # a name, which never matches an address
                if ip_address(host) in ip_network(name, strict=False):
                    return True
        elif domain and (host == domain or host.endswith(f".{domain}")):
            return True
    return False


def _first_set(names: Sequence[str], environ: Mapping[str, str]) -> Optional[str]:
    """The name of the first variable that is set, each in lower case, then in upper case."""
    for name in names:
        for spelled in (name, name.upper()):
            if spelled in environ and not (spelled == "HTTP_PROXY" and "REQUEST_METHOD" in environ):
                return spelled
    return None
