"""The steps of the demo, with one or a few commands each."""

from __future__ import annotations

import shlex
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from tests.demo import files
from tests.demo.plugins import HOW_TO_GET_THEM, Plugin, installed_plugins
from tests.demo.shell import Shell
from tests.services.process import free_ports, port_is_open
from tests.worlds.model import World

BAD_DATA = 65  # exit code: some input was bad, the rest was processed
PLUGIN_CODES = range(4)
SITE_TO_EXPLAIN = "DAHLIA-HPC"


@dataclass(frozen=True)
class Demo:
    """The directory of the demo and the days it covers."""

    directory: Path
    world: World
    today: date
    plugins: Sequence[Plugin]
    is_first_run: bool
    broker: str
    servlet_port: int | None = None
    """Where a message servlet in front of the broker listens, for worker nodes behind a proxy."""

    @property
    def seven_days(self) -> str:
        return f"--from {self.world.first_day} --to {self.world.last_day}"

    @property
    def days_to_compute(self) -> str:
        """The options for all days with results; this machine is expected after them."""
        return f"--from {files.first_of_history(self.world)} --to {self.world.last_day}"

    @property
    def repair_day(self) -> date:
        """The day of the downtime that took longer than announced."""
        return self.world.first_day + timedelta(days=self.world.days // 2)

    @property
    def input(self) -> Path:
        return self.directory / "input"

    @property
    def week(self) -> Path:
        """The messages of the first run, to be delivered again with the same ids."""
        return self.directory / "week"

    @property
    def publish(self) -> str:
        """The publisher on a worker node."""
        if self.servlet_port is None:
            return "sam-publish"
        return f"sam-publish --config {self.directory}/worker.toml"

    @property
    def way(self) -> str:
        """How worker nodes publish, for headings."""
        return "" if self.servlet_port is None else ", by HTTP through a proxy"

    @property
    def page(self) -> Path:
        return self.directory / "report" / "index.html"


def prepare(directory: Path, broker: str, database: str, proxy: str = "") -> Demo:
    """Write configurations and profile; the first run fixes the week.

    With a proxy, worker nodes reach the broker through it and a servlet.
    """
    today = datetime.now(UTC).date()
    first_day_file = _first_day_file(directory)
    is_first_run = not first_day_file.exists()
    if is_first_run:  # or the first run was interrupted; its messages had other ids
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "input").mkdir(parents=True)
        first = today - timedelta(days=files.DAYS)
    else:
        first = date.fromisoformat(first_day_file.read_text().strip())
    plugins = installed_plugins()
    files.write_configuration(directory, broker, database)
    files.write_profile(directory, plugins)
    servlet_port = None
    if proxy:
        [servlet_port] = free_ports(1)
        files.write_servlet(directory, servlet_port)
        files.write_worker(directory, servlet_port, proxy)
    world = files.demo_world(first)
    return Demo(directory, world, today, plugins, is_first_run, broker, servlet_port)


def forget(directory: Path) -> None:
    """Make the next run a first run again."""
    _first_day_file(directory).unlink(missing_ok=True)


def apply_schema(shell: Shell) -> None:
    shell.heading("The schema: tables, views and triggers")
    shell.run("sam-db upgrade")


@contextmanager
def servlet(demo: Demo, shell: Shell) -> Iterator[None]:
    """Subscribe to the broker and run the servlet inside the block; without one, do nothing."""
    port = demo.servlet_port
    if port is None:
        yield
        return
    shell.heading("A durable subscription: from now on the broker keeps what is published")
    shell.run("sam-consume run --drain")
    shell.heading("A message servlet: by HTTP to the broker, for worker nodes behind a proxy")
    line = f"sam-consume --config {demo.directory}/servlet.toml run --to {demo.broker}"
    with shell.background(line, lambda: port_is_open(port), demo.directory / "servlet.log"):
        yield


def publish_week(demo: Demo, shell: Shell) -> None:
    """Create the messages in the first run; deliver them, with the same ids, in every run."""
    if demo.is_first_run:
        _make_messages(demo, shell)
        shell.heading("To the broker, from the outbox where they waited for it")
    else:
        shell.heading("The messages of the first run again, with the same ids")
    _deliver(demo, shell, "sam-publish")


def import_history(demo: Demo, shell: Shell) -> None:
    """Load the months before from a file, in the first run only."""
    if demo.is_first_run:
        shell.heading("History: the results of the weeks before, from a file")
        path = files.write_history(demo.input, demo.world)
        shell.run(f"sam-db import records {path}")


def run_plugins(demo: Demo, shell: Shell) -> None:
    shell.heading(f"Live: monitoring plugins measure this machine{demo.way}")
    if not demo.plugins:
        print(f"   no plugin is installed here: {HOW_TO_GET_THEM}")
    about = f"--vo ops --host {this_host()} --flavour {files.THIS_FLAVOUR}"
    for plugin in demo.plugins:
        call = shlex.join([str(plugin.path), *plugin.arguments])
        line = f"{demo.publish} run --metric {plugin.metric} {about} -- {call}"
        shell.run(line, expect=PLUGIN_CODES)


def load(demo: Demo, shell: Shell) -> None:
    if demo.is_first_run:
        shell.heading("Into the database; what can't be a row becomes a dead letter (exit code 65)")
        shell.run("sam-consume run --drain", expect={BAD_DATA})
    else:
        shell.heading("Into the database, where only the live results are new")
        shell.run("sam-consume run --drain")
    shell.run("sam-consume dead-letter list")
    _first_day_file(demo.directory).write_text(f"{demo.world.first_day}\n")


def load_again(demo: Demo, shell: Shell) -> None:
    """Deliver and load everything again, in the first run only: later runs do so anyway."""
    if demo.is_first_run:
        again = f"all of them again{demo.way}"
        shell.heading(f"Brokers may redeliver messages: {again}, and nothing changes")
        _deliver(demo, shell, demo.publish)
        shell.run("sam-consume run --drain")


def report(demo: Demo, shell: Shell) -> None:
    profile = demo.directory / "critical.toml"
    shell.heading("Availability and reliability: month against month, and the last seven days")
    shell.run(f"sam-report profile check {profile}")
    shell.run(f"sam-report run --profile {profile} {demo.days_to_compute}")
    shell.run(f"sam-report show --by month {demo.days_to_compute}")
    shell.run(f"sam-report show --level group {demo.seven_days}")
    shell.heading("Why: the results and downtimes behind one figure, and what failed for how long")
    shell.run(f"sam-report explain --day {demo.repair_day} --site {SITE_TO_EXPLAIN}", show_lines=20)
    shell.run(f"sam-report incidents --by site {demo.days_to_compute}")
    shell.heading("Now: this machine, which reports expect from tomorrow on")
    shell.run(f"sam-report now --site {files.THIS_SITE}")


def draw_pages(demo: Demo, shell: Shell) -> None:
    shell.heading("Pages to read offline")
    shell.run(f"sam-report site {demo.days_to_compute} --out {demo.page.parent}")


def this_host() -> str:
    return socket.gethostname().lower()


def _make_messages(demo: Demo, shell: Shell) -> None:
    """Write the messages to their own directory, so that every run can deliver the same ones."""
    publish = f'sam-publish send --broker "spool://$PWD/{demo.week}"'
    shell.heading("Topology and downtimes, as messages")
    for message_class, path in files.write_topology(demo.input, demo.world, this_host()):
        shell.run(f"{publish} --class {message_class} {path}")
    shell.heading("Seven days of probe results, some of them late, and one record that is broken")
    files.write_results(demo.input, demo.world)
    shell.run(f"{publish} {demo.input}/results-*.txt")
    shell.run(f"{publish} --raw {files.write_broken_record(demo.input, demo.world)}")


def _deliver(demo: Demo, shell: Shell, publish: str) -> None:
    shell.run(f"cp -rT {demo.week} {demo.directory}/outbox")
    shell.run(f"{publish} spool status")
    shell.run(f"{publish} spool drain --timeout 60")


def _first_day_file(directory: Path) -> Path:
    """The file with the first of the seven days; it exists once they are loaded."""
    return directory / "first-day"
