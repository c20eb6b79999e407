"""The tables `[[publisher.copy]]`: more brokers, all of which get the same messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from sam_pipeline.publisher.settings.broker_config import TRUST, BrokerTable, problems_of_tables
from sam_pipeline.publisher.settings.secrets import CREDENTIALS
from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.net.broker_url import problem_of_target
from sam_pipeline.schema.secret_file import problem_of_secret


def problem_of_name(name: str) -> str | None:
    if name.replace("-", "").replace("_", "").isalnum() and name.isascii():
        return None
    return f"expected letters, digits, - and _, not {name!r}"


class CopyTable(NamedTuple):
    """A second set of brokers. None of the section's credentials is used there."""

    name: str
    brokers: tuple[str, ...] = ()
    broker: tuple[BrokerTable, ...] = ()
    destination: Optional[str] = None
    user: Optional[str] = None
    password_file: Optional[Path] = None
    token_file: Optional[Path] = None
    certificate_file: Optional[Path] = None
    key_file: Optional[Path] = None
    ca_file: Optional[Path] = None
    crl_file: Optional[Path] = None
    signing_key_file: Optional[Path] = None
    spool: Optional[Path] = None

    @staticmethod
    def metadata() -> dict[str, dict[str, Any]]:
        """By field: a check, and its description for the documentation."""
        return {
            **CREDENTIALS,
            **TRUST,
            "name": {
                "check": problem_of_name,
                "what": "for `--copy`, reports and the directory of its spool",
            },
            "brokers": {
                "check": lambda urls: "\n".join(filter(None, map(problem_of_target, urls))),
                "what": "URLs, as in the section",
            },
            "broker": {
                "check": problems_of_tables,
                "what": "tables `[[publisher.copy.broker]]`, as `[[publisher.broker]]`",
            },
            "destination": {
                "check": problem_of_destination,
                "what": "`/topic/NAME` or `/queue/NAME`, instead of the section's",
            },
            "signing_key_file": {"check": problem_of_secret, "what": "instead of the section's"},
            "spool": {"what": "directory of its spool, instead of one in the state directory"},
        }


def problems_of_copies(copies: Sequence[Optional[CopyTable]]) -> str:
    """The problems of several copies; one that is bad by itself is None."""
    problems = []
    seen = set()
    for copy in filter(None, copies):
        if not (copy.brokers or copy.broker):
            problems.append(f"{copy.name}: brokers is missing")
        if copy.name in seen:
            problems.append(f"{copy.name}: appears twice")
        seen.add(copy.name)
    return "\n".join(problems)
