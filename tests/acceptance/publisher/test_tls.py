"""`sam-publish` with certificates and keys in files: which it accepts, and which it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat

from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.tls_files import NOW, TlsFiles

RESULT = ["result", "--metric", "m", "--status", "OK", "--host", "h", "--flavour", "CE"]
ON_A_TERMINAL = ("setsid", "--ctty", "--wait")
"""Makes standard input the terminal, /dev/tty, of the command that follows."""


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


def test_the_authorities_may_be_a_hashed_directory(files: TlsFiles) -> None:
    with FakeBroker(tls=files.server()) as broker:
        done = sam_publish(files, broker.url, {"ca_file": files.ca_directory()})

    assert done.returncode == 0
    assert len(broker.taken) == 1


@pytest.mark.parametrize(
    "form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL], ids=["PKCS#8", "traditional"]
)
def test_a_key_with_a_passphrase_is_reported_without_a_prompt(
    files: TlsFiles, spool: DirectoryQueue, form: PrivateFormat
) -> None:
    client = files.client()
    certificate = files.certificate_file(client)
    options = {"key_file": files.locked_key_file(client, form), "certificate_file": certificate}

    with FakeBroker(tls=files.server(wants_ours=True)) as broker, terminal() as (end, output):
        done = sam_publish(files, broker.url, options, *ON_A_TERMINAL, stdin=end)
        prompt = output()

    assert done.returncode == 0
    assert f"{certificate}: " in done.stderr
    assert "unencrypted key" in done.stderr
    assert prompt == b""
    assert (len(broker.logins), spool.count()) == (0, 1)


@pytest.mark.parametrize("program", ["publisher", "consumer"])
@pytest.mark.parametrize(
    ("days", "code", "text"),
    [
        ((-90, -1), 78, "the certificate expired on"),
        ((1, 90), 78, "the certificate is not valid before"),
        ((-90, 13), 0, "note: "),
        ((-90, 90), 0, ""),
    ],
    ids=["expired", "not yet valid", "soon", "valid"],
)
def test_check_finds_certificates_that_are_out_of_their_time_or_soon_will_be(
    files: TlsFiles, program: str, days: tuple[int, int], code: int, text: str
) -> None:
    begin, end = (NOW + timedelta(days=day) for day in days)
    client = files.client(begin, end)
    path = files.certificate_file(client)

    done = check(files, program, path, files.key_file(client))

    assert done.returncode == code
    assert text in done.stderr
    assert (str(path) in done.stderr) == bool(text)


@pytest.mark.parametrize("program", ["publisher", "consumer"])
def test_check_finds_the_key_of_another_certificate(files: TlsFiles, program: str) -> None:
    other = files.key_file(files.client())

    done = check(files, program, files.certificate_file(files.client()), other)

    assert done.returncode == 78
    assert "the key does not match the certificate" in done.stderr


def test_a_round_trip_names_the_expired_certificate_of_the_broker(files: TlsFiles) -> None:
    with FakeBroker(tls=files.server(files.expired_host())) as broker:
        done = sam_publish(files, broker.url, {}, command=["check", "--connect"])

    assert done.returncode == 78
    assert "its certificate has expired" in done.stderr


def test_plain_stomp_at_a_port_for_tls_names_the_right_url(files: TlsFiles) -> None:
    alert = bytes.fromhex("15 0303 0002 02 46")  # of a TLS server that was sent a frame
    with FakeBroker(greeting=alert) as broker:
        done = sam_publish(files, broker.url, {})

    assert "it speaks TLS on this port: use stomp+ssl://" in done.stderr


@pytest.mark.parametrize("key", ["key_file", "certificate_file", "password_file"])
def test_a_secret_that_others_may_read_is_refused_at_the_start(
    files: TlsFiles, spool: DirectoryQueue, key: str
) -> None:
    client = files.client()
    exposed = {
        "key_file": lambda: files.key_file(client, mode=0o644),
        "certificate_file": lambda: files.x509_proxy(client, mode=0o644),
        "password_file": lambda: files.file("password", b"canary\n", mode=0o644),
    }
    path = exposed[key]()

    with FakeBroker(tls=files.server()) as broker:
        done = sam_publish(files, broker.url, {key: path})

    assert done.returncode == 78
    assert f"{path}: " in done.stderr
    assert "mode 0644" in done.stderr
    assert "canary" not in done.stderr + done.stdout
    assert (broker.connections, spool.count()) == (0, 0)


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


def sam_publish(
    files: TlsFiles,
    url: str,
    options: Mapping[str, Path],
    *before: str,
    stdin: int = subprocess.DEVNULL,
    command: Sequence[str] = RESULT,
) -> subprocess.CompletedProcess[str]:
    """Publish one result with `sam-publish`, or run another command, configured by a file."""
    keys = {"ca_file": files.ca_file, "spool": files.directory / "spool", **options}
    lines = ["[publisher]", f'brokers = ["{url}"]', *(f'{k} = "{v}"' for k, v in keys.items())]
    (files.directory / "sam.toml").write_text("\n".join(lines))
    return run(
        files, *before, sys.executable, "-m", "sam_pipeline.publisher", *command, stdin=stdin
    )


def check(
    files: TlsFiles, program: str, certificate: Path, key: Path
) -> subprocess.CompletedProcess[str]:
    """`check` of the publisher, or of the consumer as a relay."""
    spool = files.directory / "spool"
    lines = [
        f"[{program}]",
        'brokers = ["stomp+ssl://msg.example.org"]',
        f'ca_file = "{files.ca_file}"',
    ]
    lines += [f'certificate_file = "{certificate}"', f'key_file = "{key}"']
    options = []
    if program == "consumer":
        lines += ['name = "tls"', "[[consumer.subscription]]", 'destination = "/topic/a"']
        options = ["--to", f"spool://{spool}"]
    (files.directory / "sam.toml").write_text("\n".join(lines))
    return run(files, sys.executable, "-m", f"sam_pipeline.{program}", "check", *options)


def run(
    files: TlsFiles, *command: str, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=20,
        cwd=files.directory,
        env={"PATH": os.environ["PATH"], "STATE_DIRECTORY": str(files.directory / "state")},
        check=False,
    )
