"""When certificates and revocation lists are valid: from their bytes, as `ssl` does not show it.

Source: RFC 5280, 4.1: a certificate is a sequence, which begins with a sequence: version, number,
algorithm, issuer, validity, …; the validity is a sequence of two times. 5.1: a revocation list
begins with a sequence as well: version, algorithm, issuer, time, time of the next list, …; version
and last time are optional.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Callable, NamedTuple, Optional

SOON = timedelta(days=14)
INTEGER, SEQUENCE, VERSION, UTC_TIME, GENERALIZED_TIME = 0x02, 0x30, 0xA0, 0x17, 0x18

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
        """Why it can't be used now."""
        if now < self.begin:
            return f"is not valid before {self.begin:%Y-%m-%d %H:%M} UTC"
        if now > self.end:
            return f"expired on {self.end:%Y-%m-%d %H:%M} UTC"
        return None

    def note(self, now: datetime) -> Optional[str]:
        """Whether it expires soon; of one that lives for days only, in the last third of them."""
        life = self.end - self.begin
        soon = SOON if life > SOON else life / 3
        if self.problem(now) or self.end - now > soon:
            return None
        return f"expires on {self.end:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True)
class CertificateLife:
    """A file of certificates, and from when until when it can be used."""

    file: str
    begin: datetime
    end: datetime

    def days_left(self, now: datetime) -> float:
        """The days until it expires, negative after that."""
        return (self.end - now) / timedelta(days=1)


class CertificateFinding(NamedTuple):
    """A certificate or revocation list that can't be used now; or not for much longer: a note."""

    path: Path
    text: str
    is_problem: bool


def validities(path: Path) -> list[Validity]:
    """The validities of the certificates in a file, in order, without unreadable ones."""
    return _read_all(path, _PEM, _validity)


def validities_of_lists(path: Path) -> list[Validity]:
    """The validities of the revocation lists in a file that name the time of the next one."""
    return _read_all(path, _CRL_PEM, _validity_of_list)


def examine_certificates(
    ours: Optional[Path], authorities: Optional[Path], lists: Optional[Path], now: datetime
) -> Iterator[CertificateFinding]:
    """What is wrong with the dates of our certificate, and of files of authorities and their lists.

    Of ours and its signers each must be valid; of several authorities or lists, one.
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
    """The validity of a revocation list; raises ValueError or IndexError."""
    revocations, _ = contents(der, 0, SEQUENCE)
    body, _ = contents(revocations, 0, SEQUENCE)
    at = 0
    for _ in range(3 if body[0] == INTEGER else 2):  # version, algorithm, issuer
        _, at = contents(body, at)
    begin, next_at = contents(body, at)
    end, _ = contents(body, next_at)
    if body[next_at] not in (UTC_TIME, GENERALIZED_TIME):
        raise ValueError("no time of the next list")
    return Validity(_time(body[at], begin), _time(body[next_at], end))


def _validity(der: bytes) -> Validity:
    """The validity in a certificate; raises ValueError or IndexError."""
    certificate, _ = contents(der, 0, SEQUENCE)
    body, _ = contents(certificate, 0, SEQUENCE)
    end = 0
    if body[0] == VERSION:
        _, end = contents(body, end, VERSION)
    for _ in range(3):  # number, algorithm, issuer
        _, end = contents(body, end)
    validity, _ = contents(body, end, SEQUENCE)
    begin, end = contents(validity, 0)
    last, _ = contents(validity, end)
    return Validity(_time(validity[0], begin), _time(validity[end], last))


def contents(der: bytes, start: int, tag: Optional[int] = None) -> tuple[bytes, int]:
    """The contents of the element that starts there, and the offset of the next one."""
    if tag is not None and der[start] != tag:
        raise ValueError(f"tag {der[start]} instead of {tag}")
    length, begin = der[start + 1], start + 2
    if length & 0x80:
        size = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + size], "big"), begin + size
    if begin + length > len(der):
        raise ValueError("truncated")
    return der[begin : begin + length], begin + length


def _time(tag: int, text: bytes) -> datetime:
    """YYMMDDhhmmssZ of the years 1950 to 2049, or YYYYMMDDhhmmssZ."""
    digits = text.decode("ascii")
    if tag == UTC_TIME:
        digits = f"{'19' if digits >= '50' else '20'}{digits}"
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
