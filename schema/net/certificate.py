"""The dates, subjects and host names of certificates and revocation lists, read from their bytes.

The module `ssl` does not offer them. By RFC 5280, 4.1, a certificate begins with a sequence of
version (optional), number, algorithm, issuer, validity and subject; by 5.1, a revocation list with
one of version (optional), algorithm, issuer, its own time and that of the next list (optional).

Subjects are written as brokers write them in user names: by RFC 4514, and where that leaves a
choice, as `rabbit_cert_info.erl` of RabbitMQ: the last part first, without blanks after commas.
"""

from __future__ import annotations

import re
import socket
from binascii import a2b_base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Callable, NamedTuple, Optional

SOON = timedelta(days=14)
INTEGER, VERSION, UTC_TIME = 0x02, 0xA0, 0x17

_PEM = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.+?)-----END (?:TRUSTED |X509 )?CERTIFICATE",
    re.DOTALL,
)
_CRL_PEM = re.compile(rb"-----BEGIN X509 CRL-----(.+?)-----END X509 CRL", re.DOTALL)


class Validity(NamedTuple):
    """The first and the last moment at which a certificate is valid."""

    begin: datetime
    end: datetime

    def problem(self, now: datetime) -> Optional[str]:
        """Why the certificate can't be used now."""
        if now < self.begin:
            return f"is not valid before {self.begin:%Y-%m-%d %H:%M} UTC"
        if now > self.end:
            return f"expired on {self.end:%Y-%m-%d %H:%M} UTC"
        return None

    def note(self, now: datetime) -> Optional[str]:
        """Whether it expires soon: in 14 days, or in the last third of a shorter life."""
        life = self.end - self.begin
        soon = SOON if life > SOON else life / 3
        if self.problem(now) or self.end - now > soon:
            return None
        return f"expires on {self.end:%Y-%m-%d %H:%M} UTC"


class CertificateLife(NamedTuple):
    """A file of certificates, and the period in which it can be used."""

    file: str
    begin: datetime
    end: datetime

    def days_left(self, now: datetime) -> float:
        """The days until it expires, negative after that."""
        return (self.end - now) / timedelta(days=1)


class CertificateFinding(NamedTuple):
    """A problem: a certificate or revocation list can't be used now; or a note: it expires soon."""

    path: Path
    text: str
    is_problem: bool


def validities(path: Path) -> list[Validity]:
    """The validities of the readable certificates in a file, in order."""
    return _read_all(path, _PEM, _validity)


def validities_of_lists(path: Path) -> list[Validity]:
    """The validities of the revocation lists in a file that name the time of the next one."""
    return _read_all(path, _CRL_PEM, _validity_of_list)


def examine_certificates(
    ours: Optional[Path], authorities: Optional[Path], lists: Optional[Path], now: datetime
) -> Iterator[CertificateFinding]:
    """Findings on the dates of our certificate, of a file of authorities, and of their lists.

    Our certificate and its signers must all be valid; of several authorities or lists, one.
    """
    for path, thing, read, need_all in (
        (ours, "certificate", validities, True),
        (authorities, "certificate", validities, False),
        (lists, "revocation list", validities_of_lists, False),
    ):
        found = read(path) if path else []
        problems = [validity.problem(now) for validity in found]
        is_problem = need_all or all(problems)
        for number, validity in enumerate(found, 1):
            which = thing if len(found) == 1 else f"{thing} {number} of {len(found)}"
            text = validity.problem(now) or validity.note(now)
            if path and text:
                bad = is_problem and bool(validity.problem(now))
                yield CertificateFinding(path, f"{path}: the {which} {text}", bad)


def lives_of(
    ours: Iterable[Optional[Path]], authorities: Iterable[Optional[Path]]
) -> Iterator[CertificateLife]:
    """The lives of files of certificates; files without a readable one are left out.

    Of ours and their signers, the first to expire counts; of several authorities, the last.
    """
    lives = [(path, min) for path in ours] + [(path, max) for path in authorities]
    for path, choose in dict.fromkeys(lives):
        if path and (found := validities(path)):
            chosen = choose(found, key=lambda validity: validity.end)
            yield CertificateLife(str(path), chosen.begin, chosen.end)


def certificates(path: Path) -> Iterator[bytes]:
    """The bytes of the certificates in a file, in order; raises OSError or ValueError."""
    for match in _PEM.finditer(path.read_bytes()):
        yield a2b_base64(match[1])


def first_certificate(path: Path) -> bytes:
    """The bytes of the first certificate in a file; raises OSError, or ValueError without one."""
    for certificate in certificates(path):
        return certificate
    raise ValueError(f"{path} contains no certificate")


def _read_all(
    path: Path, pem: re.Pattern[bytes], read: Callable[[bytes], Validity]
) -> list[Validity]:
    found = []
    with suppress(OSError):
        for match in pem.finditer(path.read_bytes()):
            with suppress(ValueError, IndexError):
                found.append(read(a2b_base64(match[1])))
    return found


def _validity_of_list(der: bytes) -> Validity:
    _, _, begin, end, *_ = _signed_fields(der, INTEGER)  # algorithm, issuer, times
    return Validity(_time(*begin), _time(*end))


def _validity(der: bytes) -> Validity:
    _, _, _, (_, validity), *_ = _signed_fields(der, VERSION)  # number, algorithm, issuer, validity
    begin, end = _fields(validity)
    return Validity(_time(*begin), _time(*end))


def _signed_fields(der: bytes, version: int) -> list[tuple[int, bytes]]:
    """The fields of a certificate or a revocation list, without its version, which is optional."""
    (_, whole), *_ = _fields(der)
    (_, signed), *_ = _fields(whole)
    fields = _fields(signed)
    return fields[1:] if fields[0][0] == version else fields


def _fields(der: bytes) -> list[tuple[int, bytes]]:
    """The elements of a sequence or set: tag and contents; raises ValueError or IndexError."""
    fields, at = [], 0
    while at < len(der):
        tag, length, begin = der[at], der[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, begin = int.from_bytes(der[begin : begin + size], "big"), begin + size
        at = begin + length
        if at > len(der):
            raise ValueError("truncated")
        fields.append((tag, der[begin:at]))
    return fields


def _time(tag: int, text: bytes) -> datetime:
    """YYMMDDhhmmssZ of the years 1950 to 2049, or YYYYMMDDhhmmssZ."""
    digits = text.decode("ascii")
    if tag == UTC_TIME:
        digits = f"{'19' if digits >= '50' else '20'}{digits}"
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)


EXTENSIONS, ALTERNATIVE_NAMES, PROXY = 0xA3, "551d11", "2b0601050507010e"
DNS_NAME, IP_ADDRESS = 0x82, 0x87

ATTRIBUTES = {
    "550403": "CN",
    "550404": "SN",
    "550405": "SERIALNUMBER",
    "550406": "C",
    "550407": "L",
    "550408": "ST",
    "550409": "STREET",
    "55040a": "O",
    "55040b": "OU",
    "55040c": "TITLE",
    "55042a": "GIVENNAME",
    "55042b": "INITIALS",
    "55042c": "GENERATIONQUALIFIER",
    "550441": "PSEUDONYM",
    "2a864886f70d010901": "EMAILADDRESS",
    "0992268993f22c640101": "UID",
    "0992268993f22c640119": "DC",
}
"""The attributes of a name, by the bytes of their object identifiers."""

SPECIAL = frozenset(b'"+,;<>\\')

ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
"""How the text of an attribute is encoded, by its tag."""


def subject_of(path: Path) -> Optional[str]:
    """The subject of the first certificate in a file; None if it can't be read or is unusual."""
    with suppress(OSError, ValueError):
        return subject_in(first_certificate(path))
    return None


def subject_in(der: bytes) -> Optional[str]:
    """The subject of a certificate, from its bytes; None if it can't be read or is unusual."""
    with suppress(ValueError, LookupError):
        _, _, _, _, (_, subject), *_ = _signed_fields(der, VERSION)
        return ",".join("+".join(_attributes(part)) for _, part in reversed(_fields(subject)))
    return None


def host_names_of(path: Path) -> tuple[str, ...]:
    """The DNS names and addresses for which the first certificate in a file is valid.

    Source: RFC 5280, 4.2.1.6. They are empty if the certificate has none, or can't be read.
    """
    names = []
    with suppress(OSError, ValueError, LookupError):
        value = dict(_extensions(first_certificate(path)))[ALTERNATIVE_NAMES]
        [(_, sequence)] = _fields(value)
        for tag, name in _fields(sequence):
            if tag == DNS_NAME:
                names.append(name.decode("ascii"))
            elif tag == IP_ADDRESS:
                family = socket.AF_INET if len(name) == 4 else socket.AF_INET6
                names.append(socket.inet_ntop(family, name))
    return tuple(names)


def is_proxy(der: bytes) -> bool:
    """Whether a certificate is an X.509 proxy: signed by a user, not by an authority (RFC 3820)."""
    with suppress(ValueError, LookupError):
        return any(identifier == PROXY for identifier, _ in _extensions(der))
    return False


def _extensions(der: bytes) -> Iterator[tuple[str, bytes]]:
    """The extensions of a certificate: identifier and value; raises ValueError, LookupError."""
    for tag, content in _signed_fields(der, VERSION):
        if tag == EXTENSIONS:
            [(_, extensions)] = _fields(content)
            for _, extension in _fields(extensions):
                (_, identifier), *_, (_, value) = _fields(extension)  # perhaps `critical` between
                yield identifier.hex(), value


def _attributes(part: bytes) -> Iterator[str]:
    for _, attribute in _fields(part):
        (_, identifier), (tag, text) = _fields(attribute)
        value = text.decode(ENCODINGS[tag])
        yield f"{ATTRIBUTES.get(identifier.hex()) or _dotted(identifier)}={_escaped(value)}"


def _dotted(identifier: bytes) -> str:
    """An object identifier such as 2.5.4.97. Source: X.690, 8.19."""
    numbers = [0]
    for byte in identifier:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _escaped(value: str) -> str:
    escaped = "".join(
        f"\\{chr(byte)}" if byte in SPECIAL else chr(byte) if 32 <= byte < 126 else f"\\{byte:02X}"
        for byte in value.encode()
    )
    if escaped.startswith((" ", "#")):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if len(value) > 1 and value.endswith(" ") else escaped
