"""The tables `[[publisher.broker]]`: brokers, and what applies at one of them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from sam_pipeline.publisher.settings.secrets import CREDENTIALS
from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.net.broker_url import (
    AMS,
    DOOR,
    STOMP,
    WITHOUT_LOGIN,
    Broker,
    parse_broker,
    problem_of_target,
)
from sam_pipeline.schema.net.proxy import problem_of_proxy
from sam_pipeline.schema.secret_file import problem_of_path, problem_of_secret

TRUST = {
    key: {"check": problem_of_path, "what": "instead of the section's"}
    for key in ("ca_file", "crl_file")
}
"""The keys of a table for the authorities that we trust there."""


def problem_of_vhost(vhost: str) -> str | None:
    return None if vhost.strip() and vhost.isprintable() else "expected the name of a virtual host"


def problems_of_headers(headers: Mapping[str, str]) -> str:
    """The problems of headers for SEND: those that we set, and what STOMP can't carry."""
    from sam_pipeline.schema.identity.signature import COVERED
    from sam_pipeline.schema.net.stomp.headers import OURS, SESSION, is_header_name

    ours = {*OURS, *SESSION, *map(str.lower, COVERED)}
    problems = []
    for name, value in headers.items():
        if not is_header_name(name) or not value.isprintable():
            problems.append(f"{name!r} is not a header with a printable value")
        elif name.lower() in ours or name.lower().startswith("sam"):
            problems.append(f"{name} is set by sam-publish itself")
    return "\n".join(problems)


def problems_of_destinations(destinations: Mapping[str, str]) -> str:
    problems = ((name, problem_of_destination(text)) for name, text in destinations.items())
    return "\n".join(f"{name}: {problem}" for name, problem in problems if problem)


class BrokerTable(NamedTuple):
    """A broker by its URL, and what applies there; what it lacks is the section's."""

    url: str
    user: Optional[str] = None
    """Empty for nobody: then this broker gets no credential at all."""
    password_file: Optional[Path] = None
    token_file: Optional[Path] = None
    certificate_file: Optional[Path] = None
    key_file: Optional[Path] = None
    ca_file: Optional[Path] = None
    crl_file: Optional[Path] = None
    vhost: Optional[str] = None
    proxy: Optional[str] = None
    proxy_password_file: Optional[Path] = None
    headers: dict[str, str] = {}  # noqa: RUF012 - nothing changes it
    destinations: dict[str, str] = {}  # noqa: RUF012

    @staticmethod
    def metadata() -> dict[str, dict[str, Any]]:
        """By field: a check, and its description for the documentation."""
        return {
            **CREDENTIALS,
            **TRUST,
            "url": {"check": problem_of_target, "what": "the broker, whether in `brokers` or not"},
            "user": {"what": 'login, unless the URL has one; `""` for a broker without logins'},
            "vhost": {
                "check": problem_of_vhost,
                "what": "virtual host, over STOMP; the URL of `rabbitmq-api` has it",
            },
            "proxy": {
                "check": problem_of_proxy,
                "what": "instead of the section's; `none` for a direct connection",
            },
            "proxy_password_file": {
                "check": problem_of_secret,
                "what": "the password for this `proxy`, mode 0600",
            },
            "headers": {
                "check": problems_of_headers,
                "what": "added to each SEND, over STOMP",
            },
            "destinations": {
                "check": problems_of_destinations,
                "what": 'by class, `{ CLASS = "/topic/NAME" }`, instead of those of the section',
            },
        }

    @property
    def broker(self) -> Broker:
        return parse_broker(self.url)

    @property
    def has_credentials(self) -> bool:
        """Whether the broker knows us by this table alone."""
        return bool(self.broker.user) or any(
            getattr(self, name) is not None for name in CREDENTIALS
        )

    def settings_at(self, broker: Broker) -> dict[str, Any]:
        """The fields of PublisherConfig that are different at this broker."""
        given: dict[str, Any] = {"table": self}
        for name in ("ca_file", "crl_file"):
            if getattr(self, name):
                given[name] = getattr(self, name)
        if self.has_credentials:
            given.update({name: getattr(self, name) for name in CREDENTIALS})
            given["user"] = (broker.user or self.broker.user) if self.user is None else self.user
        if self.proxy:
            given.update(proxy=self.proxy, proxy_password_file=self.proxy_password_file)
        return given


def problems_of_tables(tables: Sequence[Optional[BrokerTable]]) -> str:
    """The problems of keys that don't go together; a table that is bad by itself is None."""
    problems = []
    seen = set()
    for table in filter(None, tables):
        broker = table.broker
        useless = []
        if broker.kind != STOMP:
            useless += [(name, "only STOMP has it") for name in ("vhost", "headers")]
        if broker.kind in WITHOUT_LOGIN:
            useless += [(name, "it knows no logins") for name in ("user", "password_file")]
        elif not (table.user or broker.user):
            useless += [("password_file", "no user is configured")]
        if broker.kind not in (AMS, DOOR):
            useless += [("token_file", "it knows no tokens")]
        if not broker.tls:
            useless += [(name, "it does not use TLS") for name in ("certificate_file", "key_file")]
        elif table.certificate_file is None:
            useless += [("key_file", "no certificate_file is configured")]
        if table.proxy is None:
            useless += [("proxy_password_file", "no proxy is configured")]
        for name, reason in useless:
            if getattr(table, name):
                problems.append(f"{broker}: {name} has no effect: {reason}")
        if str(broker) in seen:
            problems.append(f"{broker} appears twice")
        seen.add(str(broker))
    return "\n".join(problems)
