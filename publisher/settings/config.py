"""The `[publisher]` section of sam.toml, read and checked once.

Only this module of the publisher reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings import secrets
from sam_pipeline.publisher.settings.fields import (
    DROP_OLDEST,
    OF_GROUP,
    OF_OWNER,
    ORDERS,
    REFUSE,
    ConfigFields,
)
from sam_pipeline.publisher.settings.job_scratch import scratch_of
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import CLASS, DESTINATION, Message, default_destination
from sam_pipeline.schema.secret_file import (
    problem_of_certificate,
    problem_of_path,
    problem_of_secret,
)
from sam_pipeline.schema.settings.files import find_file, no_file_found, state_dir
from sam_pipeline.schema.settings.section import Findings, examine, load

if TYPE_CHECKING:
    from sam_pipeline.publisher.settings.broker_config import BrokerTable
    from sam_pipeline.publisher.settings.copy_config import CopyTable
    from sam_pipeline.schema.net.broker_url import Broker
    from sam_pipeline.schema.net.proxy import Proxy
    from sam_pipeline.schema.net.tls import TlsFiles


RECORD_KEYS = {
    "metric": "metricName",
    "status": "metricStatus",
    "host": "hostName",
    "flavour": "serviceFlavour",
    "uri": "serviceURI",
    "site": "siteName",
    "vo": "voName",
    "fqan": "voFqan",
    "summary": "summaryData",
    "details": "detailsData",
    "performance_data": "performanceData",
    "timestamp": "timestamp",
    "gathered_at": "gatheredAt",
}
"""The key of a record that each option of the command line sets."""
RECORD_DEFAULTS = ("host", "flavour", "site", "vo", "fqan", "gathered_at")
"""The options that may have a default in `[publisher.record]`: those that many records share."""

logger = lazy_logger(__name__)

SIGNED_DESTINATION = "a signature covers the destination: remove them, or signing_key_file"

_PROXY_VARIABLES = {
    *("http_proxy", "https_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
}


def _problem_of_url(url: str) -> str | None:
    # Imported here, this saves 2 % of a call without brokers.
    from sam_pipeline.schema.net.broker_url import problem_of_target

    return problem_of_target(url)


def _problem_of_proxy(url: str) -> str | None:
    from sam_pipeline.schema.net.proxy import problem_of_proxy  # slow: dataclasses

    return problem_of_proxy(url)


def _broker_table() -> type[BrokerTable]:
    from sam_pipeline.publisher.settings.broker_config import BrokerTable

    return BrokerTable


def _problems_of_tables(tables: Sequence[BrokerTable | None]) -> str:
    from sam_pipeline.publisher.settings.broker_config import problems_of_tables

    return problems_of_tables(tables)


def _copy_table() -> type[CopyTable]:
    from sam_pipeline.publisher.settings.copy_config import CopyTable

    return CopyTable


def _problems_of_copies(tables: Sequence[CopyTable | None]) -> str:
    from sam_pipeline.publisher.settings.copy_config import problems_of_copies

    return problems_of_copies(tables)


def _above_zero(number: float) -> str | None:
    return None if number > 0 else f"expected more than 0, not {number:g}"


def _problem_of_destination(destination: str) -> str | None:
    from sam_pipeline.schema.messages.destination import problem_of_destination

    return problem_of_destination(destination)


def _problem_of_class(name: str) -> str | None:
    return _problem_of_destination(default_destination(name)) if name.strip() else "is empty"


def _one_of(*choices: str) -> Any:
    return lambda text: None if text in choices else f"expected {' or '.join(choices)}, not {text}"


def _problems_of_record(names: Mapping[str, str]) -> str:
    from sam_pipeline.schema.program.wording import did_you_mean_or_list

    return "\n".join(
        f"unknown key {name} ({did_you_mean_or_list(name, RECORD_DEFAULTS)})"
        for name in names
        if name not in RECORD_DEFAULTS
    )


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

    @staticmethod
    def metadata() -> dict[str, dict[str, Any]]:
        """By field: its key in the file, a check, and its description for the documentation."""
        return {
            "brokers": {
                "check": lambda urls: "\n".join(filter(None, map(_problem_of_url, urls))),
                "what": "URLs, see above",
            },
            "order": {"check": _one_of(*ORDERS), "what": "or `shuffled`, to spread the load"},
            "timeout_s": {"check": _above_zero, "what": "for a call in total"},
            "message_class": {
                "key": "class",
                "check": _problem_of_class,
                "what": "class of the messages",
            },
            "destination": {
                "check": _problem_of_destination,
                "what": "`/topic/NAME` or `/queue/NAME`, instead of `/topic/grid.probe.CLASS`",
            },
            "user": {"what": "login for brokers whose URL has none"},
            "password_file": {
                "check": problem_of_secret,
                "what": "its first line is the password; mode 0600",
            },
            "token_file": {"check": problem_of_secret, "what": "bearer token, mode 0600"},
            "insecure": {"what": "permit logins in plain text at brokers on other machines"},
            "proxy": {"check": _problem_of_proxy, "what": "`http://[USER@]HOST:PORT`, or `none`"},
            "proxy_password_file": {"check": problem_of_secret, "what": "mode 0600"},
            "ca_file": {
                "check": problem_of_path,
                "what": "certificate authorities instead of the system's; a file or a directory",
            },
            "crl_file": {
                "check": problem_of_path,
                "what": "their revocation lists: a PEM file, or a directory with `*.r0`",
            },
            "certificate_file": {"check": problem_of_certificate, "what": "our certificate"},
            "key_file": {
                "check": problem_of_secret,
                "what": "its key, mode 0600; may be in `certificate_file`",
            },
            "signing_key_file": {
                "check": problem_of_secret,
                "what": "signs all messages, mode 0600; the file of the key NAME is `NAME.pem`",
            },
            "spool": {"what": "directory of the spool, instead of one in the state directory"},
            "spool_max_messages": {"check": _above_zero, "what": "limit of the spool"},
            "spool_max_bytes": {"check": _above_zero, "what": "limit of the spool"},
            "spool_when_full": {"check": _one_of(REFUSE, DROP_OLDEST), "what": "or `drop-oldest`"},
            "spool_mode": {
                "check": _one_of(OF_OWNER, OF_GROUP),
                "what": "or `2770`: the accounts of a group share the spool",
            },
            "state": {"what": "state directory, instead of `$STATE_DIRECTORY`"},
            "drain": {"what": "send spooled messages of earlier calls, too"},
            "record": {
                "check": _problems_of_record,
                "what": "values for keys that a metric result lacks: `host`, `flavour`, `site`,"
                " `vo`, `fqan`, `gathered_at`",
            },
            "broker": {
                "tables": _broker_table,
                "check": _problems_of_tables,
                "what": "tables `[[publisher.broker]]`, [see below](#at-one-broker-alone)",
            },
            "copy": {
                "tables": _copy_table,
                "check": _problems_of_copies,
                "what": "tables `[[publisher.copy]]`, [see below](#two-sets-of-brokers)",
            },
            "require_broker": {"key": None},
            "anonymous": {"key": None},
            "option_destination": {"key": None},
            "table": {"key": None},
            "copy_name": {"key": None},
        }

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

    def scratch_of_spool(self) -> str | None:
        """The variable of the batch job's scratch directory that contains the spool, if any."""
        return scratch_of(self.spool, os.environ) if self.spool else None

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
        # That of the environment is the section's, like the proxy, which a copy uses as well.
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
        """The message, with class and destination set if it had none."""
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


def load_config(
    path: str | None, flags: Mapping[str, Any], *, no_spool: bool = False
) -> PublisherConfig:
    """The configuration; by default, state and spool are in the state directory.

    If that is below the scratch directory of a batch job, there is no spool unless one is
    configured: it would be removed with the job. A message that no broker takes is then refused.

    Raises:
        ConfigError: all problems at once.
    """
    config = load(PublisherConfig, "publisher", path, os.environ, **flags)
    config = _with_directories(_with_listed_brokers(config, flags), no_spool)
    problems = [*_unsafe_logins(config), *problems_between_keys(config)]
    if problems:
        raise ConfigError(problems)
    for one in (config, *config.copies):
        one.require_signer()
    return config


def examine_config(path: str | None, flags: Mapping[str, Any]) -> tuple[PublisherConfig, Findings]:
    """The configuration, without bad brokers and with defaults for other bad values; all problems.

    Raises:
        ConfigError: the file does not exist, or is not TOML.
    """
    findings = examine(PublisherConfig, "publisher", path, os.environ, **flags)
    urls = findings.rejected.get("brokers", findings.values.get("brokers", ()))
    good = {name: tuple(filter(None, findings.values.get(name, ()))) for name in ("broker", "copy")}
    good["brokers"] = tuple(url for url in urls if _problem_of_url(url) is None)
    config = PublisherConfig(**{**findings.values, **good})
    return _with_directories(_with_listed_brokers(config, flags)), findings


def _with_listed_brokers(config: PublisherConfig, flags: Mapping[str, Any]) -> PublisherConfig:
    """With the URLs of tables in `brokers`; without copies if an option names the brokers."""
    if flags.get("brokers"):
        return config._replace(copy=())
    if not (config.broker or config.copy):
        return config
    tables = (table._replace(brokers=_listed(table)) for table in config.copy)
    return config._replace(brokers=_listed(config), copy=tuple(tables))


def _listed(tables: PublisherConfig | CopyTable) -> tuple[str, ...]:
    from sam_pipeline.schema.net.broker_url import parse_broker

    known = {str(parse_broker(url)) for url in tables.brokers}
    more = (table.url for table in tables.broker if str(table.broker) not in known)
    return (*tables.brokers, *more)


def _unsafe_logins(config: PublisherConfig) -> Iterator[str]:
    for one in (config, *config.copies):
        if one.user or one.broker or any("@" in url for url in one.brokers):
            from sam_pipeline.schema.net.broker_url import problem_of_login

            for broker in one.broker_list:
                at = one.at(broker)
                problem = problem_of_login(broker._replace(user=None), at.user, one.insecure)
                if problem:
                    yield f"{one.name} {broker}: {problem}"


def problems_between_keys(config: PublisherConfig) -> Iterator[str]:
    """Keys that don't go together: of a table and its section, or of a copy and the section."""
    spools: dict[Path, str] = {}
    for one in (config, *config.copies):
        for table in one.broker:
            if table.destinations and one.signing_key_file:
                yield f"{one.name} broker {table.broker}: destinations: {SIGNED_DESTINATION}"
        if one.spool in spools:
            yield f"{one.name} spool: {one.spool} is the spool of {spools[one.spool]}, too"
        if one.spool:
            spools[one.spool] = one.name


def notify_socket() -> str | None:
    """Where systemd waits for notifications of this process; None if it does not."""
    return os.environ.get("NOTIFY_SOCKET")


def advice_without_brokers(path: str | None) -> str:
    """What to do if no broker is configured, and which configuration file was read."""
    file = find_file(path, os.environ)
    read = f"the configuration file is {file}" if file else no_file_found()
    return f"no broker is configured: use --broker, or `brokers` in [publisher]; {read}"


def _with_directories(config: PublisherConfig, no_spool: bool = False) -> PublisherConfig:
    """The configuration with defaults for the directories of state and spools."""
    state = config.state or state_dir(os.environ)
    spool = config.spool or state / "spool"
    if not (state.is_absolute() and spool.is_absolute()) and not _has_working_directory():
        logger.warning("no spool: %s is relative, and the working directory was removed", spool)
        without = _without_spools(config)
        return without._replace(state=None, require_broker=True)
    if no_spool:
        return _without_spools(config)._replace(state=state)
    main_spool = config.spool or _lasting(spool)
    copies = tuple(
        table._replace(spool=table.spool or _lasting(state / "copies" / table.name / "spool"))
        for table in config.copy
    )
    return config._replace(
        state=state,
        spool=main_spool,
        copy=copies,
        require_broker=config.require_broker or main_spool is None,
    )


def _without_spools(config: PublisherConfig) -> PublisherConfig:
    copies = tuple(table._replace(spool=None) for table in config.copy)
    return config._replace(spool=None, copy=copies)


def _lasting(spool: Path) -> Path | None:
    """The default directory of a spool; None, with a warning, if it is removed with a batch job."""
    variable = scratch_of(spool, os.environ)
    if variable is None:
        return spool
    problem = "no spool: %s is below $%s, which is removed with the job"
    advice = "set `spool` to a permanent directory, or only brokers can take messages"
    logger.warning(f"{problem}; {advice}", spool, variable)
    return None


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except OSError:  # it was removed
        return False
    return True
