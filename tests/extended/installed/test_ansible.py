"""The Ansible role, run by the page docs/ansible.md against a bare Debian."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.extended.installed.installation import packages_or_missing
from tests.services import needed
from tests.services.debian import booted_debian
from tests.services.machine import ENVIRONMENT, Machine
from tests.support.network import own_network
from tests.support.page import ROOT, Page
from tests.support.waiting import eventually

WORKER, SERVICE = "worker1.example.org", "sam.example.org"
SECRET = "hidden-password"
PUBLISHED = "runuser -u sam -- sam-publish result --metric m --status OK --host h --flavour CE"
STATUS = "runuser -u sam -- sam-consume status"


@dataclass(frozen=True)
class Control:
    """The control host: a directory with the playbook of the page, the role and the packages."""

    directory: Path
    machine: Machine
    page: Page

    def play(self, host: str, *options: str, **variables: object) -> str:
        """The output of the page's command for one host."""
        check, command = self.page.texts("sh")[0].splitlines()
        line = check if "--check" in options else command
        more = [option for option in options if option not in line]
        done = subprocess.run(
            [
                *(sys.executable, "-m", *line.replace("ansible-", "ansible ", 1).split()),
                *("--limit", host, "--extra-vars", json.dumps(self.variables() | variables), *more),
            ],
            cwd=self.directory,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.directory),
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_NOCOLOR": "true",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return f"{done.stdout}\nexit code {done.returncode}"

    def variables(self) -> dict[str, object]:
        """A vault, and how the machine is reached: by a program that stands for ssh."""
        return {
            "vault_sam_consumer_password": SECRET,
            "ansible_ssh_executable": str(self.directory / "enter"),
            "ansible_ssh_args": "",
            "ansible_ssh_transfer_method": "piped",
            "ansible_pipelining": True,
            "ansible_python_interpreter": "/usr/bin/python3",
        }


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    directory = tmp_path_factory.mktemp("control")
    page = Page("docs/ansible.md")
    for name, text in zip(("hosts.yml", "site.yml"), page.texts("yaml"), strict=True):
        (directory / name).write_text(text)
    shutil.copytree(ROOT / "deploy" / "ansible" / "roles", directory / "roles")
    packages = packages_or_missing("sam-publish", "sam-pipeline")
    (directory / "packages").symlink_to(packages.directory)
    with own_network(), needed(booted_debian()) as machine:
        machine.succeed("apt-get install -qq -y python3 >/dev/null")
        setting = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        entered = shlex.join(["env", "-i", *setting, *machine.enter()])
        enter = f'#!/bin/sh\nfor command; do :; done\nexec {entered} sh -c "$command"\n'
        (directory / "enter").write_text(enter)
        (directory / "enter").chmod(0o755)
        yield Control(directory, machine, page)


@pytest.fixture(scope="module")
def installed(control: Control) -> str:
    """The output of the first call for the service host, on what was a worker node before."""
    control.machine.succeed("mkdir -p /etc/sam/conf.d && echo >/etc/sam/conf.d/90-others.toml")
    return control.play(SERVICE)


def counts(output: str) -> dict[str, int]:
    """The last line of a play: `ok`, `changed`, `failed` and so on."""
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", output)}


def test_a_worker_node_gets_its_package_and_its_fragments(control: Control) -> None:
    output = control.play(WORKER)

    assert counts(output)["failed"] == 0, output
    shown = control.machine.succeed("sam-publish config --origin")
    assert re.search(r"publisher\.brokers .*/etc/sam/conf\.d/10-brokers\.toml:3", shown)
    assert re.search(r"publisher\.record\.site +SITE-A +/etc/sam/conf\.d/20-site\.toml:3", shown)


def test_a_service_host_loads_messages(control: Control, installed: str) -> None:
    machine = control.machine

    assert counts(installed)["failed"] == 0, installed
    assert SECRET not in installed
    # Fragments of earlier calls are removed, those of others stay.
    assert machine.succeed("ls /etc/sam/conf.d").split() == ["10-consumer.toml", "90-others.toml"]
    assert machine.succeed("stat -c '%a %U' /etc/credstore/*").strip() == "600 root"
    assert machine.succeed("systemctl is-enabled sam-consume").strip() == "enabled"
    machine.succeed(f"{PUBLISHED} --broker spool:///var/lib/sam/in")
    eventually(lambda: "1 row" in machine.shell(STATUS).stdout, 60)


def test_a_second_call_changes_nothing(control: Control, installed: str) -> None:
    dry, second = control.play(SERVICE, "--check"), control.play(SERVICE)

    nothing = {"changed": 0, "failed": 0, "ignored": 0}
    assert counts(installed)["changed"] > 0, installed
    assert counts(dry) | nothing == counts(dry), dry
    assert counts(second) | nothing == counts(second), second


def test_changed_fragments_reach_the_running_service_unless_they_are_wrong(
    control: Control, installed: str
) -> None:
    machine = control.machine
    database = '[database]\nurl = "sqlite:////var/lib/sam/sam.db"\n'
    consumer = '[consumer]\nname = "site-a"\nbrokers = ["spool:///var/lib/sam/in"]\n'
    main_pid = "systemctl show --property MainPID --value sam-consume"
    before = machine.succeed(main_pid)
    # It cannot reach the page's broker.
    eventually(lambda: "site-a: degraded" in machine.shell(STATUS).stdout, 60)

    wrong = control.play(SERVICE, sam_fragments={"a": database, "b": consumer + "nam = 1\n"})
    kept = machine.succeed("journalctl --unit sam-consume")
    good = control.play(SERVICE, sam_fragments={"a": database, "b": consumer})

    assert counts(wrong)["failed"] == 1, wrong
    assert "/etc/sam/conf.d/b.toml:5: [consumer] unknown key nam" in wrong
    assert "SIGHUP" not in kept
    assert counts(good)["failed"] == 0, good
    eventually(lambda: "site-a: running" in machine.shell(STATUS).stdout, 60)
    assert machine.succeed(main_pid) == before, installed
