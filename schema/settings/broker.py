"""The keys of a broker, which sections, copies and tables of single brokers share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from sam_pipeline.schema.net.broker_url import Broker, parse_broker
from sam_pipeline.schema.net.target import Target, TlsFiles
from sam_pipeline.schema.secret_file import Secret
from sam_pipeline.schema.settings.key import (
    Settings,
    certificate_key,
    config_key,
    expected,
    path_key,
    private_key,
    revocation_key,
    secret_key,
)


def problem_of_proxy(key: str) -> Optional[str]:
    from sam_pipeline.schema.net import proxy  # 8 ms, and few sites have one

    return proxy.problem_of_proxy(key)


def secret_of(section: str, name: str, file: Optional[Path] = None) -> Secret:
    """A secret of a section: `SAM_SECTION_NAME`, else the file, else `sam-section-name`."""
    credential = f"sam-{section}-{name}".replace("_", "-")
    return Secret(file, f"SAM_{section}_{name}".upper(), credential)


class LoginKeys(Settings):
    """How brokers know us, and which ones we trust."""

    user: Optional[str] = config_key(
        'login for brokers whose URL has none; `""` for brokers without logins', default=None
    )
    password_file: Optional[Path] = secret_key("its first line is the password; mode 0600")
    certificate_file: Optional[Path] = certificate_key("our certificate, for brokers that want one")
    key_file: Optional[Path] = private_key()
    ca_file: Optional[Path] = path_key(
        "certificate authorities instead of the system's; a file or a directory"
    )
    crl_file: Optional[Path] = revocation_key()

    CREDENTIALS = ("user", "password_file", "token_file", "certificate_file", "key_file")
    """The keys by which a broker knows us. A table with one of them uses none of the section's."""

    @property
    def has_credentials(self) -> bool:
        return any(getattr(self, name, None) is not None for name in self.CREDENTIALS)


class ConnectionKeys(LoginKeys):
    """How brokers are reached."""

    proxy: Optional[str] = config_key(
        "HTTP proxy, `http://[USER@]HOST:PORT`, or `none` for a direct connection",
        problem_of_proxy,
        None,
    )
    proxy_password_file: Optional[Path] = secret_key(
        "its first line is the password for the proxy; mode 0600"
    )


class SectionKeys(ConnectionKeys):
    """The keys of a section, which apply at all of its brokers."""

    insecure: bool = config_key(
        "permit logins in plain text at brokers on other machines", default=False
    )


class TableKeys(ConnectionKeys):
    """A broker by its URL, and what applies there; what it lacks is the section's."""

    vhost: str = config_key(
        "virtual host, over STOMP; the URL of `rabbitmq-api` has it",
        expected("the name of a virtual host", lambda name: name.strip() and name.isprintable()),
        "/",
    )
    url: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012 - nothing changes it

    @property
    def broker(self) -> Broker:
        return parse_broker(self.url)


def target_of(
    broker: Broker,
    section: SectionKeys,
    name: str,
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
    if table and (table.has_credentials or table.broker.user):
        one, only_files = table, True
        user = table.broker.user or (broker.user if table.user is None else table.user)

    def secret(key: str, file: Optional[Path]) -> Secret:
        return Secret(file) if only_files else secret_of(name, key, file)

    way: ConnectionKeys = table if table and table.proxy else section
    is_own = way is table
    proxy_file = way.proxy_password_file
    proxy_password = Secret(proxy_file) if is_own else secret_of(name, "proxy_password", proxy_file)
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
        proxy_section=f"[{name}.broker]" if is_own else name,
        proxy_password=proxy_password,
        insecure=section.insecure,
        vhost=table.vhost if table else "/",
        headers=table.headers if table else {},
        **more,
    )
