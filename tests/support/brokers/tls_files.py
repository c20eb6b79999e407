"""Certificates of two authorities, made for a test, and how servers and clients use them.

    files = TlsFiles(tmp_path)
    with FakeBroker(tls=files.server()) as broker:
        publish([message], PublisherConfig(brokers=(broker.url,), ca_file=files.ca_file))

A client gets the paths of files, a server in Python a context, a server in Java key stores.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, cast

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from tests.services import missing
from tests.services.broker import HostCertificate, StompServer

HOST = "127.0.0.1"
NOW = datetime.now(UTC)
YEAR = timedelta(days=365)
CLIENT = "wn17.example.org"
TLS_1_2 = ssl.TLSVersion.TLSv1_2
TLS_1_3 = ssl.TLSVersion.TLSv1_3
STORE_PASSWORD = "store-secret"
PROXY = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.14")
INHERIT_ALL = bytes.fromhex("300c300a06082b06010505071501")
"""The value of PROXY: no limit on the length, id-ppl-inheritAll."""


class TlsFiles:
    """`ca` signs for servers and clients, `other` is not trusted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = trustme.CA(organization_name="Grid CA")
        self.other = trustme.CA(organization_name="Other CA")
        self.ca_file = self.file("ca.pem", self.ca.cert_pem.bytes(), 0o644)

    def file(self, name: str, content: bytes, mode: int = 0o600) -> Path:
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(mode)
        return path

    def ca_directory(self) -> Path:
        """A directory in the format of IGTF: OpenSSL finds the authority by its hash."""
        if shutil.which("openssl") is None:
            missing("openssl", "apt-get install openssl")
        directory = self.directory / "certificates"
        directory.mkdir()
        (directory / "grid-ca.pem").write_bytes(self.ca.cert_pem.bytes())
        subprocess.run(["openssl", "rehash", str(directory)], check=True, timeout=30)
        return directory

    def host(self, name: str = HOST, **dates: datetime) -> trustme.LeafCert:
        return self.ca.issue_cert(name, **dates)

    def expired_host(self) -> trustme.LeafCert:
        return self.host(not_before=NOW - 2 * YEAR, not_after=NOW - YEAR)

    def future_host(self) -> trustme.LeafCert:
        return self.host(not_before=NOW + YEAR, not_after=NOW + 2 * YEAR)

    def client(
        self, begin: datetime | None = None, end: datetime | None = None
    ) -> trustme.LeafCert:
        return self.ca.issue_cert(CLIENT, common_name="probe", not_before=begin, not_after=end)

    def expired_client(self) -> trustme.LeafCert:
        return self.client(NOW - 2 * YEAR, NOW - YEAR)

    def delegated_client(self) -> trustme.LeafCert:
        """Signed by an intermediate authority, which servers do not know by themselves."""
        return self.ca.create_child_ca().issue_cert(CLIENT, common_name="proxy")

    def proxy_of(self, signer: trustme.LeafCert, number: int = 1) -> trustme.LeafCert:
        """An X.509 proxy (RFC 3820) of a user, or of another proxy."""
        key = generate_private_key(SECP256R1())
        user = _certificate(signer.cert_chain_pems[0])
        own_name = x509.NameAttribute(NameOID.COMMON_NAME, str(number))
        builder = x509.CertificateBuilder(
            user.subject,
            x509.Name([*user.subject, own_name]),
            key.public_key(),
            x509.random_serial_number(),
            NOW - timedelta(hours=1),
            NOW + timedelta(hours=12),
        )
        builder = builder.add_extension(x509.UnrecognizedExtension(PROXY, INHERIT_ALL), True)
        proxy = builder.sign(_key(signer.private_key_pem), SHA256())
        pem = proxy.public_bytes(serialization.Encoding.PEM)
        signers = [each.bytes() for each in signer.cert_chain_pems]
        form = serialization.PrivateFormat.TraditionalOpenSSL
        key_pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return trustme.LeafCert(key_pem, pem, signers)

    def foreign_client(self) -> trustme.LeafCert:
        return self.other.issue_cert(CLIENT, common_name="probe")

    def certificate_file(self, leaf: trustme.LeafCert, name: str = "certificate.pem") -> Path:
        return self.file(name, leaf.cert_chain_pems[0].bytes(), 0o644)

    def key_file(self, leaf: trustme.LeafCert, mode: int = 0o600, name: str = "key.pem") -> Path:
        return self.file(name, leaf.private_key_pem.bytes(), mode)

    def locked_key_file(self, leaf: trustme.LeafCert, form: serialization.PrivateFormat) -> Path:
        """The key, encrypted with a passphrase."""
        lock = serialization.BestAvailableEncryption(b"passphrase")
        key = _key(leaf.private_key_pem)
        return self.file("key.pem", key.private_bytes(serialization.Encoding.PEM, form, lock))

    def x509_proxy(self, certificate: trustme.LeafCert, mode: int = 0o600) -> Path:
        """A file in the format of an X.509 proxy: certificate, key, then the signers."""
        first, *signers = certificate.cert_chain_pems
        pems = [first, certificate.private_key_pem, *signers]
        return self.file("x509up_u1000", b"".join(pem.bytes() for pem in pems), mode)

    def server(
        self,
        certificate: trustme.LeafCert | None = None,
        *,
        version: ssl.TLSVersion = TLS_1_3,
        wants_ours: bool = False,
        revoked: trustme.LeafCert | None = None,
    ) -> ssl.SSLContext:
        """The context of a server with one TLS version, optionally with client certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = context.maximum_version = version
        (certificate or self.host()).configure_cert(context)
        if wants_ours or revoked:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        if revoked:
            context.load_verify_locations(self.revocation_list(revoked))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context

    def host_certificate(self) -> HostCertificate:
        """The certificate of a real broker, and `ca` as the authority it trusts."""
        host = self.host()
        lock = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        key, leaf = _key(host.private_key_pem), _certificate(host.cert_chain_pems[0])
        key_store = pkcs12.serialize_key_and_certificates(b"host", key, leaf, None, lock)
        authority = pkcs12.PKCS12Certificate(_certificate(self.ca.cert_pem), b"grid-ca")
        trust_store = pkcs12.serialize_java_truststore([authority], lock)
        return HostCertificate(
            ca_file=self.ca_file,
            certificate_file=self.certificate_file(host, "host.pem"),
            key_file=self.key_file(host, name="host-key.pem"),
            key_store=self.file("key-store.p12", key_store),
            trust_store=self.file("trust-store.p12", trust_store),
            store_password=STORE_PASSWORD,
        )

    def revocation_list(
        self,
        *revoked: trustme.LeafCert | trustme.CA,
        authority: trustme.CA | None = None,
        begin: datetime = NOW - YEAR,
        end: datetime = NOW + YEAR,
        name: str = "crl.pem",
    ) -> Path:
        """The list of the certificates that `ca`, or another authority, has revoked, as PEM."""
        authority = authority or self.ca
        builder = x509.CertificateRevocationListBuilder(
            _certificate(authority.cert_pem).subject, begin, end
        )
        for certificate in revoked:
            is_ca = isinstance(certificate, trustme.CA)
            pem = certificate.cert_pem if is_ca else certificate.cert_chain_pems[0]
            entry = x509.RevokedCertificateBuilder(_certificate(pem).serial_number, NOW)
            builder = builder.add_revoked_certificate(entry.build())
        crl = builder.sign(_key(authority.private_key_pem), SHA256())
        return self.file(name, crl.public_bytes(serialization.Encoding.PEM))


def _certificate(pem: trustme.Blob) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.bytes())


def _key(pem: trustme.Blob) -> EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem.bytes(), password=None)
    return cast(EllipticCurvePrivateKey, key)


class TlsBroker(NamedTuple):
    """A broker whose certificate is signed by the authority of `files`, which it also trusts."""

    server: StompServer
    files: TlsFiles
