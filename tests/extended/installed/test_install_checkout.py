"""A checkout, as docs/packages.md says: the same programs and units as those of the packages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.extended.installed.installation import (
    INSTALL_CHECKOUT,
    PAGE,
    REMOVE_CHECKOUT,
    UPGRADE_CHECKOUT,
    check_installed,
    check_removed,
)
from tests.services import needed
from tests.services.machine import Machine, booted_copy
from tests.support.network import own_network
from tests.support.page import Page
from tests.support.waiting import eventually

SERVICES = PAGE.texts("sh", "Services")
[ON_SQLITE] = [text for text in Page("docs/services.md").texts("sh") if "sqlite" in text]
CONFIGURED = f"""
{ON_SQLITE}
cat > /etc/sam/conf.d/site.toml <<'END'
[database]
url = "sqlite:////var/lib/sam/sam.db"
[publisher]
brokers = ["spool:///var/spool/sam?umask=007"]
[consumer]
name = "site-a"
brokers = ["spool:///var/spool/sam"]
[report]
profiles = ["/etc/sam/critical.toml"]
END
cp deploy/critical.toml /etc/sam
runuser -u sam -- sam-db upgrade
"""
ROWS = """python3 -c '
import sqlite3
with sqlite3.connect("file:/var/lib/sam/sam.db?mode=ro", uri=True) as database:
    print(*database.execute("SELECT count(*) FROM metricOutput").fetchone())'"""
PUBLISH = (
    "sam-publish result --metric org.sam.CE-Ping --status OK --host ce01.example.org --flavour CE"
)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with own_network(), needed(booted_copy()) as machine:
        machine.succeed(INSTALL_CHECKOUT)
        yield machine


def test_a_checkout_leads_to_the_programs_and_units_of_the_packages(machine: Machine) -> None:
    check_installed(machine)


def test_its_services_start(machine: Machine) -> None:
    machine.succeed(CONFIGURED)

    for block in SERVICES:
        machine.succeed(block)

    journal = "journalctl -u sam-report"
    eventually(lambda: "nothing is due" in machine.succeed(journal), timeout_s=60)
    assert machine.succeed("systemctl is-active sam-consume") == "active\n"


def test_on_sqlite_all_services_have_the_account_of_the_file(machine: Machine) -> None:
    units = "sam-consume sam-db-prune sam-report sam-report-pages sam-failed@x"

    accounts = machine.succeed(f"systemctl show -P User {units}").split()

    assert accounts == ["sam", "sam", "sam", "sam", "root"]


def test_an_upgrade_loses_no_result_that_is_published_meanwhile(machine: Machine) -> None:
    upgrade = UPGRADE_CHECKOUT.replace("-u sam-admin", "-u sam")  # the account of the file
    stop, _, rest = upgrade.partition("\n")

    machine.succeed(f"{stop}\n{PUBLISH}\n{rest}")

    eventually(lambda: machine.succeed(ROWS) == "1\n", timeout_s=60)
    assert machine.succeed("systemctl is-active sam-consume") == "active\n"


def test_its_removal_leaves_nothing(machine: Machine) -> None:
    machine.succeed("systemctl disable --now sam-consume sam-db-prune.timer sam-report.timer")

    machine.succeed(REMOVE_CHECKOUT)
    machine.succeed("for name in sam-report sam-admin sam; do userdel $name; done")

    check_removed(machine)
