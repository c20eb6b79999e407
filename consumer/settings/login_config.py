"""The tables `[[consumer.login]]`: logins at single brokers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sam_pipeline.consumer.settings.config_key import config_key
from sam_pipeline.schema.net.broker_url import STOMP, Broker, parse_broker
from sam_pipeline.schema.secret_file import problem_of_certificate, problem_of_secret


def _check_broker(url: str) -> str | None:
    try:
        broker = parse_broker(url)
    except ValueError as error:
        return str(error)
    return None if broker.kind == STOMP else "expected stomp://HOST or stomp+ssl://HOST"


@dataclass(frozen=True)
class LoginConfig:
    """The login at one broker, which is read from or sent to; nothing of the common one is used."""

    broker_url: str = config_key(
        "the URL of one of `brokers`, or of `run --to`", _check_broker, key="broker"
    )
    user: str = config_key("the login, unless the URL of the broker has one", default="")
    password_file: Path | None = config_key(
        "the first line is the password; mode 0600", problem_of_secret, None
    )
    certificate_file: Path | None = config_key(
        "the client certificate", problem_of_certificate, None
    )
    key_file: Path | None = config_key(
        "its private key, mode 0600; may be part of `certificate_file`", problem_of_secret, None
    )

    def is_for(self, broker: Broker) -> bool:
        """Whether it is the login at this broker."""
        return str(parse_broker(self.broker_url)) == str(broker)
