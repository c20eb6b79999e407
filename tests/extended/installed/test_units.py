"""The units, installed by our packages on a machine of its own where systemd runs all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from configparser import RawConfigParser
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.settings.broker import secret_of
from sam_pipeline.schema.settings.key import Settings
from sam_pipeline.sql.archive import config as archive
from sam_pipeline.sql.imports import feed_config as feeds
from tests.extended.installed.installation import packages_or_missing
from tests.services import needed
from tests.services.machine import Machine, booted_machine
from tests.support.network import own_network
from tests.support.page import ROOT, Page
from tests.support.waiting import eventually

PAGE = Page("docs/services.md")
FILES = {path.name: path for path in ROOT.glob("deploy/systemd/*/sam-*") if path.is_file()}
HOOK = "sam-failed@.service"
WAIT_S = 120
WORST_EXPOSURE = 3.0
"""Of 10, which `systemd-analyze security` gives a service without any limits."""

INSTANCES = {
    "sam-consume@.service": "sam-consume@atlas.service",
    "sam-consume-process@.service": "sam-consume-process@1.service",
    "sam-relay@.service": "sam-relay@bridge.service",
    HOOK: "sam-failed@sam-consume.service.service",
}
"""How the templates are started here."""

(DATABASE,) = Page("docs/install.md").texts("sh", "Database")
PASSWORDS = Page("docs/roles.md").texts("sql", "A database on another host")[0]
(PASS_FILES,) = Page("docs/roles.md").texts("sh", "A database on another host")
TEXTFILE = "/var/lib/prometheus/node-exporter/sam-publish.prom"
SPOOLED = "$(find /var/spool/sam -type f)"
IMPORTED = "su - postgres -c \"psql -At sam -c 'SELECT hostName FROM serviceEndpoint'\""
DONE = {
    "sam-db-archive.service": "journalctl -u sam-db-archive | grep 'nothing is due'",
    "sam-db-import.service": f"{IMPORTED} | grep ce01",
    "sam-db-partitions.service": "journalctl -u sam-db-partitions | grep Finished",
    "sam-db-prune.service": "journalctl -u sam-db-prune | grep prune",
    "sam-publish-drain.service": f'test -z "{SPOOLED}"',
    "sam-publish-status.service": f"grep ^sam_publish_spool_messages {TEXTFILE}",
    "sam-report.service": "journalctl -u sam-report | grep 'nothing is due'",
    "sam-report-pages.service": "test -s /var/lib/sam-report/pages/index.html",
    "sam-report-export.service": "journalctl -u sam-report-export | grep Finished",
}
"""Shell commands that succeed once a service has done its work."""

ON_POSTGRESQL = '[database]\nurl = "postgresql:///sam"\n'
CONFIGURATION = {
    "sam": f"""{ON_POSTGRESQL}[publisher]
brokers = ["spool:///var/spool/sam-in"]
[consumer]
name = "site-a"
brokers = ["spool:///var/spool/sam-in", "listen+http://127.0.0.1:8443"]
[report]
profiles = ["critical.toml"]
[archive]
url = "/var/lib/sam-report/archive"
[[import.feed]]
kind = "vofeed"
url = "http://127.0.0.1:8000/vofeed.xml\"""",
    "atlas": f"""{ON_POSTGRESQL}[consumer]
name = "atlas"
brokers = ["spool:///var/spool/sam-atlas"]""",
    "bridge": """[consumer]
name = "bridge"
brokers = ["spool:///var/spool/sam-bridge"]
relay_to = ["spool:///var/spool/sam-in"]""",
}
FEED = """<root><vo>atlas</vo><atp_site name="SITE-A">
<service hostname="ce01.example.org" flavour="CE"/></atp_site></root>"""
PREPARED = {
    "sam-publish-drain.service": f"""
        runuser -u sam -- sam-publish --config /etc/sam/sam.toml result \\
            --broker stomp://127.0.0.1:1 --metric org.sam.CE-Ping --status OK \\
            --host ce01.example.org --flavour CE
        test -n "{SPOOLED}"
    """,
    "sam-report-export.service": "install -d -o sam-report -g sam /var/lib/sam-report/exports",
}
"""Shell commands before a service has any work."""


@dataclass(frozen=True)
class Host:
    machine: Machine

    def property(self, unit: str, name: str) -> str:
        return self.machine.succeed(f"systemctl show -P {name} {unit}").strip()

    def is_active(self, unit: str) -> bool:
        return self.property(unit, "ActiveState") == "active"

    def has_reported(self, unit: str) -> bool:
        """Whether the hook has reported a failure of the unit since the last `forgive`."""
        command = "journalctl -o cat -p err -t sam-failed --since=@$(cat /run/forgiven)"
        return f"{unit} failed" in self.machine.succeed(command)

    def has_run(self, unit: str) -> bool:
        """Whether systemd has started the unit since the last `forgive`."""
        command = f"journalctl -o cat -u {unit} --since=@$(cat /run/forgiven)"
        return "Starting " in self.machine.succeed(command)

    def forgive(self) -> None:
        """Stop everything, and let the hook report the next failure of each unit.

        It may have to stop the hook for units that it has stopped.
        """
        self.machine.succeed(
            """
            until systemctl stop 'sam-*'; systemctl reset-failed
                test -z "$(systemctl list-units --plain --no-legend 'sam-*')"; do :; done
            date +%s.%6N >/run/forgiven
            """
        )


def settings(name: str) -> RawConfigParser:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FILES[name])
    return unit


def instance_of(name: str) -> str:
    return INSTANCES.get(name, name)


def configuration_of(name: str) -> str:
    """The file that the service reads, on the machine."""
    path = re.findall(r"/etc/sam/\S+\.toml", settings(name)["Service"]["ExecStart"])[0]
    return path.replace("%i", instance_of(name).partition("@")[2].removesuffix(".service"))


SERVICES = [name for name in sorted(FILES) if name.endswith(".service") and name != HOOK]
DAEMONS = [name for name in SERVICES if settings(name)["Service"]["Type"] == "notify"]
JOBS = [name for name in SERVICES if name not in DAEMONS]
TIMERS = [name for name in sorted(FILES) if name.endswith(".timer")]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine with the packages and a configuration for each service, on PostgreSQL."""
    shared = {"packages": packages_or_missing().directory}  # which may need the network
    with own_network(), needed(booted_machine(Path("/"), shared)) as machine:
        machine.succeed("dpkg --install --force-depends /mnt/packages/*.deb")
        for name, text in CONFIGURATION.items():
            machine.succeed(f"cat >/etc/sam/{name}.toml <<'END'\n{text}\nEND")
        profile = (ROOT / "deploy" / "critical.toml").read_text()
        machine.succeed(
            f"""
            cat >/etc/sam/critical.toml <<'END'
{profile}
END
            for name in in atlas bridge; do install -d -o sam -g sam /var/spool/sam-$name; done
            install -d -o sam -g sam $(dirname {TEXTFILE})
            install -d -o sam-report -g sam /var/lib/sam-report/archive
            systemctl start postgresql
            {DATABASE}
            install -d /srv/feeds
            echo '{FEED}' >/srv/feeds/vofeed.xml
            systemd-run --quiet --unit feeds python3 -m http.server --directory /srv/feeds 8000
            mkdir -p /run/systemd/system/sam-.service.d
            printf '[Service]\\nRestartSec=1s\\n' >/run/systemd/system/sam-.service.d/90-test.conf
            systemctl daemon-reload
            """
        )
        yield machine


@pytest.fixture
def host(machine: Machine) -> Iterator[Host]:
    host = Host(machine)
    host.forgive()
    yield host


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_starts_reloads_and_stops(host: Host, name: str) -> None:
    unit = instance_of(name)

    host.machine.succeed(f"systemctl start {unit}")
    process = host.property(unit, "MainPID")
    can_reload = host.property(unit, "CanReload") == "yes"
    assert can_reload == (FILES[name].parent.name == "consumer")
    if can_reload:
        host.machine.succeed(f"systemctl reload {unit}")
        command = f"journalctl -o cat _PID={process} | grep -c 'starting with'"
        eventually(lambda: host.machine.shell(command).stdout.strip() == "2", WAIT_S)
    eventually(lambda: host.is_active(unit), WAIT_S)
    assert host.property(unit, "MainPID") == process
    host.machine.succeed(f"systemctl stop {unit}")

    assert host.property(unit, "Result") == "success"
    assert not host.has_reported(unit)


@pytest.mark.parametrize(
    "name", [name for name in DAEMONS if "ExecReload" in FILES[name].read_text()]
)
def test_a_reload_with_a_bad_file_fails_and_changes_nothing(host: Host, name: str) -> None:
    unit = instance_of(name)
    host.machine.succeed(f"systemctl start {unit}")
    process = host.property(unit, "MainPID")
    with broken_configuration(host, name):
        failed = host.machine.shell(f"systemctl reload {unit}")
        log = f"journalctl -o cat _PID={process} | grep -c 'continuing with the previous'"
        eventually(lambda: host.machine.shell(log).stdout.strip() == "1", WAIT_S)
        assert failed.returncode != 0
        assert host.is_active(unit)
        assert host.property(unit, "MainPID") == process
    host.machine.succeed(f"systemctl reload {unit}; systemctl stop {unit}")

    assert host.property(unit, "Result") == "success"


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_recovers_once_its_configuration_is_corrected(host: Host, name: str) -> None:
    unit = instance_of(name)
    with broken_configuration(host, name):
        failed = host.machine.shell(f"systemctl start {unit}")
        assert failed.returncode != 0
        eventually(lambda: host.has_reported(unit), WAIT_S)

    eventually(lambda: host.is_active(unit), WAIT_S)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_does_its_work(host: Host, name: str) -> None:
    host.machine.succeed(PREPARED.get(name, "true"))

    host.machine.succeed(f"systemctl start {name}")

    assert host.property(name, "TimeoutStartUSec") not in ("infinity", "")
    assert host.property(name, "ExecMainStatus") == "0"
    eventually(lambda: host.machine.shell(DONE[name]).returncode == 0, WAIT_S)


@pytest.mark.parametrize("name", TIMERS)
def test_a_timer_starts_its_service(host: Host, name: str) -> None:
    service = name.replace(".timer", ".service")
    drop_in = "[Timer]\\nOnCalendar=\\nOnActiveSec=0\\nRandomizedDelaySec=0\\nAccuracySec=1ms\\n"
    host.machine.succeed(
        f"""
        mkdir -p /run/systemd/system/{name}.d
        printf '{drop_in}' >/run/systemd/system/{name}.d/now.conf
        systemctl daemon-reload
        """
    )
    host.machine.succeed(f"systemctl start {name}")

    eventually(lambda: host.has_run(service), WAIT_S)
    host.machine.succeed(f"rm -r /run/systemd/system/{name}.d; systemctl daemon-reload")


def test_pages_and_export_follow_a_run_only_if_it_succeeds(host: Host) -> None:
    followers = ("sam-report-pages.service", "sam-report-export.service")
    host.machine.succeed(PREPARED["sam-report-export.service"])

    with broken_configuration(host, "sam-report.service"):
        host.machine.shell("systemctl start sam-report")
    eventually(lambda: host.has_reported("sam-report.service"), WAIT_S)
    assert [name for name in followers if host.has_run(name)] == []

    host.machine.succeed("systemctl start sam-report")
    eventually(lambda: all(host.has_run(name) for name in followers), WAIT_S)


def test_a_credential_of_root_reaches_the_service(host: Host) -> None:
    host.machine.succeed(
        """
        install -d -m 0700 /etc/credstore
        install -m 0600 /dev/stdin /etc/credstore/sam-consumer-password <<< secret
        systemctl start sam-consume
        """
    )

    arrived = host.machine.succeed("cat /run/credentials/sam-consume.service/*")

    assert arrived == "secret\n"


def test_the_password_of_a_database_elsewhere_is_for_one_account_and_its_services(
    host: Host,
) -> None:
    jobs = {
        "sam": "sam-db-partitions",
        "sam-report": "sam-report-pages",
        "sam-admin": "sam-db-prune",
    }
    host.machine.succeed(
        f"""
        su - postgres -c "psql --quiet sam" <<'END'
{PASSWORDS}
END
        {PASS_FILES.replace("db.example.org", "127.0.0.1")}
        cp -p /etc/sam/sam.toml /etc/sam/sam.toml.good
        sed -i s#postgresql:///#postgresql://127.0.0.1/# /etc/sam/sam.toml
        """
    )

    for account, job in jobs.items():
        host.machine.succeed(f"systemctl start {job}")
        for other in {*jobs} - {account}:
            refused = host.machine.shell(f"runuser -u {other} -- cat ~{account}/.pgpass")
            assert "Permission denied" in refused.stdout
    host.machine.succeed("rm /var/lib/sam*/.pgpass")
    assert host.machine.shell("systemctl start sam-db-prune").returncode != 0
    host.machine.succeed("mv /etc/sam/sam.toml.good /etc/sam/sam.toml")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_the_account_of_the_page_and_the_one_configuration_of_the_host(
    name: str,
) -> None:
    text, page = FILES[name].read_text(), (ROOT / "docs/services.md").read_text()
    named = name.removesuffix(".service")
    rows = re.findall(r"^\| `(sam-[a-z-]+@?)[^|]*\|[^|]*\| `([a-z-]+)` ", page, re.MULTILINE)
    of_instance = "@.service" in name and "process" not in name

    assert settings(name)["Service"]["User"] == dict(rows)[named]
    file = "/etc/sam/%i.toml" if of_instance else "/etc/sam/sam.toml"
    assert {*re.findall(r"--config (\S+)", text)} == {file}


def credentials_of(settings: type[Settings]) -> set[str]:
    return {secret_of(settings.SECTION, name).credential for name in settings.SECRETS}


def test_the_units_load_every_credential_that_their_programs_look_for() -> None:
    ours = {
        "consumer": credentials_of(ConsumerConfig),
        "worker": credentials_of(PublisherConfig),
        "database": {feeds.CERTIFICATE, feeds.KEY},
    }
    with_archive = {"sam-db-archive.service", "sam-db-prune.service", "sam-report.service"}

    for name in SERVICES:
        loaded = set(re.findall(r"^LoadCredential=(.*)$", FILES[name].read_text(), re.MULTILINE))
        if name in with_archive:
            assert loaded == {archive.CREDENTIALS}, name
        elif name in DAEMONS or name in ("sam-publish-drain.service", "sam-db-import.service"):
            assert loaded == ours[FILES[name].parent.name], name
        else:
            assert loaded == set(), name


@pytest.mark.parametrize("name", [*SERVICES, HOOK])
def test_a_service_is_hardened(host: Host, name: str) -> None:
    threshold = f"--threshold={WORST_EXPOSURE * 10:.0f}"

    host.machine.succeed(f"systemd-analyze security --no-pager {threshold} {instance_of(name)}")


def test_the_commands_of_the_page_work(host: Host) -> None:
    for section in ("Change a unit", "Passwords and keys", "When a service fails"):
        for text in PAGE.texts("sh", section):
            host.machine.succeed(text)

    assert "9443" in host.property("sam-door.socket", "Listen")
    host.machine.succeed("systemctl start sam-failed@sam-consume.service.service")
    eventually(lambda: "failed on" in host.machine.succeed("journalctl -o cat -p alert"), WAIT_S)


@contextmanager
def broken_configuration(host: Host, name: str) -> Iterator[None]:
    file = configuration_of(name)
    host.machine.succeed(f"cp -p {file} {file}.good; echo nonsense >>{file}")
    try:
        yield
    finally:
        host.machine.succeed(f"mv {file}.good {file}")
