"""The files of the demo before the first command: configuration, profile, input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

from tests.demo.plugins import Plugin
from tests.worlds.model import Endpoint, Flavour, Function, Profile, Result, World, midnight
from tests.worlds.profile_file import to_toml
from tests.worlds.records import Batch, endpoint_record, result_record, topology_batches, wlcg_text
from tests.worlds.small import PROFILE, small_world

SEED = 2026
DAYS = 7
THIS_SITE = "THIS-MACHINE"
THIS_FLAVOUR = "Host"

CONFIGURATION = """\
[database]
url = "{database}"

[publisher]
brokers = ["{broker}"]
spool = "outbox"

[consumer]
name = "demo"
brokers = ["{broker}"]
{subscriptions}
[report]
profiles = ["critical.toml"]
"""
SUBSCRIPTION = """
[[consumer.subscription]]
destination = "/topic/grid.probe.{name}"
class = "{name}"
"""
CLASSES = ("metricOutput", "serviceEndpoint", "siteGroup", "siteContact", "downtime")
BROKEN_RECORD = """\
hostName: ce01.aster.example.org
serviceFlavour: CE
metricName: org.sam.CE-Ping
metricStatus: SPLENDID
summaryData: a probe with a status of its own
timestamp: {day}T12:00:00Z
EOT
"""


def demo_world(first: date) -> World:
    return small_world(SEED, first, DAYS)


def write_configuration(directory: Path, broker: str, database: str) -> None:
    """Write `sam.toml`; a spool is read without a subscription, other brokers need one."""
    names = () if broker.startswith("spool:") else CLASSES
    subscriptions = "".join(SUBSCRIPTION.format(name=name) for name in names)
    text = CONFIGURATION.format(broker=broker, database=database, subscriptions=subscriptions)
    file = directory / "sam.toml"
    file.write_text(text)
    file.chmod(0o600)  # the URL of PostgreSQL contains a password


def write_profile(directory: Path, plugins: Sequence[Plugin]) -> None:
    (directory / "critical.toml").write_text(to_toml(demo_profile(plugins)))


def demo_profile(plugins: Sequence[Plugin]) -> Profile:
    """The profile of the small world, extended by the plugins that are installed here."""
    if not plugins:
        return PROFILE
    metrics = tuple(plugin.metric for plugin in plugins)
    return replace(
        PROFILE,
        flavours={**PROFILE.flavours, THIS_FLAVOUR: Flavour(metrics)},
        functions={**PROFILE.functions, "machine": Function((THIS_FLAVOUR,))},
    )


def write_topology(directory: Path, world: World, this_host: str) -> list[tuple[str, Path]]:
    """(class, file) for the topology of the world and, from the eighth day on, of this machine."""
    eighth = midnight(world.last_day) + timedelta(days=1)
    this_machine = Endpoint(THIS_SITE, this_host, THIS_FLAVOUR, valid_from=eighth)
    own_batch = Batch("this-machine", "serviceEndpoint", (endpoint_record(this_machine),))
    return [
        (batch.message_class, _write(directory / f"{batch.name}.txt", batch.records))
        for batch in [*topology_batches(world), own_batch]
    ]


def write_results(directory: Path, world: World) -> list[Path]:
    """Write a file per day of sending; a result sent late is in the file of a later day."""
    by_day: dict[date, list[Result]] = {}
    newest = datetime.min.replace(tzinfo=midnight(world.first_day).tzinfo)
    for result in world.results:
        newest = max(newest, result.measured_at)
        by_day.setdefault(newest.date(), []).append(result)
    return [
        _write(directory / f"results-{day}.txt", map(result_record, results))
        for day, results in by_day.items()
    ]


def write_broken_record(directory: Path, world: World) -> Path:
    path = directory / "broken-record.txt"
    path.write_text(BROKEN_RECORD.format(day=world.last_day))
    return path


def _write(path: Path, records: Iterable[dict[str, str]]) -> Path:
    path.write_text("".join(map(wlcg_text, records)))
    return path
