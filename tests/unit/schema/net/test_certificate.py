"""When certificates are valid, as read from their bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from sam_pipeline.schema.net.certificate import (
    examine_certificates,
    validities,
    validities_of_lists,
)
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

    known = x509.load_pem_x509_certificate(file.read_bytes())
    expected = (known.not_valid_before_utc, known.not_valid_after_utc)
    assert [tuple(validity) for validity in validities(file)] == [expected]


def test_all_certificates_of_a_file_are_read(files: TlsFiles) -> None:
    proxy = files.x509_proxy(files.delegated_client())

    pems = proxy.read_bytes().count(b"BEGIN CERTIFICATE")
    assert len(validities(proxy)) == pems > 1


@pytest.mark.parametrize("position", [0, 1, 2, 5, 20, 60, 90, 130, 200])
def test_a_damaged_certificate_has_no_dates_and_no_crash(files: TlsFiles, position: int) -> None:
    pem = files.certificate_file(files.client()).read_bytes()
    body = pem.index(b"\n") + 1 + position

    for damaged in (pem[:body], pem[:body] + b"AAAA" + pem[body + 4 :], pem[:body] + pem[-30:]):
        assert len(validities(files.file("damaged.pem", damaged))) <= 1


@pytest.mark.parametrize(
    ("begin", "end", "text", "is_problem"),
    [
        (-90 * DAY, -DAY, "expired on 2026-11-22 12:00 UTC", True),
        (DAY, 90 * DAY, "is not valid before 2026-11-24 12:00 UTC", True),
        (-90 * DAY, 14 * DAY, "expires on 2026-12-07 12:00 UTC", False),
        (-2 * DAY / 3, DAY / 3, "expires on", False),
    ],
)
def test_a_certificate_that_is_out_of_its_time_is_a_problem_and_soon_a_note(
    files: TlsFiles, begin: timedelta, end: timedelta, text: str, is_problem: bool
) -> None:
    ours = lasting(files, begin, end)

    [found] = examine_certificates(ours, None, None, NOW)

    assert text in found.text
    assert found.is_problem == is_problem


@pytest.mark.parametrize(("begin", "end"), [(-90 * DAY, 15 * DAY), (-DAY / 3, DAY * 2 / 3)])
def test_a_certificate_that_lasts_is_not_mentioned(
    files: TlsFiles, begin: timedelta, end: timedelta
) -> None:
    assert not list(examine_certificates(lasting(files, begin, end), files.ca_file, None, NOW))


def test_the_dates_of_a_revocation_list_are_those_of_a_full_parser(files: TlsFiles) -> None:
    file = files.revocation_list(files.client(), begin=NOW - DAY, end=NOW + 40 * DAY)

    known = x509.load_pem_x509_crl(file.read_bytes())
    expected = (known.last_update_utc, known.next_update_utc)
    assert [tuple(validity) for validity in validities_of_lists(file)] == [expected]


@pytest.mark.parametrize("position", [0, 1, 2, 5, 20, 60, 90, 130])
def test_a_damaged_revocation_list_has_no_dates_and_no_crash(
    files: TlsFiles, position: int
) -> None:
    pem = files.revocation_list().read_bytes()
    body = pem.index(b"\n") + 1 + position

    for damaged in (pem[:body], pem[:body] + b"AAAA" + pem[body + 4 :], pem[:body] + pem[-30:]):
        assert len(validities_of_lists(files.file("damaged.pem", damaged))) <= 1


@pytest.mark.parametrize(
    ("end", "text", "is_problem"),
    [(-DAY, "the revocation list expired on", True), (2 * DAY, "expires on", False)],
)
def test_a_revocation_list_that_is_out_of_its_time_is_a_problem_and_soon_a_note(
    files: TlsFiles, end: timedelta, text: str, is_problem: bool
) -> None:
    lists = files.revocation_list(begin=NOW - 30 * DAY, end=NOW + end)

    [found] = examine_certificates(None, None, lists, NOW)

    assert text in found.text
    assert (found.path, found.is_problem) == (lists, is_problem)


def test_an_expired_authority_is_a_problem_if_no_other_is_valid(files: TlsFiles) -> None:
    expired = lasting(files, -9 * DAY, -DAY)
    pems = expired.read_bytes()
    both = files.file("both.pem", pems + files.ca_file.read_bytes())

    [alone] = examine_certificates(None, expired, None, NOW)
    [beside] = examine_certificates(None, both, None, NOW)

    assert (alone.is_problem, beside.is_problem) == (True, False)
    assert "certificate 1 of 2 expired" in beside.text
