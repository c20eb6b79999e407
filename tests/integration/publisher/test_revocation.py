"""Revocation lists: `crl_file` decides which certificates of brokers still count."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from sam_pipeline.publisher import PublisherConfig, publish
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.tls_files import NOW, TlsFiles
from tests.support.builders import metric_message

DAY = timedelta(days=1)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def failure(files: TlsFiles, host: trustme.LeafCert, lists: Path, ca: Path | None = None) -> str:
    """Why a broker with this certificate was not used; empty if it confirmed a message."""
    spool = files.directory / "spool"
    trusted = ca or files.ca_file
    config = PublisherConfig(
        spool=spool, ca_file=trusted, crl_file=lists, timeout_s=5.0, drain=False
    )
    with FakeBroker(tls=files.server(host)) as broker:
        publication = publish([metric_message()], config._replace(brokers=(broker.url,)))

    assert len(publication.receipts) == len(broker.taken) == (0 if publication.failures else 1)
    return "".join(failure.reason for failure in publication.failures)


def test_only_the_broker_with_a_revoked_certificate_is_refused(files: TlsFiles) -> None:
    revoked = files.host()
    lists = files.revocation_list(revoked)

    assert "its certificate is revoked" in failure(files, revoked, lists)
    assert failure(files, files.host(), lists) == ""


@pytest.mark.parametrize(
    ("lists", "stem"),
    [
        (lambda files: files.revocation_list(end=NOW - DAY), "has expired"),
        (lambda files: files.revocation_list(begin=NOW + DAY), "is not valid yet"),
        (lambda files: TlsFiles(_new(files, "b")).revocation_list(), "there is no revocation list"),
        (lambda files: _new(files, "empty"), "there is no revocation list"),
        (lambda files: files.file("crl", b"# to come\n"), "contains no revocation list"),
    ],
    ids=["expired", "not yet valid", "of another authority", "empty directory", "empty file"],
)
def test_nothing_is_sent_to_a_broker_that_cannot_be_checked(
    files: TlsFiles, lists: Callable[[TlsFiles], Path], stem: str
) -> None:
    reason = failure(files, files.host(), lists(files))

    assert stem in reason
    assert "crl" in reason


def test_the_lists_may_be_a_directory_of_their_own(files: TlsFiles) -> None:
    revoked = files.host()
    directory = _new(files, "lists")
    files.revocation_list(revoked, name="lists/8ae1bf1d.r0")

    assert "its certificate is revoked" in failure(files, revoked, directory)
    assert failure(files, files.host(), directory) == ""


def test_the_lists_may_be_in_the_directory_of_the_authorities(files: TlsFiles) -> None:
    revoked = files.host()
    directory = files.ca_directory()
    shutil.copy(files.revocation_list(revoked), directory / "grid-ca.crl.pem")
    subprocess.run(["openssl", "rehash", str(directory)], check=True, timeout=30)

    assert "its certificate is revoked" in failure(files, revoked, directory, directory)
    assert failure(files, files.host(), directory, directory) == ""


def test_an_authority_in_the_directory_of_the_lists_is_not_trusted_for_that(
    files: TlsFiles,
) -> None:
    directory = files.ca_directory()
    other = files.file("other.pem", files.other.cert_pem.bytes())

    assert "untrusted CA (ca_file)" in failure(files, files.host(), directory, other)


def test_a_revoked_intermediate_authority_is_refused(files: TlsFiles) -> None:
    child = files.ca.create_child_ca()
    host = child.issue_cert("127.0.0.1")
    own = files.revocation_list(name="own.pem", authority=child).read_bytes()
    good = files.file("good.pem", own + files.revocation_list().read_bytes())
    bad = files.file("bad.pem", own + files.revocation_list(child).read_bytes())

    assert failure(files, host, good) == ""
    assert "its certificate is revoked" in failure(files, host, bad)


def _new(files: TlsFiles, name: str) -> Path:
    directory = files.directory / name
    directory.mkdir()
    return directory
