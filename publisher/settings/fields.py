"""The fields of the configuration.

Their annotations are no strings, unlike those of other modules: `typing` would compile each one at
every start, which made publishing a result 1.5 % slower.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

if TYPE_CHECKING:
    from sam_pipeline.publisher.settings.broker_config import BrokerTable
    from sam_pipeline.publisher.settings.copy_config import CopyTable
else:  # imported where a file has such tables: 2 % of a call
    BrokerTable = CopyTable = Any

ORDERS = ("listed", "shuffled")
REFUSE, DROP_OLDEST = "refuse", "drop-oldest"
OF_OWNER, OF_GROUP = "0700", "2770"
GIB = 1024**3


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
