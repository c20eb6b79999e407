"""TLS of a server: which clients it lets in, and whose certificate it sees."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.subject import subject_in
from sam_pipeline.schema.net.tls import TlsFiles as Files
from sam_pipeline.schema.net.tls import server_context
from tests.support.brokers.tls_files import TlsFiles

SERVER = "door.example.org"


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def server_files(files: TlsFiles, crl_file: Path | None = None, clients: bool = True) -> Files:
    host = files.host(SERVER)
    ca_file = files.ca_file if clients else None
    certificate_file = files.certificate_file(host, "host.pem")
    return Files(ca_file, certificate_file, files.key_file(host, name="host-key.pem"), crl_file)


def seen_by_server(
    files: TlsFiles,
    server: Files,
    certificate: trustme.LeafCert | None = None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> bytes | None:
    """The certificate of a client as the server sees it; raises SSLError if it is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = version
    files.ca.configure_trust(context)
    if certificate:
        certificate.configure_cert(context)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(back, there, server_hostname=SERVER)
    served = server_context(server).wrap_bio(there, back, server_side=True)
    for side in (client, served, client, served):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return served.getpeercert(binary_form=True)


def test_a_client_is_known_by_its_certificate_if_it_has_one_and_is_asked(files: TlsFiles) -> None:
    der = seen_by_server(files, server_files(files), files.client())

    assert der is not None
    assert (subject_in(der) or "").startswith("CN=probe,")
    assert seen_by_server(files, server_files(files)) is None
    assert seen_by_server(files, server_files(files, clients=False), files.client()) is None
    for certificate in (files.foreign_client(), files.expired_client()):
        with pytest.raises(ssl.SSLCertVerificationError):
            seen_by_server(files, server_files(files), certificate)


def test_a_revoked_certificate_is_refused_and_the_next_one_is_not(files: TlsFiles) -> None:
    revoked = files.client()
    server = server_files(files, files.revocation_list(revoked))

    with pytest.raises(ssl.SSLCertVerificationError):
        seen_by_server(files, server, revoked)
    assert seen_by_server(files, server, files.client())


def test_a_client_needs_tls_1_2(files: TlsFiles) -> None:
    assert seen_by_server(files, server_files(files), version=ssl.TLSVersion.TLSv1_2) is None
    assert server_context(server_files(files)).minimum_version == ssl.TLSVersion.TLSv1_2


def test_files_that_do_not_fit_together_are_reported(files: TlsFiles) -> None:
    server = server_files(files)
    other_key = files.key_file(files.client(), name="other-key.pem")

    for bad in (
        server._replace(key_file=other_key),
        server._replace(ca_file=other_key),
        server._replace(crl_file=other_key),
        server._replace(certificate_file=files.directory / "missing.pem"),
    ):
        with pytest.raises(ConfigError):
            server_context(bad)
