"""Directories that the program openssl has hashed, and keys with a passphrase, at a terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat

from sam_pipeline.publisher import PublisherConfig, publish
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.tls_files import TlsFiles
from tests.support.commands import RESULT, Workplace
from tests.support.publishing import messages

ON_A_TERMINAL = ("setsid", "--ctty", "--wait")
"""Makes standard input the terminal, /dev/tty, of the command that follows."""


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def test_authorities_and_revocation_lists_may_share_a_hashed_directory(files: TlsFiles) -> None:
    revoked, directory = files.host(), files.ca_directory()
    config = PublisherConfig(ca_file=directory, spool=files.directory / "spool", drain=False)
    with FakeBroker(tls=files.server()) as good, FakeBroker(tls=files.server(revoked)) as bad:
        assert publish(messages(1), config._replace(brokers=(bad.url,))).receipts
        shutil.copy(files.revocation_list(revoked), directory / "grid-ca.crl.pem")
        subprocess.run(["openssl", "rehash", str(directory)], check=True, timeout=30)
        config = config._replace(crl_file=directory)
        assert publish(messages(1), config._replace(brokers=(good.url,))).receipts
        (failure,) = publish(messages(1), config._replace(brokers=(bad.url,))).failures
        assert "its certificate is revoked" in failure.reason

        # An authority in the directory of the lists is not trusted for that.
        other = files.file("other.pem", files.other.cert_pem.bytes())
        config = config._replace(ca_file=other, brokers=(good.url,))
        (failure,) = publish(messages(1), config).failures
        assert "untrusted CA (ca_file)" in failure.reason


@pytest.mark.parametrize(
    "form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL], ids=["PKCS#8", "traditional"]
)
def test_a_key_with_a_passphrase_causes_no_prompt(files: TlsFiles, form: PrivateFormat) -> None:
    client = files.client()
    settings = {
        "ca_file": files.ca_file,
        "certificate_file": files.certificate_file(client),
        "key_file": files.locked_key_file(client, form),
        "state": files.directory / "state",
    }
    place = Workplace(files.directory, "", "")
    with FakeBroker(tls=files.server(wants_ours=True)) as broker, terminal() as (end, output):
        lines = [f'{key} = "{path}"' for key, path in settings.items()]
        place.write("sam.toml", "\n".join(["[publisher]", f'brokers = ["{broker.url}"]', *lines]))
        done = subprocess.run(
            [*ON_A_TERMINAL, *RESULT],
            stdin=end,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=files.directory,
            env=place.clean_environment(),
        )
        prompt = output()

    assert done.returncode == 0
    assert f"{settings['certificate_file']}: " in done.stderr
    assert "unencrypted key" in done.stderr
    assert prompt == b""
    assert (len(broker.logins), place.spooled("state/spool")) == (0, 1)


@contextmanager
def terminal() -> Iterator[tuple[int, Callable[[], bytes]]]:
    """A terminal without input, and a function that returns its output."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)

    def output() -> bytes:
        with suppress(BlockingIOError):
            return os.read(ours, 65536)
        return b""

    try:
        yield theirs, output
    finally:
        os.close(theirs)
        os.close(ours)
