"""The keys of a broker, which sections, copies, feeds and tables of single brokers share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from sam_pipeline.schema.net.broker import Broker, Target, TlsFiles, parse_broker, problem_of_proxy
from sam_pipeline.schema.secret_file import Secret
from sam_pipeline.schema.settings.key import (
    Settings,
    certificate_key,
    config_key,
    expected,
    path_key,
    secret_key,
)


def secret_of(section: str, name: str, file: Optional[Path] = None) -> Secret:
    """A secret of a section: `SAM_SECTION_NAME`, else the file, else `sam-section-name`."""
    credential = f"sam-{section}-{name}".replace("_", "-")
    return Secret(file, f"SAM_{section}_{name}".upper(), credential)


class TlsKeys(Settings):
    """Our certificate, and the authorities that we trust."""

    certificate_file: Optional[Path] = certificate_key("our certificate, for servers that want one")
    key_file: Optional[Path] = secret_key(
        "its private key, mode 0600; may be part of `certificate_file`"
    )
    ca_file: Optional[Path] = path_key(
        "certificate authorities instead of the system's; a file or a directory"
    )
    crl_file: Optional[Path] = path_key(
        "their revocation lists: a PEM file, or a directory with `*.r0`"
    )


class ProxyKeys(Settings):
    """The HTTP proxy to a server."""

    proxy: Optional[str] = config_key(
        "HTTP proxy, `http://[USER@]HOST:PORT`, or `none` for a direct connection; by default that"
        " of the environment",
        problem_of_proxy,
        None,
    )
    proxy_password_file: Optional[Path] = secret_key(
        "its first line is the password for the proxy; mode 0600"
    )


class LoginKeys(TlsKeys):
    """Our login at brokers, our certificate, and the authorities that we trust."""

    user: Optional[str] = config_key(
        'login for brokers whose URL has none; `""` for brokers without logins', default=None
    )
    password_file: Optional[Path] = secret_key("its first line is the password; mode 0600")

    CREDENTIALS = ("user", "password_file", "token_file", "certificate_file", "key_file")
    """The keys by which a broker knows us. A table with one of them uses none of the section's."""


class TokenKeys(Settings):
    """How HTTP doors and AMS know a publisher."""

    token_file: Optional[Path] = secret_key(
        "bearer token of publishers for HTTP doors and AMS; mode 0600"
    )


class SectionKeys(LoginKeys, ProxyKeys):
    """The keys of a section, which apply at all of its brokers."""

    insecure: bool = config_key(
        "permit logins in plain text at brokers on other machines", default=False
    )


class HostKeys(Settings):
    """Which part of a server is used."""

    vhost: str = config_key(
        "virtual host of a single broker, over STOMP; the URL of `rabbitmq-api` contains it",
        expected("the name of a virtual host", lambda name: name.strip() and name.isprintable()),
        "/",
    )


class ServerKeys(LoginKeys, ProxyKeys, TokenKeys, HostKeys):
    """All keys about a server, of sections and of tables."""


class TableKeys(LoginKeys, ProxyKeys, HostKeys):
    """A broker by its URL, with its own settings; the section has the others."""

    url: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012 - nothing changes it

    @property
    def broker(self) -> Broker:
        return parse_broker(self.url)


def target_of(
    broker: Broker,
    section: SectionKeys,
    table: Optional[TableKeys] = None,
    only_files: bool = False,
    more: Mapping[str, Any] = {},
) -> Target:
    """A broker of a section with the settings that apply there, and `more` of its own program.

    Secrets of the section also come from variables and systemd credentials, unless the section's
    are `only_files`: the environment is not meant for another owner's broker.
    """
    one: LoginKeys = section
    user = broker.user or section.user
    own = (getattr(table, name, None) is not None for name in LoginKeys.CREDENTIALS)
    if table and (table.broker.user or any(own)):
        one, only_files = table, True
        user = table.broker.user or (broker.user if table.user is None else table.user)

    def secret(key: str, file: Optional[Path], only_file: bool = only_files) -> Secret:
        return Secret(file) if only_file else secret_of(section.SECTION, key, file)

    way: ProxyKeys = table if table and table.proxy else section
    return Target(
        broker,
        user=user or None,
        password=secret("password", one.password_file),
        token=secret("token", getattr(one, "token_file", None)),
        tls_files=TlsFiles(
            (table and table.ca_file) or section.ca_file,
            one.certificate_file,
            one.key_file,
            (table and table.crl_file) or section.crl_file,
        ),
        proxy=way.proxy,
        proxy_section=f"[{section.SECTION}.broker]" if way is table else section.SECTION,
        proxy_password=secret("proxy_password", way.proxy_password_file, way is table),
        insecure=section.insecure,
        vhost=table.vhost if table else "/",
        headers=table.headers if table else {},
        **more,
    )
