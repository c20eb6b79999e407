"""The steps of the demo, with one or a few commands each."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.demo import files
from tests.demo.shell import Shell
from tests.services.process import free_ports, port_is_open

BAD_DATA = 65  # exit code: some input was bad, the rest was processed
SITE_TO_EXPLAIN = "DAHLIA-HPC"


class Demo:
    """The steps, in their order; the first run fixes the seven days.

    With a proxy, worker nodes reach the broker through it and a message servlet.
    """

    def __init__(
        self, directory: Path, broker: str, database: str, logins: dict[str, str], proxy: str = ""
    ) -> None:
        self.directory, self.broker = directory, broker
        self.first_day_file = directory / "first-day"  # it exists once they are loaded
        self.is_first_run = not self.first_day_file.exists()
        first = datetime.now(UTC).date() - timedelta(days=files.DAYS)
        if self.is_first_run:  # or the first run was interrupted; its messages had other ids
            shutil.rmtree(directory, ignore_errors=True)
            (directory / "input").mkdir(parents=True)
        else:
            first = date.fromisoformat(self.first_day_file.read_text().strip())
        self.world = files.demo_world(first)
        self.plugins = files.installed_plugins()
        files.write_configuration(directory, broker, database)
        files.write_profile(directory, list(self.plugins))
        self.publish, self.way = "sam-publish", ""
        [self.servlet_port] = free_ports(1) if proxy else [0]
        if proxy:
            files.write_servlet_and_worker(directory, self.servlet_port, proxy)
            self.publish = f"sam-publish --config {directory}/worker.toml"
            self.way = ", by HTTP through a proxy"
        state = str(directory.resolve() / "state")
        exports = {"SAM_CONFIG": str(directory / "sam.toml"), "XDG_STATE_HOME": state}
        self.shell = Shell(exports, logins)
        self.input, self.week = directory / "input", directory / "week"
        self.seven_days = f"--from {self.world.first_day} --to {self.world.last_day}"
        # All days with results; this machine is expected after them.
        begin = files.first_of_history(self.world)
        self.days_to_compute = f"--from {begin} --to {self.world.last_day}"

    def walk(self) -> None:
        shell = self.shell
        print(f"To type a command yourself, first:\n   {shell.exports()}")
        shell.heading("The schema: tables, views and triggers")
        shell.run("sam-db upgrade")
        with self.servlet():
            self.publish_week()
            self.run_plugins()
            self.load()
        if self.is_first_run:
            shell.heading("History: the results of the weeks before, from a file")
            path = files.write_history(self.input, self.world)
            shell.run(f"sam-db import records {path}")
        self.report()
        shell.heading("Pages to read offline")
        shell.run(f"sam-report pages {self.days_to_compute} --out {self.directory}/report")
        self.summary()

    @contextmanager
    def servlet(self) -> Iterator[None]:
        """Subscribe to the broker and run the servlet inside the block; without one, do nothing."""
        port, shell = self.servlet_port, self.shell
        if not port:
            yield
            return
        shell.heading("A durable subscription: from now on the broker keeps what is published")
        shell.run("sam-consume run --drain")
        shell.heading("A message servlet: by HTTP to the broker, for worker nodes behind a proxy")
        line = f"sam-consume --config {self.directory}/servlet.toml run --to {self.broker}"
        with shell.background(line, lambda: port_is_open(port), self.directory / "servlet.log"):
            yield

    def publish_week(self) -> None:
        """Make the messages in the first run; deliver them, with the same ids, in every run."""
        if self.is_first_run:
            self.make_messages()
            self.shell.heading("To the broker, from the outbox where they waited for it")
        else:
            self.shell.heading("The messages of the first run again, with the same ids")
        self.deliver("sam-publish")

    def make_messages(self) -> None:
        """Write the messages to a directory of their own, from which every run delivers them."""
        publish, shell = f'sam-publish send --broker "spool://$PWD/{self.week}"', self.shell
        shell.heading("Topology and downtimes, as messages")
        for name, path in files.write_topology(self.input, self.world, this_host()):
            shell.run(f"{publish} --class {name} {path}")
        shell.heading("Seven days of probe results, some of them late, and one record is broken")
        files.write_results(self.input, self.world)
        shell.run(f"{publish} {self.input}/results-*.txt")
        shell.run(f"{publish} --raw {files.write_broken_record(self.input, self.world)}")

    def deliver(self, publish: str) -> None:
        self.shell.run(f"cp -rT {self.week} {self.directory}/outbox")
        self.shell.run(f"{publish} spool status")
        self.shell.run(f"{publish} spool drain --timeout 60")

    def run_plugins(self) -> None:
        self.shell.heading(f"Live: monitoring plugins measure this machine{self.way}")
        if not self.plugins:
            print(f"   no plugin is installed here: {files.HOW_TO_GET_PLUGINS}")
        about = f"--vo ops --host {this_host()} --flavour {files.THIS_FLAVOUR}"
        for metric, call in self.plugins.items():
            line = f"{self.publish} run --metric {metric} {about} -- {call}"
            self.shell.run(line, expect=range(4))

    def load(self) -> None:
        """Load what is new, in the first run twice: later runs deliver again anyway."""
        shell = self.shell
        if self.is_first_run:
            shell.heading("Into the database; what can't be a row is a dead letter (exit code 65)")
        else:
            shell.heading("Into the database, where only the live results are new")
        shell.run("sam-consume run --drain", expect={BAD_DATA if self.is_first_run else 0})
        shell.run("sam-consume dead-letter list")
        self.first_day_file.write_text(f"{self.world.first_day}\n")
        if self.is_first_run:
            again = f"all of them again{self.way}"
            shell.heading(f"Brokers may redeliver messages: {again}, and nothing changes")
            self.deliver(self.publish)
            shell.run("sam-consume run --drain")

    def report(self) -> None:
        shell, profile = self.shell, self.directory / "critical.toml"
        shell.heading("Availability and reliability: month against month, and the last seven days")
        shell.run(f"sam-report profile check {profile}")
        shell.run(f"sam-report run --profile {profile} {self.days_to_compute}")
        shell.run(f"sam-report show --by month {self.days_to_compute}")
        shell.run(f"sam-report show --level group {self.seven_days}")
        shell.heading("Why: results and downtimes behind one figure, and what failed for how long")
        # The day of the downtime that took longer than announced.
        day = self.world.first_day + timedelta(days=self.world.days // 2)
        shell.run(f"sam-report explain --day {day} --site {SITE_TO_EXPLAIN}", show_lines=20)
        shell.run(f"sam-report incidents --by site {self.days_to_compute}")
        shell.heading("Now: this machine, which reports expect from tomorrow on")
        shell.run(f"sam-report now --site {files.THIS_SITE}")

    def summary(self) -> None:
        """The figures of the sites over the seven days, the only dead letter, the page to open."""
        print(f"\n{self.world.first_day} to {self.world.last_day}:\n")
        rows = json.loads(self.shell.ask(f"sam-report show --level site {self.seven_days} --json"))
        print("".join(f"   {line}\n" for line in figures_table(rows)), end="")
        for letter in json.loads(self.shell.ask("sam-consume dead-letter list --json")):
            number, reason, error = (letter[key] for key in ("dead_letter_id", "reason", "error"))
            print(f"\nDead letter {number} ({reason}): {error}")
        print(f"\nOpen in a browser: {(self.directory / 'report' / 'index.html').resolve()}")


def this_host() -> str:
    return socket.gethostname().lower()


def figures_table(rows: Iterable[dict[str, Any]]) -> list[str]:
    table = [("site", "availability", "reliability")]
    for row in rows:
        values = (row["availability"], row["reliability"])
        shown = ("no data" if value is None else f"{float(value):.2f} %" for value in values)
        table.append((row["site"], *shown))
    return [f"{site:<14}{first:>14}{second:>14}" for site, first, second in table]
