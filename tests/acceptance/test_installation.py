"""docs/install.md, to the letter, on a machine of its own where systemd runs the services."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sam_pipeline.schema.records.classes import BUILT_IN
from tests.services import needed
from tests.services.activemq import running_activemq
from tests.services.machine import Machine, booted_copy
from tests.services.process import wait_until
from tests.support.network import own_network
from tests.support.page import Page

PAGE = Page("docs/install.md")
INSTALLATION = (
    "Packages",
    "Account and programs",
    "Database",
    "Configuration",
    "Broker",
    "Services",
)
BROKER_OF_THE_PAGE = "msg1.example.org:61613"
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d")
TOKEN = re.compile(r"^[0-9a-f]{64}$", re.MULTILINE)
PUBLISH = "sam-publish result --metric org.sam.CE-Ping --host ce01.example.org --flavour CE"
ENDPOINT = json.dumps(
    {
        "siteName": "EXAMPLE-SITE",
        "hostName": "ce01.example.org",
        "serviceFlavour": "CE",
        "validFrom": "2026-01-01T00:00:00Z",
    }
)


@dataclass(frozen=True)
class Host:
    """A machine on which the page is followed, with the broker of this test as its own."""

    machine: Machine
    broker: str

    def follow(self, section: str) -> list[str]:
        """The output of each block of shell commands of a section."""
        texts = PAGE.texts("sh", section)
        here = [text.replace(BROKER_OF_THE_PAGE, self.broker) for text in texts]
        return [self.machine.succeed(text) for text in here]

    def rows(self, where: str = "true") -> int:
        query = f"SELECT count(*) FROM metricoutput WHERE {where}"
        return int(self.machine.succeed(f'su - postgres -c "psql -At sam -c \\"{query}\\""'))

    def journal(self, *options: str) -> list[dict[str, Any]]:
        """The entries of the consumer itself, without those of systemd about it."""
        command = "journalctl --output=json _SYSTEMD_UNIT=sam-consume.service"
        lines = self.machine.succeed(" ".join([command, *options])).splitlines()
        return [json.loads(line) for line in lines]

    def property(self, name: str) -> str:
        return self.machine.succeed(f"systemctl show -P {name} sam-consume").strip()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """Where everything on the page up to the first result has been done."""
    with own_network(), needed(running_activemq()) as broker, needed(booted_copy()) as machine:
        host = Host(machine, f"{broker.host}:{broker.port}")
        reports = {section: host.follow(section) for section in INSTALLATION}
        [checked] = reports["Broker"]
        assert checked.count("round trip") == len(BUILT_IN)
        assert "no problem found" in checked
        yield host


def test_the_page_leads_to_a_service_that_stores_the_first_result(host: Host) -> None:
    publish, query, look = PAGE.texts("sh", "First result")
    assert "published" in host.machine.succeed(publish)

    wait_until(lambda: host.rows() == 1, timeout_s=60)

    assert "ce01.example.org | org.example.Ping | OK" in host.machine.succeed(query)
    monitoring = host.machine.succeed(look)
    assert "CONSUMER OK - site-a running" in monitoring
    assert monitoring.endswith("-- No entries --\n")
    assert host.machine.succeed("curl --silent --fail http://127.0.0.1:9464/readyz")


def test_a_warning_of_the_service_is_one_of_the_journal_with_one_timestamp(host: Host) -> None:
    host.machine.succeed("systemctl stop postgresql")
    host.machine.succeed(f"{PUBLISH} --status WARNING")
    wait_until(lambda: bool(host.journal("-p warning")), timeout_s=60)
    host.machine.succeed("systemctl start postgresql")
    wait_until(lambda: host.rows("metricstatus = 'WARNING'") == 1, timeout_s=60)

    entries = host.journal()
    priority_of = {entry["MESSAGE"]: entry["PRIORITY"] for entry in entries}

    assert [value for text, value in priority_of.items() if "nothing is acked" in text] == ["4"]
    assert [value for text, value in priority_of.items() if "subscribed as" in text] == ["6"]
    assert [text for text in priority_of if TIMESTAMP.match(text) or text.startswith("<")] == []


def test_a_reload_reads_the_configuration_without_a_new_process(host: Host) -> None:
    process = host.property("MainPID")
    host.machine.succeed("sed -i 's/127.0.0.1:9464/127.0.0.1:9465/' /etc/sam/sam.toml")

    host.machine.succeed("systemctl reload sam-consume")

    url = "http://127.0.0.1:9465/readyz"
    wait_until(lambda: host.machine.shell(f"curl -sf {url}").returncode == 0, timeout_s=60)
    assert host.property("MainPID") == process
    assert host.property("NRestarts") == "0"


def test_probes_of_another_account_share_a_spool_with_the_service(host: Host) -> None:
    share, *_ = Page("docs/consumer.md").texts("sh", "Share a spool")
    spool = "spool:///var/spool/sam-in"
    host.machine.succeed(
        f"""
        getent passwd nagios || useradd --system nagios
        {share}
        sed -i '/^.consumer./,/^$/ s#^brokers = .#&"{spool}", #' /etc/sam/sam.toml
        systemctl restart sam-consume
        runuser -u nagios -- {PUBLISH} --status CRITICAL --broker '{spool}?umask=007'
        """
    )

    wait_until(lambda: host.rows("metricstatus = 'CRITICAL'") == 1, timeout_s=60)

    # The spool may be read before the broker has answered.
    wait_until(lambda: "running" in host.machine.shell("sam-consume status").stdout, timeout_s=60)


def test_systemd_starts_the_service_when_a_sender_is_at_its_door(host: Host) -> None:
    install, start = Page("docs/door-setup.md").texts("sh", "As a service")
    files = "-keyout /etc/grid-security/hostkey.pem -out /etc/grid-security/hostcert.pem"
    door = 'certificate_file = "hostcert.pem"\\nkey_file = "hostkey.pem"\\ntokens_file = "tokens"'
    host.machine.succeed(
        f"""
        mkdir /etc/grid-security
        openssl req -x509 -nodes -newkey rsa:2048 -days 2 {files} -subj /CN=localhost \\
            -addext subjectAltName=DNS:localhost
        sed -i '/^.consumer./,/^$/ s#^brokers = .#&"listen+https://0.0.0.0:8443", #' \\
            /etc/sam/sam.toml
        echo -e '[consumer.door]\\n{door}' >> /etc/sam/sam.toml
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


def test_the_nightly_report_computes_a_day_in_its_sandbox(host: Host) -> None:
    yesterday = host.machine.succeed("date -u -d yesterday +%F").strip()
    host.machine.succeed(
        f"""
        sam-publish send --class serviceEndpoint <<< '{ENDPOINT}'
        {PUBLISH} --status OK --vo ops --timestamp {yesterday}T00:30:00Z
        """
    )
    wait_until(lambda: host.rows("voname = 'ops'") == 1, timeout_s=60)

    host.machine.succeed("systemctl start sam-report")

    journal = host.machine.succeed("journalctl --output=cat -u sam-report")
    assert f"critical {yesterday}: 1 result" in journal


def test_an_upgrade_loses_no_result_that_is_published_meanwhile(host: Host) -> None:
    [upgrade] = PAGE.texts("sh", "Upgrade")
    stop, _, rest = upgrade.partition("\n")

    host.machine.succeed(f"{stop}\n{PUBLISH} --status UNKNOWN\n{rest}")

    wait_until(lambda: host.rows("metricstatus = 'UNKNOWN'") == 1, timeout_s=60)
    assert host.property("ActiveState") == "active"


def test_removal_leaves_nothing(host: Host) -> None:
    host.follow("Removal")

    left = host.machine.succeed("ls -d /etc/sam /opt/sam /var/lib/sam /usr/bin/sam-* 2>&1 || true")
    assert left.count("No such file") == 4
    assert host.machine.shell("getent passwd sam").returncode == 2
    roles = 'su - postgres -c "psql -At -c \\"SELECT rolname FROM pg_roles\\""'
    assert "sam_" not in host.machine.succeed(roles)
    assert "0 unit files" in host.machine.shell("systemctl list-unit-files 'sam-*'").stdout


def test_every_command_of_the_page_is_run_here() -> None:
    sections = {block.section for block in PAGE.blocks if block.language == "sh"}

    assert sections == {*INSTALLATION, "First result", "Upgrade", "Removal"}
