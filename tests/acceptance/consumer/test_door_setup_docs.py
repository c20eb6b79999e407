"""Every command of docs/door-setup.md works; those of a service are in test_install_page.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import needed
from tests.services.nginx import running_nginx
from tests.services.process import HOST, free_ports, port_is_open
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message, metric_result
from tests.support.commands import Answer, Workplace, embedded
from tests.support.consumer.site import eventually
from tests.support.page import Page, shell
from tests.support.reports.stored import query

PAGE = Page("docs/door-setup.md")
(TRY_TOML,) = PAGE.texts("toml", "Try it")
TRY_CHECK, TRY_HEALTH = PAGE.texts("sh", "Try it")
(HTTPS_TOML,) = PAGE.texts("toml", "A certificate for HTTPS")
TOKEN, RELOAD = PAGE.texts("sh", "Tokens")
(CLIENTS_TOML,) = PAGE.texts("toml", "Client certificates")
(SUBJECT,) = PAGE.texts("sh", "Client certificates")
(POLICY_TOML,) = PAGE.texts("toml", "Who may send what")
(NGINX,) = PAGE.texts("nginx", "Behind nginx")
(NGINX_TOML,) = PAGE.texts("toml", "Behind nginx")
(CHECK,) = PAGE.texts("sh", "Check")
INSTALLED = PAGE.texts("sh", "As a service")
"""Run by test_install_page.py."""

DATABASE = '[database]\nurl = "sqlite:///sam.db"\n'
STARTED = "starting with"


@contextmanager
def consumer(workplace: Workplace, port: int) -> Iterator[int]:
    """The process id of a running consumer, once it listens."""
    with workplace.running("sam-consume", "run") as process:
        eventually(lambda: port_is_open(port) or process.poll() is not None)
        yield process.pid


def succeed(workplace: Workplace, script: str) -> str:
    answer = shell(workplace, script)
    assert answer.code == 0, str(answer)
    return answer.out


def posted(workplace: Workplace, url: str, metric: str, *options: str) -> str:
    """The status of a message that curl sends."""
    body = metric_message(metric_result(metricName=metric)).body.decode()
    workplace.write("body", body)
    written = "-s -o answer -w '%{http_code}'"
    answer: Answer = shell(
        workplace, f"curl {written} {' '.join(options)} --data-binary @body -H Content-Type: {url}"
    )
    return answer.out


def senders(workplace: Workplace) -> dict[str, str]:
    rows = query(workplace.database, "SELECT metricName, publisher FROM metricOutput")
    return {row["metricName"]: row["publisher"] for row in rows}


def bearer(token: str) -> str:
    return f"-H 'Authorization: Bearer {token}'"


def test_an_address_of_this_machine_needs_nothing_else(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    workplace = embedded(tmp_path)
    workplace.write("sam.toml", DATABASE + TRY_TOML.replace("8080", str(port)))

    succeed(workplace, TRY_CHECK)
    with consumer(workplace, port):
        health = succeed(workplace, TRY_HEALTH.replace("8080", str(port)))

    assert health == '{"status": "alive"}'


def test_a_door_for_other_machines_knows_its_senders(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    workplace, files = embedded(tmp_path), TlsFiles(tmp_path)
    host, sender = files.host(), files.client()
    files.certificate_file(host, "hostcert.pem")
    files.key_file(host, name="hostkey.pem")
    files.certificate_file(sender, "nagios1.pem")
    files.key_file(sender, name="nagios1-key.pem")
    files.revocation_list()
    clients = re.sub('^(.*)_file = ".*"', r'\1_file = "\1.pem"', CLIENTS_TOML, flags=re.MULTILINE)
    (tmp_path / "client_ca.pem").write_bytes(files.ca_file.read_bytes())
    https = HTTPS_TOML.replace("8443", str(port))
    policy = '[consumer]\npublishers = "publishers.toml"'
    workplace.write("sam.toml", DATABASE + https.replace("[consumer]", policy) + clients)
    workplace.write("publishers.toml", 'mode = "enforce"\n')
    first, listed = succeed(workplace, TOKEN).split("\n", 1)
    assert "nagios1" in listed
    assert first not in listed

    subject = succeed(workplace, SUBJECT).strip().removeprefix("subject=")
    rule = re.sub(r"cert:[^\"]*", f"cert:{subject}", POLICY_TOML)
    url = f"https://{HOST}:{port}/v1/messages/metricOutput --cacert ca.pem"
    with consumer(workplace, port) as process:
        assert posted(workplace, url, "not listed", bearer(first)) == "403"
        workplace.write("publishers.toml", f'mode = "enforce"\n{rule}')
        succeed(workplace, RELOAD.replace("systemctl reload sam-consume", f"kill -HUP {process}"))
        log = tmp_path / "running.log"
        eventually(lambda: log.read_text().count(STARTED) == 2)

        assert posted(workplace, url, "token", bearer(first)) == "200"
        certificate = "--cert nagios1.pem --key nagios1-key.pem"
        assert posted(workplace, url, "certificate", certificate) == "200"
        assert posted(workplace, url, "login", f"-u nagios1:{first}") == "200"
        assert posted(workplace, url, "nobody") == "401"
        assert "listening" in succeed(workplace, CHECK)

    token, from_certificate = "token:nagios1", f"cert:{subject}"
    assert senders(workplace) == {"token": token, "login": token, "certificate": from_certificate}


def test_behind_nginx_senders_are_known_by_their_tokens_alone(tmp_path: Path) -> None:
    front, port = free_ports(2)
    workplace, files = embedded(tmp_path), TlsFiles(tmp_path)
    host = files.host()
    blocks = (
        NGINX.replace("8080", str(port))
        .replace("listen 443", f"listen {HOST}:{front}")
        .replace("/etc/ssl/private/door.pem", str(files.key_file(host)))
        .replace("/etc/ssl/door.pem", str(files.certificate_file(host)))
    )
    workplace.write("sam.toml", DATABASE + NGINX_TOML.replace("8080", str(port)))
    token = succeed(workplace, TOKEN).split("\n", 1)[0]
    url = f"https://{HOST}:{front}/v1/messages/metricOutput --cacert ca.pem"
    forged = (
        "-H 'X-Forwarded-For: 127.0.0.1' -H 'X-SSL-Client-S-DN: CN=nagios1' -H 'Forwarded: for=::1'"
        " -H 'samIdentity: operator:root' -H 'Sam-Identity: operator:root'"
    )

    with consumer(workplace, port), needed(running_nginx(blocks, front, tmp_path / "nginx")):
        assert posted(workplace, url, "nobody", forged) == "401"
        assert posted(workplace, url, "token", bearer(token), forged) == "200"
        many = "".join(f"m{number} " for number in range(200_000))
        assert posted(workplace, url, many, bearer(token)) == "200"

    assert set(senders(workplace).values()) == {"token:nagios1"}


def test_the_tests_use_every_command_of_the_page() -> None:
    assert PAGE.unused("sh", "toml", "nginx") == []
