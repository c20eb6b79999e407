"""The section `[publisher]` of sam.toml, its tables, and the settings that apply to each broker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.messages.headers import COVERED, SESSION, WRITTEN, is_header_name
from sam_pipeline.schema.messages.message import default_destination
from sam_pipeline.schema.net.broker import (
    AMS,
    DOOR,
    SPOOL,
    STOMP,
    WITHOUT_LOGIN,
    Broker,
    SpoolLimits,
    Target,
    named_brokers,
    problem_of_target,
)
from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.schema.settings.broker import (
    LoginKeys,
    SectionKeys,
    TableKeys,
    TokenKeys,
    target_of,
)
from sam_pipeline.schema.settings.files import find_file, no_file_found, state_dir
from sam_pipeline.schema.settings.key import (
    POSITIVE,
    config_key,
    duration_key,
    each,
    expected,
    joined,
    one_of,
    secret_key,
)
from sam_pipeline.schema.settings.section import load

REFUSE, DROP_OLDEST = "refuse", "drop-oldest"
OF_OWNER, OF_GROUP = "0700", "2770"
GIB = 1024**3

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

SCRATCH = (
    "_CONDOR_SCRATCH_DIR",
    "SLURM_TMPDIR",
    "PBS_JOBDIR",
    "LSF_TMPDIR",
    "EDG_WL_SCRATCH",
    "OSG_WN_TMP",
)
"""Variables that name the scratch directory of a job."""

JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "_CONDOR_JOB_AD", "JOB_ID")
"""Variables that are set in a job, where TMPDIR also belongs to the job."""

PACKAGE_SPOOL = Path("/var/spool/sam")
"""The default spool of accounts that may write there: the package makes it for a group."""

SIGNED_DESTINATION = "a signature covers the destination: remove them, or signing_key_file"

logger = lazy_logger(__name__)


def _problem_of_class(name: str) -> Optional[str]:
    return problem_of_destination(default_destination(name)) if name.strip() else "is empty"


def _problems_of_record(names: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        if name not in RECORD_DEFAULTS:
            yield f"unknown key {name} ({did_you_mean_or_list(name, RECORD_DEFAULTS)})"


def _problems_of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """The problems of headers for SEND: those that we set, and what STOMP can't carry."""
    ours = {*WRITTEN, *SESSION, *map(str.lower, COVERED)}
    for name, value in headers.items():
        if not is_header_name(name) or not value.isprintable():
            yield f"{name!r} is not a header with a printable value"
        elif name.lower() in ours or name.lower().startswith("sam"):
            yield f"{name} is set by sam-publish itself"


def _problems_of_destinations(destinations: Mapping[str, str]) -> Iterator[str]:
    for name, destination in destinations.items():
        if problem := problem_of_destination(destination):
            yield f"{name}: {problem}"


def _problems_of_tables(tables: Sequence[Optional[BrokerTable]]) -> Iterator[str]:
    """The problems of keys that don't go together; a table that is bad by itself is None."""
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
            if getattr(table, name) not in (None, "", {}, "/"):
                yield f"{broker}: {name} has no effect: {reason}"
        if str(broker) in seen:
            yield f"{broker} appears twice"
        seen.add(str(broker))


def _problems_of_copies(copies: Sequence[Optional[CopyTable]]) -> Iterator[str]:
    """The problems of several copies; one that is bad by itself is None."""
    seen = set()
    for copy in filter(None, copies):
        if not (copy.brokers or copy.broker):
            yield f"{copy.name}: brokers is missing"
        if copy.name in seen:
            yield f"{copy.name}: appears twice"
        seen.add(copy.name)


class BrokerTable(TableKeys, TokenKeys):
    """A table `[[publisher.broker]]`, also of a copy."""

    url: str = config_key("the broker, whether in `brokers` or not", problem_of_target)
    headers: dict[str, str] = config_key(
        "added to each SEND, over STOMP", joined(_problems_of_headers), {}
    )
    destinations: dict[str, str] = config_key(
        'by class, `{ CLASS = "/topic/NAME" }`, instead of those of the section',
        joined(_problems_of_destinations),
        {},
    )


class MessageKeys(LoginKeys, TokenKeys):
    """The keys that each copy sets for itself, as the section does."""

    brokers: tuple[str, ...] = config_key("URLs of the brokers", each(problem_of_target), ())
    broker: tuple[BrokerTable, ...] = config_key("", joined(_problems_of_tables), ())
    destination: Optional[str] = config_key(
        "`/topic/NAME` or `/queue/NAME`, instead of `/topic/grid.probe.CLASS`",
        problem_of_destination,
        None,
    )
    signing_key_file: Optional[Path] = secret_key(
        "signs all messages, mode 0600; the file of the key NAME is `NAME.pem`"
    )
    spool: Optional[Path] = config_key(
        "directory of the spool, instead of [the default one](#the-spool)", default=None
    )


class CopyTable(MessageKeys):
    """A table `[[publisher.copy]]`: more brokers, all of which get the same messages.

    None of the section's credentials is used there.
    """

    name: str = config_key(
        "for `--copy`, reports and the directory of its spool",
        expected(
            "letters, digits, - and _",
            lambda name: name.isascii() and name.replace("-", "").replace("_", "").isalnum(),
        ),
    )


class PublisherConfig(MessageKeys, SectionKeys):
    """Where messages go and how long a call may take; without a `spool`, none is spooled."""

    SECTION = "publisher"
    SECRETS = ("password", "token", "proxy_password")

    order: str = config_key(
        "order in which they are tried; `shuffled` spreads the load",
        one_of("listed", "shuffled"),
        "listed",
    )
    timeout_s: float = duration_key("timeout", "time limit of a call", 10.0)
    message_class: str = config_key(
        "class of the messages", _problem_of_class, "metricOutput", key="class"
    )
    spool_max_messages: int = config_key("maximum number of messages", POSITIVE, 100_000)
    spool_max_bytes: int = config_key("maximum size of the messages", POSITIVE, GIB)
    spool_when_full: str = config_key("or `drop-oldest`", one_of(REFUSE, DROP_OLDEST), REFUSE)
    spool_mode: str = config_key(
        "or `2770`: the accounts of a group share the spool", one_of(OF_OWNER, OF_GROUP), OF_OWNER
    )
    state: Optional[Path] = config_key(
        "state directory, instead of `$STATE_DIRECTORY`", None, None, key="state_dir"
    )
    drain: bool = config_key("also send spooled messages of earlier calls", default=True)
    record: dict[str, str] = config_key(
        "values for keys that a metric result lacks: `host`, `flavour`, `site`, `vo`, `fqan`,"
        " `gathered_at`",
        joined(_problems_of_record),
        {},
    )
    copy: tuple[CopyTable, ...] = config_key("", joined(_problems_of_copies), ())
    require_broker: bool = False
    """Fail if a message could only be spooled."""
    option_destination: Optional[str] = None
    """The destination of all messages of this call, whatever the configuration has for them."""
    copy_name: str = ""
    """The `[[publisher.copy]]` to which these settings belong."""

    @property
    def name(self) -> str:
        """Where these settings are from, for messages."""
        return f"[publisher] copy {self.copy_name}" if self.copy_name else "[publisher]"

    @property
    def shares_spool(self) -> bool:
        """Whether the accounts of a group share the spool."""
        return self.spool_mode == OF_GROUP

    @property
    def spool_limits(self) -> SpoolLimits:
        drops_oldest = self.spool_when_full == DROP_OLDEST
        return SpoolLimits(self.spool_max_messages, self.spool_max_bytes, drops_oldest, self.state)

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """The listed brokers, then those of further tables."""
        tables = {str(table.broker): table for table in self.broker}
        brokers = named_brokers((*self.brokers, *(table.url for table in self.broker)))
        return tuple(self.target_of(one, tables.get(name)) for name, one in brokers.items())

    def only_at(self, urls: Sequence[str]) -> PublisherConfig:
        """The settings for these brokers alone; the tables of the others do not apply."""
        names = named_brokers(urls)
        tables = tuple(table for table in self.broker if str(table.broker) in names)
        return self.replace(brokers=tuple(urls), broker=tables)

    def target_of(self, broker: Broker, table: Optional[BrokerTable] = None) -> Target:
        """The broker with the settings that apply to it."""
        destinations = table.destinations.items() if table else ()
        more = {
            "destinations": {name.lower(): destination for name, destination in destinations},
            "limits": self.spool_limits,
        }
        return target_of(broker, self, table, bool(self.copy_name), more)

    @cached_property
    def copies(self) -> tuple[PublisherConfig, ...]:
        """The settings of each copy: those of its table, completed by all but our credentials."""
        return tuple(map(self._of_copy, self.copy))

    def _of_copy(self, table: CopyTable) -> PublisherConfig:
        fallback = ("destination", "ca_file", "crl_file", "signing_key_file")
        return self.replace(
            **{name: getattr(table, name) or getattr(self, name) for name in fallback},
            **{name: getattr(table, name) for name in self.CREDENTIALS},
            brokers=table.brokers,
            broker=table.broker,
            spool=table.spool,
            state=self.state and self.state / "copies" / table.name,
            copy=(),
            copy_name=table.name,
        )

    @property
    def spool_target(self) -> Target:
        """The spool as a broker, which shows how messages would be stored there."""
        return self.target_of(Broker(SPOOL, path=str(self.spool)))

    def destination_of(self, message_class: str) -> str:
        """The destination for messages of this class that have none."""
        return self.option_destination or self.usual_destination(message_class)

    def usual_destination(self, message_class: str) -> str:
        return self.destination or default_destination(message_class)

    def completed(self, record: dict[str, str]) -> dict[str, str]:
        """The record with the configured defaults for keys that it lacks, if it is a result."""
        if not self.record or self.message_class.lower() != "metricoutput":
            return record
        given = {key.lower() for key, value in record.items() if value.strip()}
        if "servicetype" in given:  # an older name of serviceFlavour
            given.add("serviceflavour")
        defaults = {RECORD_KEYS[name]: value for name, value in self.record.items()}
        return {**record, **{k: v for k, v in defaults.items() if k.lower() not in given}}


def load_config(
    path: str | None, flags: Mapping[str, Any], *, no_spool: bool = False
) -> PublisherConfig:
    """The configuration; by default, the spool is that of the package, or in the state directory.

    A default spool below the scratch directory of a batch job would be removed with the job, so
    such a job has none unless one is configured. A message that no broker takes is then refused.

    Raises:
        ConfigError: all problems at once.
    """
    config = load(PublisherConfig, path, **flags)
    config = completed(config, flags, no_spool)
    sets = (config, *config.copies)
    problems = []
    for one in sets:
        for target in one.targets:
            if target.user and (problem := target.problem_of_login()):
                problems.append(f"{one.name} {target}: {problem}")
    if config.broker or config.copy:
        problems += problems_between_keys(config)
    if problems:
        raise ConfigError(problems)
    for key in (one.signing_key_file for one in sets if one.signing_key_file):
        from sam_pipeline.schema.identity.signature import load_signer  # 10 ms

        load_signer(key)
    return config


def problems_between_keys(config: PublisherConfig) -> Iterator[str]:
    """Keys that don't go together: of a table and its section, or of a copy and the section."""
    spools: dict[Path, str] = {}
    for one in (config, *config.copies):
        for table in one.broker:
            if table.destinations and one.signing_key_file:
                yield f"{one.name} broker {table.broker}: destinations: {SIGNED_DESTINATION}"
        if one.spool in spools:
            yield f"{one.name} spool: {one.spool} is also the spool of {spools[one.spool]}"
        if one.spool:
            spools[one.spool] = one.name


def advice_without_brokers(path: str | None) -> str:
    """What to do if no broker is configured, and which configuration file was read."""
    file = find_file(path, os.environ)
    read = f"the configuration file is {file}" if file else no_file_found()
    return f"no broker is configured: use --broker, or `brokers` in [publisher]; {read}"


def scratch_of(path: Path) -> str | None:
    """The variable of a scratch directory that contains (or is) this path, if there is one."""
    in_a_job = any(os.environ.get(name) for name in JOB)
    for name in (*SCRATCH, "TMPDIR") if in_a_job else SCRATCH:
        scratch = os.environ.get(name)
        if not scratch or not os.path.isabs(scratch):
            continue
        directory = os.path.realpath(scratch)
        # PBS names the home directory here, unless jobs have a sandbox.
        if name == "PBS_JOBDIR" and directory == os.path.realpath(os.environ.get("HOME") or "/"):
            continue
        below = os.path.realpath(path)
        if below == directory or below.startswith(directory.rstrip("/") + "/"):
            return name
    return None


def completed(
    config: PublisherConfig, flags: Mapping[str, Any], no_spool: bool = False
) -> PublisherConfig:
    """The configuration with defaults for the directories of state and spools.

    If the option for brokers is given, there are only these; their tables still apply.
    """
    if flags.get("brokers"):
        config = config.only_at(config.brokers).replace(copy=())
    state = config.state or state_dir(os.environ)
    if config.spool is None and os.access(PACKAGE_SPOOL, os.W_OK):
        config = config.replace(spool=PACKAGE_SPOOL, spool_mode=OF_GROUP)
    spool = config.spool or state / "spool"
    if not (state.is_absolute() and spool.is_absolute()):
        try:
            os.getcwd()
        except OSError:
            logger.warning("no spool: %s is relative, and the working directory was removed", spool)
            return _without_spools(config).replace(state=None, require_broker=True)
    if no_spool:
        return _without_spools(config).replace(state=state)
    main_spool = config.spool or _lasting(spool)
    copies = tuple(
        table.replace(spool=table.spool or _lasting(state / "copies" / table.name / "spool"))
        for table in config.copy
    )
    needs_broker = config.require_broker or main_spool is None
    return config.replace(state=state, spool=main_spool, copy=copies, require_broker=needs_broker)


def _without_spools(config: PublisherConfig) -> PublisherConfig:
    copies = tuple(table.replace(spool=None) for table in config.copy)
    return config.replace(spool=None, copy=copies)


def _lasting(spool: Path) -> Path | None:
    """The default directory of a spool; None, with a warning, if it is removed with a batch job."""
    variable = scratch_of(spool)
    if variable is None:
        return spool
    problem = "no spool: %s is below $%s, which is removed with the job"
    advice = "set `spool` to a permanent directory, or only brokers can take messages"
    logger.warning(f"{problem}; {advice}", spool, variable)
    return None
