"""The keys of the section `[publisher]`: their types, checks and descriptions.

The annotations are evaluated, unlike those of other modules: `typing` would compile each string at
every start, which costs 1 % of publishing a result.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from sam_pipeline.publisher.settings.secrets import CREDENTIALS
from sam_pipeline.schema.messages.message import default_destination
from sam_pipeline.schema.secret_file import problem_of_path, problem_of_secret

if TYPE_CHECKING:
    from sam_pipeline.publisher.settings.broker_config import BrokerTable
    from sam_pipeline.publisher.settings.copy_config import CopyTable
else:  # imported where a file has such tables: 2 % of a call
    BrokerTable = CopyTable = Any

ORDERS = ("listed", "shuffled")
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


def problem_of_url(url: str) -> Optional[str]:
    # Imported here, this saves 2 % of a call without brokers.
    from sam_pipeline.schema.net.broker_url import problem_of_target

    return problem_of_target(url)


def _problem_of_proxy(url: str) -> Optional[str]:
    from sam_pipeline.schema.net.proxy import problem_of_proxy  # slow: dataclasses

    return problem_of_proxy(url)


def _broker_table() -> type[BrokerTable]:
    from sam_pipeline.publisher.settings.broker_config import BrokerTable

    return BrokerTable


def _problems_of_tables(tables: Sequence[Optional[BrokerTable]]) -> str:
    from sam_pipeline.publisher.settings.broker_config import problems_of_tables

    return problems_of_tables(tables)


def _copy_table() -> type[CopyTable]:
    from sam_pipeline.publisher.settings.copy_config import CopyTable

    return CopyTable


def _problems_of_copies(tables: Sequence[Optional[CopyTable]]) -> str:
    from sam_pipeline.publisher.settings.copy_config import problems_of_copies

    return problems_of_copies(tables)


def _above_zero(number: float) -> Optional[str]:
    return None if number > 0 else f"expected more than 0, not {number:g}"


def _problem_of_destination(destination: str) -> Optional[str]:
    from sam_pipeline.schema.messages.destination import problem_of_destination

    return problem_of_destination(destination)


def _problem_of_class(name: str) -> Optional[str]:
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


class ConfigFields(NamedTuple):
    """The keys of the section, and what options and tables add to them."""

    brokers: tuple[str, ...] = ()
    """The URLs of all brokers; tables in `broker` describe some of them."""
    order: str = "listed"
    timeout_s: float = 10.0
    message_class: str = "metricOutput"
    destination: Optional[str] = None
    user: Optional[str] = None
    password_file: Optional[Path] = None
    token_file: Optional[Path] = None
    insecure: bool = False
    proxy: Optional[str] = None
    proxy_password_file: Optional[Path] = None
    ca_file: Optional[Path] = None
    crl_file: Optional[Path] = None
    certificate_file: Optional[Path] = None
    key_file: Optional[Path] = None
    signing_key_file: Optional[Path] = None
    spool: Optional[Path] = None
    spool_max_messages: int = 100_000
    spool_max_bytes: int = GIB
    spool_when_full: str = REFUSE
    spool_mode: str = OF_OWNER
    state: Optional[Path] = None
    """Directory for the memory of brokers and the size of the spool; None for no memory."""
    drain: bool = True
    record: dict[str, str] = {}  # noqa: RUF012 - nothing changes it
    """Values for the keys that a record of metricOutput lacks, by option of the command line."""
    broker: tuple[BrokerTable, ...] = ()
    copy: tuple[CopyTable, ...] = ()
    require_broker: bool = False
    """Fail if a message could only be spooled; an option, not a key of the file."""
    anonymous: bool = False
    """Log in nowhere, to learn whether anybody may publish; neither an option nor a key."""
    option_destination: Optional[str] = None
    """The destination of all messages of this call, whatever the configuration has for them."""
    table: Optional[BrokerTable] = None
    """That of the broker `at` which these settings apply, if it has one."""
    copy_name: str = ""
    """That of the `[[publisher.copy]]` whose settings these are; neither an option nor a key."""

    @staticmethod
    def metadata() -> dict[str, dict[str, Any]]:
        """By field: its key in the file, a check, and its description for the documentation."""
        return {
            **CREDENTIALS,
            "brokers": {
                "check": lambda urls: "\n".join(filter(None, map(problem_of_url, urls))),
                "what": "URLs of the brokers",
            },
            "order": {
                "check": _one_of(*ORDERS),
                "what": "order in which they are tried; `shuffled` spreads the load",
            },
            "timeout_s": {"check": _above_zero, "what": "time limit of a call in seconds"},
            "message_class": {
                "key": "class",
                "check": _problem_of_class,
                "what": "class of the messages",
            },
            "destination": {
                "check": _problem_of_destination,
                "what": "`/topic/NAME` or `/queue/NAME`, instead of `/topic/grid.probe.CLASS`",
            },
            "insecure": {"what": "permit logins in plain text at brokers on other machines"},
            "proxy": {"check": _problem_of_proxy, "what": "`http://[USER@]HOST:PORT`, or `none`"},
            "proxy_password_file": {
                "check": problem_of_secret,
                "what": "the first line is the password for the proxy; mode 0600",
            },
            "ca_file": {
                "check": problem_of_path,
                "what": "certificate authorities instead of the system's; a file or a directory",
            },
            "crl_file": {
                "check": problem_of_path,
                "what": "their revocation lists: a PEM file, or a directory with `*.r0`",
            },
            "signing_key_file": {
                "check": problem_of_secret,
                "what": "signs all messages, mode 0600; the file of the key NAME is `NAME.pem`",
            },
            "spool": {"what": "directory of the spool, instead of one in the state directory"},
            "spool_max_messages": {"check": _above_zero, "what": "maximum number of messages"},
            "spool_max_bytes": {"check": _above_zero, "what": "maximum size of the messages"},
            "spool_when_full": {"check": _one_of(REFUSE, DROP_OLDEST), "what": "or `drop-oldest`"},
            "spool_mode": {
                "check": _one_of(OF_OWNER, OF_GROUP),
                "what": "or `2770`: the accounts of a group share the spool",
            },
            "state": {"what": "state directory, instead of `$STATE_DIRECTORY`"},
            "drain": {"what": "also send spooled messages of earlier calls"},
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
