"""Certificates as read from their bytes, and the files of a server."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import TlsFiles as Files
from sam_pipeline.schema.net.certificate import (
    examine_certificates,
    first_certificate,
    host_names_of,
    is_proxy,
    subject_in,
    subject_of,
    validities,
    validities_of_lists,
)
from sam_pipeline.schema.net.tls import server_context, tls_context
from tests.support.brokers.tls_files import TlsFiles

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def lasting(files: TlsFiles, begin: timedelta, end: timedelta) -> Path:
    return files.certificate_file(files.client(NOW + begin, NOW + end))


@pytest.mark.parametrize("end", [NOW, datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)])
@pytest.mark.parametrize("later", [timedelta(), timedelta(seconds=1), 400 * DAY])
def test_the_dates_are_those_of_a_full_parser(
    files: TlsFiles, end: datetime, later: timedelta
) -> None:
    file = files.certificate_file(files.client(NOW - 900 * DAY, end + later))
    lists = files.revocation_list(files.client(), begin=NOW - DAY, end=end + later)

    known = x509.load_pem_x509_certificate(file.read_bytes())
    crl = x509.load_pem_x509_crl(lists.read_bytes())
    assert validities(file) == [(known.not_valid_before_utc, known.not_valid_after_utc)]
    assert validities_of_lists(lists) == [(crl.last_update_utc, crl.next_update_utc)]


@pytest.mark.parametrize(
    ("begin", "end", "text", "is_problem"),
    [
        (-90 * DAY, 15 * DAY, "", False),
        (-DAY / 3, DAY * 2 / 3, "", False),
        (-90 * DAY, -DAY, "expired on 2026-11-22 12:00 UTC", True),
        (DAY, 90 * DAY, "is not valid before 2026-11-24 12:00 UTC", True),
        (-90 * DAY, 14 * DAY, "expires on 2026-12-07 12:00 UTC", False),
        (-2 * DAY / 3, DAY / 3, "expires on", False),
    ],
)
def test_an_expired_certificate_or_list_is_a_problem_and_one_that_expires_soon_a_note(
    files: TlsFiles, begin: timedelta, end: timedelta, text: str, is_problem: bool
) -> None:
    found = list(examine_certificates(lasting(files, begin, end), files.ca_file, None, NOW))

    assert [note.is_problem for note in found] == ([is_problem] if text else [])
    assert [text in note.text for note in found] == ([True] if text else [])
    if end in (-DAY, DAY / 3):
        lists = files.revocation_list(begin=NOW + begin, end=NOW + end)
        [of_list] = examine_certificates(None, None, lists, NOW)
        assert text.partition(" on")[0] in of_list.text
        assert (of_list.path, of_list.is_problem) == (lists, is_problem)


def test_a_subject_is_that_of_a_full_parser_with_its_last_part_first(files: TlsFiles) -> None:
    names: dict[str, Any] = {"organization_name": "Grid", "organization_unit_name": "s~m"}
    host = files.ca.issue_cert("x", common_name="x.example.org", **names)
    odd = files.ca.issue_cert("x", organization_name='#a,b+c"d\\e<f>;g', common_name=" both ")
    path = files.certificate_file(odd)

    known = x509.load_pem_x509_certificate(path.read_bytes()).subject.rfc4514_string()
    assert subject_of(path) == known
    assert subject_of(files.x509_proxy(host)) == r"CN=x.example.org,OU=s\7Em,O=Grid"
    # It is also read from the bytes of a connection.
    der = ssl.PEM_cert_to_DER_cert(path.read_text())
    assert subject_in(der) == known
    assert [subject_in(der[:size]) for size in range(0, 60, 7)] == [None] * 9


def test_an_unusual_part_of_a_subject_has_its_number(files: TlsFiles) -> None:
    user = x509.load_pem_x509_certificate(files.client().cert_chain_pems[0].bytes())
    numbers = ("2.5.4.97", "1.3.6.1.4.1.11129.2.1.1", "0.9.2342.19200300.100.1.3")
    names = [x509.NameAttribute(x509.ObjectIdentifier(number), "a") for number in numbers]
    key = rsa.generate_private_key(65537, 2048)
    dates = (user.not_valid_before_utc, user.not_valid_after_utc)
    builder = x509.CertificateBuilder(user.issuer, x509.Name(names), key.public_key(), 1, *dates)
    der = builder.sign(key, SHA256()).public_bytes(Encoding.DER)

    assert subject_in(der) == ",".join(f"{number}=a" for number in reversed(numbers))


def test_the_host_names_are_those_of_the_certificate_not_its_common_name(files: TlsFiles) -> None:
    names = ("door.example.org", "*.example.net", "192.0.2.1", "2001:db8::1")
    host = files.ca.issue_cert(*names, common_name="old.example.org")

    assert host_names_of(files.certificate_file(host)) == names
    for none in (files.ca_file, files.directory / "missing.pem"):
        assert host_names_of(none) == ()
    assert subject_of(files.directory / "missing.pem") is None
    assert subject_of(files.file("key.pem", files.client().private_key_pem.bytes())) is None


def test_a_server_has_tls_1_2_and_files_that_do_not_fit_together_are_reported(
    files: TlsFiles,
) -> None:
    host = files.host("door.example.org")
    certificate_file = files.certificate_file(host, "host.pem")
    server = Files(files.ca_file, certificate_file, files.key_file(host, name="host-key.pem"))
    assert server_context(server).minimum_version == ssl.TLSVersion.TLSv1_2
    other_key = files.key_file(files.client(), name="other-key.pem")

    for bad in (
        server._replace(key_file=other_key),
        server._replace(ca_file=other_key),
        server._replace(crl_file=other_key),
        server._replace(certificate_file=files.directory / "missing.pem"),
    ):
        with pytest.raises(ConfigError):
            server_context(bad)


def self_signed(bits: int, passphrase: bytes = b"") -> bytes:
    """A certificate and its key, as old software makes them."""
    key = rsa.generate_private_key(65537, bits)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "probe")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    signed = builder.not_valid_before(NOW).not_valid_after(NOW + DAY).sign(key, SHA256())
    hidden: Any = serialization.NoEncryption()
    if passphrase:
        hidden = serialization.BestAvailableEncryption(passphrase)
    form = PrivateFormat.TraditionalOpenSSL
    return signed.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, form, hidden)


@pytest.mark.parametrize(
    ("bits", "passphrase", "words"), [(1024, b"", "too short"), (2048, b"x" * 8, "passphrase")]
)
def test_a_certificate_that_openssl_rejects_is_reported_with_the_reason(
    tmp_path: Path, bits: int, passphrase: bytes, words: str
) -> None:
    file = tmp_path / "proxy.pem"
    file.write_bytes(self_signed(bits, passphrase))
    file.chmod(0o600)

    with pytest.raises(ConfigError, match=words):
        tls_context(Files(certificate_file=file))


def test_a_proxy_differs_from_the_certificate_of_its_user(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    user = files.client()
    proxy = files.x509_proxy(files.proxy_of(user))

    assert is_proxy(first_certificate(proxy))
    assert not is_proxy(first_certificate(files.certificate_file(user)))
    assert not is_proxy(b"\x30\x03")
    assert subject_of(proxy) == f"CN=1,{subject_of(files.certificate_file(user))}"
