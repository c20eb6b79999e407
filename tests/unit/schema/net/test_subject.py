"""The subject of a certificate, as RabbitMQ names its user."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from sam_pipeline.schema.net.subject import host_names_of, subject_in, subject_of
from tests.support.brokers.tls_files import TlsFiles


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def test_the_last_part_comes_first_and_no_blank_follows_a_comma(files: TlsFiles) -> None:
    host = files.ca.issue_cert(
        "x", common_name="x.example.org", organization_name="Grid", organization_unit_name="sam"
    )

    assert subject_of(files.x509_proxy(host)) == "CN=x.example.org,OU=sam,O=Grid"


def test_it_is_read_from_the_bytes_of_a_connection_too(files: TlsFiles) -> None:
    path = files.certificate_file(files.client())
    der = ssl.PEM_cert_to_DER_cert(path.read_text())

    assert subject_in(der) == subject_of(path)
    assert [subject_in(der[:size]) for size in range(0, 60, 7)] == [None] * 9


def test_it_is_that_of_a_full_parser(files: TlsFiles) -> None:
    odd = files.ca.issue_cert("x", organization_name='#a,b+c"d\\e<f>;g', common_name=" both ")
    path = files.certificate_file(odd)

    known = x509.load_pem_x509_certificate(path.read_bytes()).subject.rfc4514_string()
    assert subject_of(path) == known


def test_a_file_that_has_none_is_not_a_crash(files: TlsFiles) -> None:
    pem = files.certificate_file(files.client()).read_bytes()

    assert subject_of(files.directory / "missing.pem") is None
    assert subject_of(files.file("key.pem", files.client().private_key_pem.bytes())) is None
    for size in range(30, len(pem) - 60, 37):
        cut = pem[:size] + b"\n-----END CERTIFICATE-----\n"
        assert subject_of(files.file("cut.pem", cut)) is None


def test_the_host_names_are_those_of_the_certificate_not_its_common_name(files: TlsFiles) -> None:
    names = ("door.example.org", "*.example.net", "192.0.2.1", "2001:db8::1")
    host = files.ca.issue_cert(*names, common_name="old.example.org")

    assert host_names_of(files.certificate_file(host)) == names


def test_a_certificate_without_host_names_has_none(files: TlsFiles) -> None:
    pem = files.certificate_file(files.host("door.example.org")).read_bytes()

    assert host_names_of(files.ca_file) == ()
    assert host_names_of(files.directory / "missing.pem") == ()
    for size in range(30, len(pem) - 60, 37):
        cut = pem[:size] + b"\n-----END CERTIFICATE-----\n"
        assert host_names_of(files.file("cut.pem", cut)) == ()
