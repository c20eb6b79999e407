"""A broker as a program reaches it: its URL, our login, the authorities we trust, and the proxy.

The key `proxy` overrides everything, including `no_proxy`; "none" means no proxy. Otherwise the
environment decides, as for curl: each variable in lower case first, and one that is set but empty
means no proxy. HTTP_PROXY is ignored in a CGI program, where a client's header `Proxy:` sets it.
"""

# The annotations are evaluated, unlike those of other modules: as strings, `typing` would compile
# each of them, which takes 0.6 % of a call of sam-publish.

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Callable, NamedTuple, Optional
from urllib.parse import unquote, urlsplit

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.schema.secret_file import Secret, basic_login

STOMP = "stomp"
ACTIVEMQ_REST = "activemq-rest"
RABBITMQ_API = "rabbitmq-api"
AMS = "ams"
DOOR = "sam"
"""The HTTP door of a consumer, to which a publisher sends."""
LISTEN = "listen"
"""The same door, as the consumer opens it."""
SPOOL = "spool"
FORM = "expected SCHEME://[USER@]HOST:PORT"
UMASKS = {"": False, "umask=077": False, "umask=007": True}
"""What may follow the `?` of a spool, and whether a group shares it."""


WITHOUT_LOGIN = frozenset({AMS, DOOR, LISTEN, SPOOL})
"""The kinds that know a sender by its token, its certificate or its account, never by a login."""


class Scheme(NamedTuple):
    """The meaning of a URL scheme; `path` is the form of its path, "" if it has none."""

    kind: str
    tls: bool
    port: int = 0
    path: str = ""


SCHEMES = {
    "stomp": Scheme(STOMP, False, 61613),
    "stomp+ssl": Scheme(STOMP, True, 61614),
    "activemq-rest+http": Scheme(ACTIVEMQ_REST, False, 8161, "/api/message"),
    "activemq-rest+https": Scheme(ACTIVEMQ_REST, True, 8162, "/api/message"),
    "rabbitmq-api+http": Scheme(RABBITMQ_API, False, 15672, "/VHOST/EXCHANGE"),
    "rabbitmq-api+https": Scheme(RABBITMQ_API, True, 15671, "/VHOST/EXCHANGE"),
    "ams+https": Scheme(AMS, True, 443, "/v1/projects/PROJECT"),
    "sam+http": Scheme(DOOR, False, 8080),
    "sam+https": Scheme(DOOR, True, 8443),
    "listen+http": Scheme(LISTEN, False, 8080),
    "listen+https": Scheme(LISTEN, True, 8443),
    "spool": Scheme(SPOOL, False, path="/DIRECTORY"),
}


class Broker(NamedTuple):
    """One broker: `host`, `port` and `path` of a network broker, or the `path` of a directory.

    `str()` gives its URL, without the user and the umask.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    user: Optional[str] = None
    shared: bool = False
    """`?umask=007`: a directory that the accounts of a group share."""

    @property
    def kind(self) -> str:
        """Its protocol, whether over TLS or not."""
        return SCHEMES[self.scheme].kind

    @property
    def tls(self) -> bool:
        return SCHEMES[self.scheme].tls

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.kind == SPOOL:
            return f"{SPOOL}://{self.path}"
        return f"{self.scheme}://{self.netloc}{self.path}"


def parse_broker(url: str) -> Broker:
    """The broker that a URL names.

    Raises:
        ValueError: the URL is invalid; the message contains no secret.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        # The message may quote a part of a password, which does not belong in a URL at all.
        message = str(error).partition(" as ")[0]
        if not message.startswith("Port"):
            message = FORM
        raise ValueError(f"broker URL: {message}") from None
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        begin = parts.scheme or ("" if "@" in url else url[:20])
        raise ValueError(f"broker URL begins with {begin!r} (expected one of {known})")
    scheme = SCHEMES[parts.scheme]
    if scheme.kind == SPOOL:
        if parts.netloc:
            first = parts.netloc.rpartition("@")[2]
            raise ValueError(f"broker URL spool://{first}…: expected three slashes, spool:///path")
        if not parts.path.strip("/"):
            raise ValueError("broker URL spool:/// has no directory")
        if parts.query not in UMASKS or parts.fragment:
            problem = "expected nothing after the directory but ?umask=007 or ?umask=077"
            raise ValueError(
                f"broker URL spool://{parts.path}: {problem} (? and # in its name are %3F and %23)"
            )
        return Broker(SPOOL, path=unquote(parts.path), shared=UMASKS[parts.query])
    if parts.password is not None:
        raise ValueError(f"broker URL of {parts.hostname}: must not contain a password")
    if not parts.hostname:
        raise ValueError("broker URL has no host")
    if "@" in parts.path:  # the slash is that of a password, and the host a part of it
        raise ValueError(f"broker URL: @ after the host, {FORM}")
    if parts.query or parts.fragment:
        raise ValueError(f"broker URL of {parts.hostname}: has a query (?) or a fragment (#)")
    path = parts.path.rstrip("/")
    if path and not scheme.path:
        raise ValueError(f"broker URL of {parts.hostname}: nothing may follow the port")
    if scheme.kind == ACTIVEMQ_REST:
        path = path or scheme.path
    elif path.count("/") != scheme.path.count("/"):
        problem = f"expected {scheme.path} after the port, got {path!r}"
        raise ValueError(f"broker URL of {parts.hostname}: {problem}")
    user = unquote(parts.username) if parts.username else None
    if user and scheme.kind in (DOOR, LISTEN):
        problem = "must not contain a user (the sender is known by a token or a certificate)"
        raise ValueError(f"broker URL of {parts.hostname}: {problem}")
    return Broker(parts.scheme, parts.hostname, port or scheme.port, path, user)


def named_brokers(urls: Iterable[str]) -> dict[str, Broker]:
    """The brokers that URLs name, in order, by `str()`; of equal ones the first.

    Raises:
        ValueError: a URL is invalid.
    """
    brokers: dict[str, Broker] = {}
    for broker in map(parse_broker, urls):
        brokers.setdefault(str(broker), broker)
    return brokers


def problem_of_target(url: str) -> Optional[str]:
    """The problem of the URL of a broker to which messages are sent."""
    try:
        broker = parse_broker(url)
    except ValueError as error:
        return str(error)
    if broker.kind == LISTEN:
        return f"{broker}: sam-publish sends to sam+http:// and sam+https://"
    return None


def problem_of_secret_to(broker: Broker, secret: str, insecure: bool) -> Optional[str]:
    """The problem of sending a secret to a network broker: others could read it on its way."""
    if insecure or broker.tls or is_loopback(broker.host):
        return None
    (secured,) = (name for name, scheme in SCHEMES.items() if scheme[:2] == (broker.kind, True))
    return f"{secret} would be sent in plain text: use {secured}://, or set insecure = true"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name alone."""
    host = host.lower()
    in_ipv4 = host.startswith("127.") and host.replace(".", "").isdigit()
    return in_ipv4 or host in ("localhost", "::1")


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
        if not self.user or self.broker.kind in WITHOUT_LOGIN:
            return None
        return problem_of_secret_to(self.broker, f"the password of {self.user}", self.insecure)

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
