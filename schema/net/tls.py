"""TLS 1.2 or newer, to a broker or from senders; the host name of a broker is always checked."""

from __future__ import annotations

import select
import ssl
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Callable, Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Broker, TlsFiles
from sam_pipeline.schema.net.certificate import validities
from sam_pipeline.schema.net.channel import NO_ANSWER, NOT_READING, Channel, error_text
from sam_pipeline.schema.secret_file import problem_of_certificate, problem_of_secret

TOO_OLD = "it does not support TLS 1.2 or newer"
NO_TLS = "it does not speak TLS on this port"
NO_TLS_HERE = "it does not speak TLS"
CLOSED = "it closed the connection during the TLS handshake; does it speak TLS on this port?"
NO_COMMON_CIPHER = "no cipher in common, or it refused the handshake without giving a reason"
UNTRUSTED_CA = "its certificate was issued by an untrusted CA"
CERTIFICATE_REQUIRED = "it requires a client certificate (certificate_file)"
KEY_MISMATCH = "the key does not match the certificate"
UNUSABLE = {
    "KEY_VALUES_MISMATCH": KEY_MISMATCH,
    "EE_KEY_TOO_SMALL": "its key is too short for this OpenSSL: use 2048 bits",
    "CA_KEY_TOO_SMALL": "the key of a signer in it is too short for this OpenSSL",
    "CA_MD_TOO_WEAK": "it is signed with SHA-1 or weaker, which this OpenSSL refuses",
    "EE_MD_TOO_WEAK": "it is signed with SHA-1 or weaker, which this OpenSSL refuses",
}
"""Why OpenSSL does not use a certificate, by its reason."""
ENCRYPTED = "its key has a passphrase: store it without one, in a file of mode 0600"
REVOCATION_LIST = "the revocation list (crl_file) of its authority"

# Error codes of OpenSSL, <openssl/x509_vfy.h>.
UNKNOWN_CA = {2, 18, 19, 20, 21}
OUT_OF_USE = {9: "is not valid yet", 10: "has expired", 23: "is revoked"}
ANOTHER_HOST = {62, 64}
NOT_CHECKED = {
    3: "its authority has no revocation list (crl_file)",
    11: f"{REVOCATION_LIST} is not valid yet",
    12: f"{REVOCATION_LIST} has expired",
}

OLD_PROTOCOL = {"PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"}
OTHER_PROTOCOL = {
    "BAD_RECORD_TYPE",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "WRONG_VERSION_NUMBER",
}
# Alerts of a peer that are about our certificate.
ABOUT_US = {
    "ACCESS_DENIED": "access denied",
    "BAD_CERTIFICATE": "bad certificate",
    "CERTIFICATE_EXPIRED": "it has expired",
    "CERTIFICATE_REQUIRED": "certificate required",
    "CERTIFICATE_REVOKED": "it is revoked",
    "CERTIFICATE_UNKNOWN": "it is not acceptable",
    "HANDSHAKE_FAILURE": "handshake failure",
    "UNKNOWN_CA": "its CA is unknown there",
    "UNSUPPORTED_CERTIFICATE": "a certificate of this kind is not supported there",
}


def secure(
    channel: Channel,
    broker: Broker,
    files: TlsFiles,
    context_of: Optional[Callable[[], ssl.SSLContext]] = None,
) -> Channel:
    """The channel under TLS; it is closed if that fails.

    `context_of`: how to get the context of these files, if not simply by reading them.

    Raises:
        OSError: the broker can't be trusted, or refuses us; the message explains it.
        ConfigError: one of our files can't be used.
    """
    secured = channel
    try:
        context = context_of() if context_of else tls_context(files)
        secured = TlsChannel(channel, context, broker.host.rstrip(".") or ".", files)
        secured.shake_hands()
    except BaseException:
        secured.close()
        raise
    return secured


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """The context of a client: the CAs it trusts, their revocation lists and its certificate.

    The files are read at every call.

    Raises:
        ConfigError: a file can't be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks chain and host name
    if files.ca_file is None:
        context.load_default_certs()
    return _with_files(context, files)


def server_context(files: TlsFiles, accepts_proxies: bool = False) -> ssl.SSLContext:
    """The context of a server; with a `ca_file`, it requests certificates of its clients.

    A client may have none, but one that it presents must be valid. X.509 proxies (RFC 3820) may
    follow it if `accepts_proxies`.

    Raises:
        ConfigError: a file can't be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.ca_file is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
    if accepts_proxies:
        context.verify_flags |= ssl.VERIFY_ALLOW_PROXY_CERTS
    return _with_files(context, files)


def _with_files(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    """The context after loading the files; raises ConfigError."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    ca_file, certificate, key, crl_file = files
    try:
        if ca_file is not None:
            if ca_file.is_dir():  # hashed, as IGTF has it
                context.load_verify_locations(capath=ca_file)
            else:
                context.load_verify_locations(cafile=ca_file)
    except OSError as error:
        reason = _problem_of(error, "contains no certificate in PEM format")
        raise ConfigError([f"{ca_file}: {reason}"]) from None
    if crl_file is not None:
        try:
            lists = [crl_file]
            if crl_file.is_dir():
                # A second `capath` would make its authorities trusted; the first one has its lists.
                lists = [] if crl_file == ca_file else sorted(crl_file.glob("*.r[0-9]*"))
            for path in lists:
                context.load_verify_locations(cafile=path)
        except OSError as error:
            reason = _problem_of(error, "contains no revocation list in PEM format")
            raise ConfigError([f"{crl_file}: {reason}"]) from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    if certificate is None:
        return context
    for problem in (problem_of_certificate(certificate), problem_of_secret(key) if key else None):
        if problem:
            raise ConfigError([problem])
    try:
        # Without a callback OpenSSL asks for a passphrase on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        form = "must contain a certificate and its unencrypted key in PEM format"
        reason = _problem_of(error, form)
        with suppress(OSError):
            if "ENCRYPTED" in (key or certificate).read_text(errors="replace"):
                reason = ENCRYPTED
        raise ConfigError([f"{certificate}: {reason}"]) from None
    return context


class TlsChannel(Channel):
    """Reads and writes under TLS. In TLS 1.3, a refusal arrives with the first read only."""

    is_tls = True

    def __init__(
        self, channel: Channel, context: ssl.SSLContext, host: str, files: TlsFiles
    ) -> None:
        try:  # wrap_socket would fail later, and leak a socket
            name = host.encode("idna").decode()
        except UnicodeError as error:
            raise OSError(f"{host} is not a valid host name: {error}") from None
        secured = context.wrap_socket(
            channel.socket,
            server_hostname=name,
            do_handshake_on_connect=False,
            # A peer may close without TLS's close_notify: frames and HTTP answers mark their own
            # end.
            suppress_ragged_eofs=True,
        )
        super().__init__(secured, channel.deadline)
        self._secured = secured
        self._host = host
        self._tls_files = files

    def shake_hands(self) -> None:
        try:
            self._when_ready(select.POLLIN, self._secured.do_handshake)
        except ConnectionError as error:
            raise OSError(CLOSED) from error

    def has_arrived(self) -> bool:
        return self._secured.pending() > 0 or super().has_arrived()

    def _when_ready(self, events: int, call: Callable[..., Any], *arguments: object) -> Any:
        while True:
            try:
                return call(*arguments)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, NO_ANSWER)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, NOT_READING)
            except ssl.SSLError as error:
                raise self._lost(error) from error

    def _at_once(self, call: Callable[..., Any], *arguments: object) -> Any:
        try:
            return call(*arguments)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLError as error:
            raise self._lost(error) from error

    def _lost(self, error: ssl.SSLError) -> OSError:
        if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            # What it sent before may still be read.
            return ConnectionAbortedError("it closed the connection")
        return OSError(self._refusal(error))

    def _refusal(self, error: ssl.SSLError) -> str:
        """Why one side refuses the other."""
        if isinstance(error, ssl.SSLCertVerificationError):
            if error.verify_code in ANOTHER_HOST:
                objection = error.verify_message.rstrip(".").lower()
                return f"its certificate is not for {self._host}: {objection}"
            return _objection_to_certificate(error, "ca_file")
        # An error of OpenSSL, or the peer's alert in any version of TLS.
        reason = error.reason or ""
        reason = reason.partition("_ALERT_")[2] or reason
        if reason == "HANDSHAKE_FAILURE" and self._secured.cipher() is None:
            return NO_COMMON_CIPHER  # certificates were not exchanged yet
        if reason in ABOUT_US:
            ours = self._tls_files.certificate_file
            if ours is None:
                return f"{CERTIFICATE_REQUIRED}: {ABOUT_US[reason]}"
            # It or one of its signers may have expired, which brokers seldom say.
            now = datetime.now(timezone.utc)
            problems = (validity.problem(now) for validity in validities(ours))
            why = next((f"it {problem}" for problem in problems if problem), ABOUT_US[reason])
            return f"it rejected our certificate {ours}: {why}"
        if reason in OTHER_PROTOCOL:
            return NO_TLS
        if reason in OLD_PROTOCOL:
            return TOO_OLD
        return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"


def refusal_by_server(error: ssl.SSLError) -> str:
    """Why a handshake with a client failed; "" if the client has just gone."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _objection_to_certificate(error, "client_ca_file")
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return ""
    reason = error.reason or str(error)
    about_us = reason.partition("_ALERT_")[2]
    if about_us in ABOUT_US:
        return f"it rejected our certificate: {ABOUT_US[about_us]}"
    if reason in OTHER_PROTOCOL:
        return NO_TLS_HERE
    if reason in OLD_PROTOCOL:
        return TOO_OLD
    return reason.lower().replace("_", " ")


def _objection_to_certificate(error: ssl.SSLCertVerificationError, ca_key: str) -> str:
    code, objection = error.verify_code, error.verify_message.rstrip(".").lower()
    if code in UNKNOWN_CA:
        return f"{UNTRUSTED_CA} ({ca_key}): {objection}"
    if code in OUT_OF_USE:
        return f"its certificate {OUT_OF_USE[code]}"
    if code in NOT_CHECKED:
        return f"its certificate can't be checked: {NOT_CHECKED[code]}"
    return f"its certificate can't be trusted: {objection}"


def _problem_of(error: OSError, expected: str) -> str:
    if not isinstance(error, ssl.SSLError):
        return error_text(error)
    return UNUSABLE.get(error.reason or "", expected)
