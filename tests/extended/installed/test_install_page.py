"""docs/install.md with Debian packages, to the letter, on a bare Debian that runs systemd."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sam_pipeline.schema.records.classes import BUILT_IN
from tests.extended.installed.installation import (
    ACCOUNTS,
    PAGE,
    REMOVE,
    SECTIONS,
    UPGRADE,
    check_installed,
    check_removed,
    packages_or_missing,
)
from tests.services import needed
from tests.services.activemq import running_activemq
from tests.services.debian import booted_debian
from tests.services.machine import Machine
from tests.support.network import own_network
from tests.support.page import Page
from tests.support.waiting import eventually

(INSTALL,) = PAGE.texts("sh", "From a bare host")
(WORKER,) = PAGE.texts("sh", "Worker nodes")
BROKER_OF_THE_PAGE = "msg1.example.org:61613"
STARTING = "the database system is starting up"
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d")
TOKEN = re.compile(r"^[0-9a-f]{64}$", re.MULTILINE)
METRIC = "sam-publish result --metric org.example.Ping --flavour CE"
PUBLISH = f"{METRIC} --host ce01.example.org"
NOBODY = "stomp://127.0.0.1:9"
"""Nothing listens there."""


@dataclass(frozen=True)
class Host:
    """A machine on which the page is followed, with the broker of this test as its own."""

    machine: Machine
    broker: str

    def follow(self, *blocks: str) -> list[str]:
        """The output of each block of shell commands."""
        here = [text.replace(BROKER_OF_THE_PAGE, self.broker) for text in blocks]
        return [self.machine.succeed(text) for text in here]

    def rows(self, where: str = "true", view: str = "metricoutput") -> int:
        query = f"SELECT count(*) FROM {view} WHERE {where}"
        return int(self.machine.succeed(f'su - postgres -c "psql -At sam -c \\"{query}\\""'))

    def journal(self, *options: str) -> list[dict[str, Any]]:
        """The entries of the consumer itself, without those of systemd about it."""
        command = "journalctl --output=json _SYSTEMD_UNIT=sam-consume.service"
        lines = self.machine.succeed(" ".join([command, *options])).splitlines()
        return [json.loads(line) for line in lines]

    def property(self, name: str) -> str:
        return self.machine.succeed(f"systemctl show -P {name} sam-consume").strip()


@pytest.fixture(scope="module")
def bare() -> Iterator[Host]:
    """Where the programs are installed, and nothing else has been done."""
    shared = {"packages": packages_or_missing().directory}
    with (
        own_network(),
        needed(running_activemq()) as broker,
        needed(booted_debian(shared)) as machine,
    ):
        host = Host(replace(machine, directory="/mnt/packages"), f"{broker.host}:{broker.port}")
        host.follow(INSTALL)
        yield host


@pytest.fixture(scope="module")
def host(bare: Host) -> Host:
    """Where everything on the page up to the first result has been done."""
    output = {section: bare.follow(*PAGE.texts("sh", section)) for section in SECTIONS}
    [checked] = output["Broker"]
    assert checked.count("round trip") == len(BUILT_IN)
    assert "no problem found" in checked
    return bare


def test_packages_lead_to_the_programs_and_units(bare: Host) -> None:
    check_installed(bare.machine)


def test_the_page_leads_to_a_service_that_stores_the_first_result(host: Host) -> None:
    publish, look = PAGE.texts("sh", "First result")
    assert "published" in host.machine.succeed(publish)

    eventually(lambda: host.rows() == 1, timeout_s=60)

    monitoring = host.machine.succeed(look)
    assert "ce01.example.org | org.example.Ping | OK" in monitoring
    assert "CONSUMER OK - site-a running" in monitoring
    assert monitoring.endswith("-- No entries --\n")
    host.machine.succeed("apt-get install -y curl openssl")
    assert host.machine.succeed("curl --silent --fail http://127.0.0.1:9464/readyz")


def test_the_first_report_is_in_the_terminal_and_in_pages(host: Host) -> None:
    publish, compute = PAGE.texts("sh", "First report")
    (figures,) = PAGE.texts("text", "First report")
    host.follow(publish)
    eventually(lambda: host.rows() == 4, timeout_s=60)
    eventually(lambda: host.rows(view="serviceendpoint") == 1, timeout_s=60)

    [printed] = host.follow(compute)

    assert figures.strip() in printed
    assert "CRITICAL 07:00:00-08:00:00" in printed
    journal = host.machine.succeed("journalctl --output=cat -u sam-report")
    assert re.search(r"critical [\d-]+: 3 results", journal), journal
    assert "critical" in host.machine.succeed("cat /var/lib/sam-report/pages/index.html")


def test_each_account_logs_in_without_a_password_and_only_with_the_roles_of_its_services(
    host: Host,
) -> None:
    ask = "SELECT rolname FROM pg_roles WHERE rolname ~ '^sam_' AND pg_has_role(oid, 'member')"
    others = "runuser -u sam -- psql --username sam-admin sam"

    roles = {
        account: {*host.machine.succeed(f'runuser -u {account} -- psql -At sam -c "{ask}"').split()}
        for account in ACCOUNTS
    }

    assert roles == {
        "sam": {"sam_loader", "sam_topology"},
        "sam-report": {"sam_reporter", "sam_archiver"},
        "sam-admin": {"sam_owner"},
    }
    assert "Peer authentication failed" in host.machine.shell(others).stdout
    # Whatever is configured can be read by everyone, so it must not be secret.
    assert host.machine.succeed("find /etc/sam -not -perm /o=r") == ""
    assert host.machine.succeed("grep -rhi passw /etc/sam | grep -v '^#' || true") == ""


def test_a_warning_of_the_service_is_one_of_the_journal_with_one_timestamp(host: Host) -> None:
    host.machine.succeed("systemctl stop postgresql")
    host.machine.succeed(f"{PUBLISH} --status WARNING")
    eventually(lambda: bool(host.journal("-p warning")), timeout_s=60)
    host.machine.succeed("systemctl start postgresql")
    eventually(lambda: host.rows("metricstatus = 'WARNING'") == 1, timeout_s=60)

    lines = [(entry["PRIORITY"], entry["MESSAGE"]) for entry in host.journal()]

    [away, *starting] = [line for line in lines if line[1].endswith("; waiting, nothing is acked")]
    assert away[0] == "4" and '.s.PGSQL.5432" failed: No such file or directory' in away[1]
    # The server is up again before it accepts logins, which the consumer may notice once.
    assert [(rank, text) for rank, text in starting if rank != "4" or STARTING not in text] == []
    assert len(starting) <= 1
    assert {rank for rank, text in lines if "subscribed as" in text} == {"6"}
    assert [text for _, text in lines if TIMESTAMP.match(text) or text.startswith("<")] == []


def test_systemd_starts_the_service_when_a_sender_is_at_its_door(host: Host) -> None:
    install, start = Page("docs/door-setup.md").texts("sh", "As a service")
    files = "-keyout /etc/grid-security/hostkey.pem -out /etc/grid-security/hostcert.pem"
    names = {"certificate_file": "hostcert.pem", "key_file": "hostkey.pem", "tokens_file": "tokens"}
    door = "\\n".join(f'{key} = "/etc/sam/{name}"' for key, name in names.items())
    host.machine.succeed(
        f"""
        mkdir /etc/grid-security
        openssl req -x509 -nodes -newkey rsa:2048 -days 2 {files} -subj /CN=localhost \\
            -addext subjectAltName=DNS:localhost
        sed -i '/^.consumer./,/^$/ s#^brokers = .#&"listen+https://0.0.0.0:8443", #' \\
            /etc/sam/conf.d/site.toml
        echo -e '[consumer.door]\\n{door}' >> /etc/sam/conf.d/site.toml
        """
    )
    [token] = TOKEN.findall(host.machine.succeed(install))
    host.machine.succeed(start)

    host.machine.succeed(
        f"""
        systemctl stop sam-consume
        export SAM_PUBLISHER_CA_FILE=/etc/grid-security/hostcert.pem SAM_PUBLISHER_TOKEN={token}
        {PUBLISH} --status OK --broker sam+https://localhost:8443 --require-broker --timeout 60
        """
    )

    assert host.rows("publisher = 'token:nagios1'") == 1


def test_an_upgrade_loses_no_result_that_is_published_meanwhile(host: Host) -> None:
    install, _, rest = UPGRADE.partition("\n")

    host.machine.succeed(f"{install}\n{PUBLISH} --status UNKNOWN\n{rest}")

    eventually(lambda: host.rows("metricstatus = 'UNKNOWN'") == 1, timeout_s=60)
    assert host.property("ActiveState") == "active"


def test_a_purge_leaves_nothing(host: Host) -> None:
    [removed] = host.follow(REMOVE)

    assert removed.count("deleted") == len(BUILT_IN)
    check_removed(host.machine)
    roles = 'su - postgres -c "psql -At -c \\"SELECT rolname FROM pg_roles\\""'
    assert "sam" not in host.machine.succeed(roles)


def test_a_worker_node_publishes_for_a_group_and_drains_its_spool(bare: Host) -> None:
    """After the purge, where the host is a bare one again."""
    bare.machine.succeed("getent passwd nagios || useradd --system nagios")
    [checked] = bare.follow(WORKER)
    assert "no problem found" in checked
    bare.machine.succeed("systemctl stop sam-publish-drain.timer")  # only when this test says so

    bare.machine.succeed(f"cd /; runuser -u nagios -- {PUBLISH} --status OK --broker {NOBODY}")
    spooled = "find /var/spool/sam -type f"
    assert bare.machine.succeed(spooled)
    assert bare.machine.succeed("cd /; runuser -u nagios -- check_sam_publisher")
    bare.machine.succeed("systemctl start sam-publish-drain")
    assert bare.machine.succeed(spooled) == ""
