"""The publisher with programs of others: openssl, an HTTP proxy, and monitoring plugins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.net.tls import ENCRYPTED
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import STATUSES
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.demo.files import HOW_TO_GET_PLUGINS, PLUGIN_DIRECTORIES
from tests.services import missing, needed
from tests.services.activemq import ActiveMQServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.tinyproxy import TinyProxy, running_tinyproxy
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.brokers.subscriber import subscribed
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message
from tests.support.commands import PROGRAMS, RESULT, Workplace
from tests.support.publishing import messages, secret

ON_A_TERMINAL = ("setsid", "--ctty", "--wait")
"""Makes standard input the terminal, /dev/tty, of the command that follows."""


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def test_authorities_and_revocation_lists_may_share_a_hashed_directory(files: TlsFiles) -> None:
    revoked, directory = files.host(), files.ca_directory()
    config = PublisherConfig(ca_file=directory, spool=files.directory / "spool", drain=False)
    with FakeBroker(tls=files.server()) as good, FakeBroker(tls=files.server(revoked)) as bad:
        assert publish(messages(1), config.replace(brokers=(bad.url,))).receipts
        shutil.copy(files.revocation_list(revoked), directory / "grid-ca.crl.pem")
        subprocess.run(["openssl", "rehash", str(directory)], check=True, timeout=30)
        config = config.replace(crl_file=directory)
        assert publish(messages(1), config.replace(brokers=(good.url,))).receipts
        (failure,) = publish(messages(1), config.replace(brokers=(bad.url,))).failures
        assert "its certificate is revoked" in failure.reason

        # An authority in the directory of the lists is not trusted for that.
        other = files.file("other.pem", files.other.cert_pem.bytes())
        config = config.replace(ca_file=other, brokers=(good.url,))
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
        "state_dir": files.directory / "state",
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
    assert ENCRYPTED in done.stderr
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


Server = ActiveMQServer | RabbitMQServer
USER = "proxy-user"
PASSWORD = "proxy-secret"


@pytest.fixture(scope="module")
def proxy() -> Iterator[TinyProxy]:
    """A proxy that requires a login."""
    with needed(running_tinyproxy(USER, PASSWORD)) as server:
        yield server


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name == "REQUEST_METHOD":
            monkeypatch.delenv(name)


@on_brokers("activemq", "rabbitmq")
def test_a_message_passes_the_proxy_with_its_login_alone(
    broker: Server, proxy: TinyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, asked = broker.url_with_user, f"CONNECT {broker.host}:{broker.port}"
    if isinstance(broker, RabbitMQServer):
        url, asked = broker.api_url, f"POST {broker.management_url}/api/exchanges/"
    password = secret(tmp_path / "password", broker.password)
    config = PublisherConfig(brokers=(url,), password_file=password)
    # Tinyproxy answers 401 to a wrong login.
    for login, status in (("", "407"), (f"{USER}:wrong-secret@", "401 Unauthorized")):
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", f"//{login}"))
        with pytest.raises(NoBrokerTookIt) as refusal:
            publish(messages(1), config)
        (failure,) = refusal.value.publication.failures
        assert status in failure.reason and f"proxy {proxy.url} (http_proxy)" in failure.reason
        assert "secret" not in failure.reason
    monkeypatch.setenv("http_proxy", proxy.url_with(f"{USER}:{PASSWORD}"))
    message = metric_message(destination=f"/topic/proxy.{uuid.uuid4().hex}")
    asked_before = len(proxy.asked)

    with subscribed(broker, message.headers["destination"]) as frames:
        publication = publish([message], config)
        frame = next(frames)

    assert len(publication.receipts) == 1
    assert frame.body == message.body
    assert proxy.asked[asked_before].startswith(asked)


# {closed} refuses connections, {fresh} is a new directory.
PLUGINS = [
    ("check_load", "-w 300,250,200 -c 900,800,700", 0),
    ("check_load", "--no-such-option", 3),
    ("check_disk", "-w 1% -c 0% -p /", 0),
    ("check_procs", "-w 0 -c 0", 2),
    ("check_dummy", "1 wärnung", 1),
    ("check_dummy", "2 'of|course'=1", 2),
    ("check_log", "-F /etc/passwd -O {fresh}/log -q no-such-line", 0),
    ("check_ping", "-H 127.0.0.1 -w 5000,90% -c 5000,95% -p 1", 0),
    ("check_tcp", "-H 127.0.0.1 -p {closed}", 2),
    ("negate", "{plugins}/check_dummy 0 fine", 2),
]


@pytest.mark.parametrize(
    ("name", "arguments", "code"), [pytest.param(*case, id=" ".join(case[:2])) for case in PLUGINS]
)
def test_run_changes_nothing(name: str, arguments: str, code: int, tmp_path: Path) -> None:
    directories = [directory for directory in PLUGIN_DIRECTORIES if (directory / name).exists()]
    plugin = (directories[0] if directories else missing(name, HOW_TO_GET_PLUGINS)) / name
    queue = DirectoryQueue(tmp_path / "queue")
    values = {"closed": closed_port(), "plugins": plugin.parent}

    def command(fresh: Path) -> list[str | Path]:
        fresh.mkdir()
        return [plugin, *(word.format(fresh=fresh, **values) for word in arguments.split())]

    alone = run(command(tmp_path / "alone"), tmp_path)
    publish = [PROGRAMS / "sam-publish", "run", "--broker", f"spool://{queue.path}", "--"]
    wrapped = run([*publish, *command(tmp_path / "wrapped")], tmp_path)

    assert alone.returncode == wrapped.returncode == code
    assert without_numbers(wrapped.stdout) == without_numbers(alone.stdout)
    assert without_numbers(alone.stderr) in without_numbers(wrapped.stderr)
    [element] = queue.names()
    [row] = decode(queue.read(element), METRIC_OUTPUT.keys, datetime.now(UTC)).rows
    first, _, more = wrapped.stdout.decode().strip().partition("\n")
    summary, _, items = first.partition("|")
    details, _, more_items = more.partition("|")
    assert row.values["metricName"] == f"org.nagios.{name}"
    assert row.values["metricStatus"] == STATUSES[code]
    assert row.values["summaryData"] == summary.strip()
    assert row.values.get("performanceData", "") == " ".join(f"{items} {more_items}".split())
    assert row.values.get("detailsData", "") == details.strip()


def run(command: Sequence[str | Path], home: Path) -> subprocess.CompletedProcess[bytes]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SAM_", "XDG_"))}
    environment = {**kept, "HOME": str(home), "STATE_DIRECTORY": str(home / "state")}
    return subprocess.run(command, capture_output=True, env=environment, cwd=home, timeout=60)


def without_numbers(output: bytes) -> bytes:
    """The output without numbers, which may differ a moment later."""
    return re.sub(rb"[\d.]+", b"#", output)
