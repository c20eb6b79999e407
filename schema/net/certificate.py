"""When the certificates in a file are valid; read from their bytes, since `ssl` does not show it.

Source: RFC 5280, 4.1: a certificate is a sequence, which begins with a sequence: version, number,
algorithm, issuer, validity, …; the validity is a sequence of two times.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple, Optional

SOON = timedelta(days=14)
SEQUENCE, VERSION, UTC_TIME = 0x30, 0xA0, 0x17

_PEM = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.+?)-----END (?:TRUSTED |X509 )?CERTIFICATE",
    re.DOTALL,
)


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


class CertificateFinding(NamedTuple):
    """A certificate that can't be used now, or not for much longer, which is only a note."""

    path: Path
    text: str
    is_problem: bool


def validities(path: Path) -> list[Validity]:
    """Those of the certificates in a file, in order; of one that can't be read there is none."""
    found = []
    with suppress(OSError):
        for match in _PEM.finditer(path.read_bytes()):
            with suppress(ValueError, IndexError):
                found.append(_validity(a2b_base64(match[1])))
    return found


def examine_certificates(
    ours: Optional[Path], authorities: Optional[Path], now: datetime
) -> Iterator[CertificateFinding]:
    """What is wrong with the dates of our certificate and of a file of authorities.

    Of ours and its signers each must be valid; of several authorities, one.
    """
    for path, need_all in ((ours, True), (authorities, False)):
        found = validities(path) if path else []
        problems = [validity.problem(now) for validity in found]
        is_problem = need_all or all(problems)
        for number, validity in enumerate(found, 1):
            which = "certificate" if len(found) == 1 else f"certificate {number} of {len(found)}"
            text = validity.problem(now) or validity.note(now)
            if path and text:
                bad = is_problem and bool(validity.problem(now))
                yield CertificateFinding(path, f"{path}: the {which} {text}", bad)


def _validity(der: bytes) -> Validity:
    """The validity in a certificate; raises ValueError or IndexError."""
    certificate, _ = _contents(der, 0, SEQUENCE)
    body, _ = _contents(certificate, 0, SEQUENCE)
    end = 0
    if body[0] == VERSION:
        _, end = _contents(body, end, VERSION)
    for _ in range(3):  # number, algorithm, issuer
        _, end = _contents(body, end)
    validity, _ = _contents(body, end, SEQUENCE)
    begin, end = _contents(validity, 0)
    last, _ = _contents(validity, end)
    return Validity(_time(validity[0], begin), _time(validity[end], last))


def _contents(der: bytes, start: int, tag: Optional[int] = None) -> tuple[bytes, int]:
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
