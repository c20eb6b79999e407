"""The table `[consumer.door]`: the sources `listen+https://` and `listen+http://`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sam_pipeline.schema.net.broker_url import Broker, is_loopback
from sam_pipeline.schema.net.target import TlsFiles
from sam_pipeline.schema.settings.key import (
    POSITIVE,
    Settings,
    certificate_key,
    config_key,
    expected,
    path_key,
    private_key,
    revocation_key,
)

MAX_TIMEOUT_S = 3600
MAX_PROXIES = 9


class DoorConfig(Settings):
    """What all doors of a consumer share."""

    certificate_file: Path | None = certificate_key(
        "the certificate of the server, and its chain, for `listen+https://`"
    )
    key_file: Path | None = private_key()
    client_ca_file: Path | None = path_key(
        "certificate authorities of clients, which are then asked for a certificate"
    )
    crl_file: Path | None = revocation_key()
    proxy_depth: int = config_key(
        "how many X.509 proxies (RFC 3820) may follow the certificate of a user, who is then known"
        " by that certificate; 0 accepts none",
        expected(f"0 to {MAX_PROXIES}", lambda depth: 0 <= depth <= MAX_PROXIES),
        0,
    )
    tokens_file: Path | None = config_key(
        "the tokens of senders, mode 0600: `sam-consume token make NAME` adds one", default=None
    )
    require_identity: bool | None = config_key(
        "senders need a token or a certificate; by default unless the address is of this machine",
        default=None,
    )
    insecure: bool = config_key(
        "permit `listen+http://`, without TLS, beyond this machine", default=False
    )
    answer_timeout_s: float = config_key(
        "how long a sender waits for its message to be stored; then it gets 504 and repeats it",
        expected(f"1 to {MAX_TIMEOUT_S} s", lambda seconds: 1 <= seconds <= MAX_TIMEOUT_S),
        30.0,
    )
    max_connections: int = config_key(
        "the maximum number of connections; further ones get 503", POSITIVE, 2500
    )
    requests_per_minute: int = config_key(
        "the maximum number of requests of one client, 0 for no limit; beyond it they get 429",
        expected("a number of requests, or 0 for no limit", lambda number: number >= 0),
        0,
    )

    @property
    def tls_files(self) -> TlsFiles:
        """The files for connections over TLS."""
        return TlsFiles(self.client_ca_file, self.certificate_file, self.key_file, self.crl_file)

    def admits_anonymous(self, broker: Broker) -> bool:
        """Whether who sends to this door needs neither a token nor a certificate."""
        if self.require_identity is None:
            return is_loopback(broker.host)
        return not self.require_identity

    def problems(self, broker: Broker) -> Iterator[str]:
        """Why a door can't be opened with these settings."""
        if broker.tls and self.certificate_file is None:
            yield f"{broker}: certificate_file is missing in [consumer.door]"
        if not (broker.tls or self.insecure or is_loopback(broker.host)):
            advice = "use listen+https://, or set insecure = true in [consumer.door]"
            yield f"{broker}: messages would arrive in plain text: {advice}"
        by_certificate = broker.tls and self.client_ca_file
        if not (self.admits_anonymous(broker) or self.tokens_file or by_certificate):
            ways = "set tokens_file or client_ca_file" if broker.tls else "set tokens_file"
            advice = f"{ways} in [consumer.door], or require_identity = false"
            yield f"{broker}: nobody could send: {advice}"
