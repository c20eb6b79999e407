"""The `[publisher]` section of sam.toml, as it applies to a message and at a broker.

Only the modules of this folder read the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings import secrets
from sam_pipeline.publisher.settings.fields import OF_GROUP, RECORD_KEYS, ConfigFields
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.claims import without_claims
from sam_pipeline.schema.messages.message import CLASS, DESTINATION, Message, default_destination

if TYPE_CHECKING:
    from sam_pipeline.publisher.settings.copy_config import CopyTable
    from sam_pipeline.schema.net.broker_url import Broker
    from sam_pipeline.schema.net.proxy import Proxy
    from sam_pipeline.schema.net.tls import TlsFiles

_PROXY_VARIABLES = {
    *("http_proxy", "https_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
}


class PublisherConfig(ConfigFields):
    """Where messages go, and within which time; without a `spool` none is stored."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Without proxy, tables and the users of brokers: bad URLs may contain a password."""
        brokers = []
        for url in self.brokers:
            login, at, host_and_path = url.rpartition("@")
            scheme, separator, _ = login.partition("://")
            brokers.append(f"{scheme if separator else ''}://{host_and_path}" if at else url)
        values = {**self._asdict(), "brokers": tuple(brokers)}
        hidden = ("proxy", "broker", "copy", "table")
        shown = (f"{name}={value!r}" for name, value in values.items() if name not in hidden)
        return f"PublisherConfig({', '.join(shown)})"

    @property
    def name(self) -> str:
        """Where these settings are from, for messages."""
        return f"[publisher] copy {self.copy_name}" if self.copy_name else "[publisher]"

    @property
    def shares_spool(self) -> bool:
        """Whether the accounts of a group share the spool."""
        return self.spool_mode == OF_GROUP

    @property
    def broker_list(self) -> list[Broker]:
        from sam_pipeline.schema.net.broker_url import parse_broker

        return [parse_broker(url) for url in self.brokers]

    @property
    def copies(self) -> list[PublisherConfig]:
        """The settings of each copy: those of its table, completed by all but our credentials."""
        return [self._of_copy(table) for table in self.copy]

    def _of_copy(self, table: CopyTable) -> PublisherConfig:
        fallback = ("destination", "ca_file", "crl_file", "signing_key_file")
        given = {name: getattr(table, name) or getattr(self, name) for name in fallback}
        credentials = {name: getattr(table, name) for name in secrets.CREDENTIALS}
        return self._replace(
            **given,
            **credentials,
            brokers=table.brokers,
            broker=table.broker,
            spool=table.spool,
            state=self.state and self.state / "copies" / table.name,
            copy=(),
            copy_name=table.name,
        )

    def at(self, broker: Broker) -> PublisherConfig:
        """These settings as they apply at a broker, with those of its table."""
        given: dict[str, Any] = {"user": broker.user or self.user}
        for table in self.broker:
            if str(table.broker) == str(broker):
                given.update(table.settings_at(broker))
        if self.anonymous:
            given.update(dict.fromkeys(secrets.CREDENTIALS))
        return self._replace(**given)

    @property
    def vhost(self) -> str | None:
        return self.table.vhost if self.table else None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers for each SEND to the broker."""
        return self.table.headers if self.table else {}

    @property
    def destinations(self) -> Mapping[str, str]:
        """The destinations at the broker, by class in lower case."""
        given = self.table.destinations if self.table else {}
        return {name.lower(): destination for name, destination in given.items()}

    @property
    def reads_environment(self) -> bool:
        """Whether secrets may also come from the environment: those there are the section's."""
        return not (self.copy_name or (self.table and self.table.has_credentials))

    @property
    def _environ(self) -> Mapping[str, str]:
        return os.environ if self.reads_environment else {}

    def login(self, broker: Broker) -> tuple[str | None, str | None]:
        """User and password for a broker; (None, None) without a user.

        The password is read at each connect.

        Raises:
            BrokerUnavailable: the password file can't be used now, or the password would be sent
                in plain text.
        """
        at = self.at(broker)
        if not at.user:
            return None, None
        from sam_pipeline.schema.net.broker_url import problem_of_login

        if problem := problem_of_login(broker._replace(user=None), at.user, self.insecure):
            raise BrokerUnavailable(broker, problem)
        try:
            return at.user, secrets.password(at.password_file, at._environ)
        except ConfigError as error:
            raise BrokerUnavailable(broker, str(error)) from error

    def token(self, broker: Broker) -> str | None:
        """The bearer token for a broker, read at each connect.

        Raises:
            BrokerUnavailable: the token file can't be used now.
        """
        at = self.at(broker)
        read = secrets.token if at.reads_environment else secrets.configured_token
        try:
            return read(at.token_file, at._environ)
        except ConfigError as error:
            raise BrokerUnavailable(broker, str(error)) from error

    def door_token(self, broker: Broker) -> str | None:
        """The token for an HTTP door, if one is configured; those of other services stay secret.

        Raises:
            BrokerUnavailable: the token file can't be used now, or the token would be sent in plain
                text.
        """
        if self.anonymous:
            return None
        from sam_pipeline.schema.net.broker_url import problem_of_secret_to

        at = self.at(broker)
        try:
            token = secrets.configured_token(at.token_file, at._environ)
        except ConfigError as error:
            raise BrokerUnavailable(broker, str(error)) from error
        if token and (problem := problem_of_secret_to(broker, "the token", self.insecure)):
            raise BrokerUnavailable(broker, problem)
        return token

    def credentials(self, broker: Broker) -> str:
        """What this broker sees of us and how we trust it: login, token, proxy and TLS files.

        It is secret: only to be compared. Of a file for TLS it has the state, not the contents.
        """
        at = self.at(broker)
        facts: list[object] = [self.insecure, at.vhost]
        for read in (self.login, self.token, self.proxy_for):
            try:
                found = read(broker)
            except BrokerUnavailable as problem:
                found = str(problem)
            facts.append(found if found is None or isinstance(found, (str, tuple)) else vars(found))
        for path in (at.ca_file, at.certificate_file, at.key_file, at.crl_file):
            state = None
            with suppress(OSError):
                status = os.stat(path) if path else None
                state = status and (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            facts.append((path, state))
        return repr(facts)

    def has_secrets(self) -> dict[str, bool]:
        """Which secrets are set; a secret in a file that can't be used counts as unset."""
        readers: Mapping[str, Callable[[], object]] = {
            "password": lambda: secrets.password(self.password_file, os.environ),
            "token": lambda: secrets.token(self.token_file, os.environ),
            "proxy password": lambda: secrets.proxy_password(self.proxy_password_file, os.environ),
        }
        is_set = dict.fromkeys(readers, False)
        for name, read in readers.items():
            with suppress(ConfigError):
                is_set[name] = bool(read())
        return is_set

    def tls_files(self, broker: Broker) -> TlsFiles:
        from sam_pipeline.schema.net.tls import TlsFiles  # `import ssl` is slow

        at = self.at(broker)
        return TlsFiles(at.ca_file, at.certificate_file, at.key_file, at.crl_file)

    def proxy_for(self, broker: Broker) -> Proxy | None:
        """The proxy for a broker: that of the keys `proxy`, or else of the environment.

        Raises:
            BrokerUnavailable: the proxy can't be used.
        """
        at = self.at(broker)
        if not broker.host or not (at.proxy or _PROXY_VARIABLES & os.environ.keys()):
            return None
        from sam_pipeline.schema.net import proxy

        is_own = at.table is not None and at.table.proxy is not None
        # The token of the environment is the section's, like the proxy, which a copy also uses.
        environ = {} if is_own else os.environ
        try:
            return proxy.chosen(
                broker,
                at.proxy,
                "publisher.broker" if is_own else "publisher",
                lambda: secrets.proxy_password(at.proxy_password_file, environ),
                os.environ,
            )
        except (ValueError, ConfigError) as error:
            raise BrokerUnavailable(broker, str(error)) from error

    def completed(self, record: dict[str, str]) -> dict[str, str]:
        """The record with the configured defaults for keys that it lacks, if it is a result."""
        if not self.record or self.message_class.lower() != "metricoutput":
            return record
        given = {key.lower() for key, value in record.items() if value.strip()}
        if "servicetype" in given:  # an older name of serviceFlavour
            given.add("serviceflavour")
        defaults = {RECORD_KEYS[name]: value for name, value in self.record.items()}
        return {**record, **{k: v for k, v in defaults.items() if k.lower() not in given}}

    def destination_of(self, message_class: str) -> str:
        """The destination for messages of this class that have none."""
        return self.option_destination or self._usual_destination(message_class)

    def _usual_destination(self, message_class: str) -> str:
        return self.destination or default_destination(message_class)

    def addressed(self, message: Message) -> Message:
        """The message with class and destination, and without headers that only relays may set."""
        message = without_claims(message)
        if message.headers.get(DESTINATION) and message.headers.get(CLASS):
            return message
        message = message.with_default_class(self.message_class)
        if message.headers.get(DESTINATION):
            return message
        destination = self.destination_of(message.message_class or "")
        return Message({**message.headers, DESTINATION: destination}, message.body)

    def addressed_to(self, broker: Broker, messages: Sequence[Message]) -> Sequence[Message]:
        """Addressed messages as this broker gets them.

        One that goes where its class goes elsewhere, goes where its class goes here; unless it has
        a signature of another publisher, which covers the destination.
        """
        by_class = self.at(broker).destinations if self.broker else None
        if not by_class:
            return messages
        from sam_pipeline.schema.identity.signature import SIGNATURE

        def here(message: Message) -> Message:
            message_class = message.message_class or ""
            is_usual = message.headers[DESTINATION] == self._usual_destination(message_class)
            destination = by_class.get(message_class.lower())
            if not (destination and is_usual) or message.headers.get(SIGNATURE):
                return message
            return Message({**message.headers, DESTINATION: destination}, message.body)

        return [here(message) for message in messages]

    def destination_at(self, broker: Broker, message_class: str) -> str:
        """The destination at a broker, for messages of this class that have none."""
        here = {} if self.option_destination else self.at(broker).destinations
        return here.get(message_class.lower()) or self.destination_of(message_class)

    def outgoing(self, message: Message) -> Message:
        """The message as brokers and spool get it: addressed, and signed if there is a key.

        Raises:
            ConfigError: the key can't be used.
        """
        message = self.addressed(message)
        if self.signing_key_file is None:
            return message
        from sam_pipeline.publisher.settings.signing import signed

        return signed(message, self.signing_key_file)

    @staticmethod
    def origin(command: str = "", script: str = "") -> dict[str, str]:
        """The headers that say where a message of ours was made: by a command, or by a script."""
        from sam_pipeline.publisher.settings.origin import command_origin, script_origin

        if command:
            return command_origin(command, os.environ)
        return script_origin(script, os.environ)

    def require_signer(self) -> None:
        """Raises ConfigError if a key is configured that can't be used."""
        if self.signing_key_file is not None:
            from sam_pipeline.publisher.settings.signing import signer_of

            signer_of(self.signing_key_file)
