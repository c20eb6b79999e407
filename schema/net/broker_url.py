"""Broker URLs: where messages go to and come from.

The annotations are evaluated, unlike those of other modules: `typing` would compile each string at
every start, which costs 1 % of publishing a result.
"""

from typing import NamedTuple, Optional
from urllib.parse import unquote, urlsplit

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


def problem_of_target(url: str) -> Optional[str]:
    """The problem of the URL of a broker to which messages are sent."""
    try:
        broker = parse_broker(url)
    except ValueError as error:
        return str(error)
    if broker.kind == LISTEN:
        return f"{broker}: sam-publish sends to sam+http:// and sam+https://"
    return None


def problem_of_login(broker: Broker, user: Optional[str], insecure: bool) -> Optional[str]:
    """The problem of a login at a broker: others could read the password on its way."""
    user = broker.user or user
    if not user or broker.kind in WITHOUT_LOGIN:
        return None
    return problem_of_secret_to(broker, f"the password of {user}", insecure)


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
