"""The subject of a certificate, as a broker writes it in the name of a user, and its host names.

Source: RFC 4514, and `rabbit_cert_info.erl` of RabbitMQ where that leaves a choice: the last part
of the name comes first, without blanks after the commas.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Optional

from sam_pipeline.schema.net.certificate import SEQUENCE, VERSION, contents, first_certificate

SET, OBJECT_IDENTIFIER, OCTET_STRING = 0x31, 0x06, 0x04
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
        certificate, _ = contents(der, 0, SEQUENCE)
        body, _ = contents(certificate, 0, SEQUENCE)
        at = 0
        for _ in range(5 if body[0] == VERSION else 4):  # version, number, …, validity
            _, at = contents(body, at)
        subject, _ = contents(body, at, SEQUENCE)
        parts = ["+".join(_attributes(part)) for part in _elements(subject, SET)]
        return ",".join(reversed(parts))
    return None


def host_names_of(path: Path) -> tuple[str, ...]:
    """The DNS names and addresses for which the first certificate in a file is valid.

    Source: RFC 5280, 4.2.1.6. They are empty if the certificate has none, or can't be read.
    """
    with suppress(OSError, ValueError, LookupError):
        value = dict(_extensions(first_certificate(path)))[ALTERNATIVE_NAMES]
        return tuple(_host_names(contents(value, 0, SEQUENCE)[0]))
    return ()


def is_proxy(der: bytes) -> bool:
    """Whether a certificate is an X.509 proxy: signed by a user, not by an authority (RFC 3820)."""
    with suppress(ValueError, LookupError):
        return any(identifier == PROXY for identifier, _ in _extensions(der))
    return False


def _extensions(der: bytes) -> Iterator[tuple[str, bytes]]:
    """The extensions of a certificate: identifier and value; raises ValueError, LookupError."""
    body, _ = contents(contents(der, 0, SEQUENCE)[0], 0, SEQUENCE)
    at = 0
    while at < len(body) and body[at] != EXTENSIONS:
        _, at = contents(body, at)
    if at == len(body):
        return
    extensions, _ = contents(contents(body, at)[0], 0, SEQUENCE)
    for extension in _elements(extensions, SEQUENCE):
        identifier, at = contents(extension, 0, OBJECT_IDENTIFIER)
        at = extension.index(OCTET_STRING, at)  # after the flag `critical`, if it has one
        yield identifier.hex(), contents(extension, at)[0]


def _host_names(names: bytes) -> Iterator[str]:
    at = 0
    while at < len(names):
        tag = names[at]
        name, at = contents(names, at)
        if tag == DNS_NAME:
            yield name.decode("ascii")
        elif tag == IP_ADDRESS:
            family = socket.AF_INET if len(name) == 4 else socket.AF_INET6
            yield socket.inet_ntop(family, name)


def _attributes(part: bytes) -> Iterator[str]:
    for attribute in _elements(part, SEQUENCE):
        identifier, at = contents(attribute, 0, OBJECT_IDENTIFIER)
        text, _ = contents(attribute, at)
        value = text.decode(ENCODINGS[attribute[at]])
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


def _elements(der: bytes, tag: int) -> Iterator[bytes]:
    at = 0
    while at < len(der):
        element, at = contents(der, at, tag)
        yield element
