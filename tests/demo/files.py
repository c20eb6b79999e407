"""The files of the demo before the first command: configuration, profile with plugins, input.

The seven days are those of the small world. Before them lies history, from the first day of the
month before: results every three hours, and a week in which the storage of a site was full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from tests.worlds.model import Endpoint, Flavour, Function, Result, World, midnight
from tests.worlds.profile_file import to_toml
from tests.worlds.records import Batch, endpoint_record, result_record, topology_batches, wlcg_text
from tests.worlds.small import PROFILE, host_of, small_world

SEED = 2026
DAYS = 7
THIS_SITE = "THIS-MACHINE"
THIS_FLAVOUR = "Host"
FULL_STORAGE_SITE = "BIRCH-T2"
_KEEP_ONE_IN = 6  # of results every half hour
HOW_TO_GET_PLUGINS = "apt-get install monitoring-plugins-basic"
PLUGIN_DIRECTORIES = [
    *(Path("/usr/lib/nagios/plugins"), Path("/usr/lib64/nagios/plugins")),
    *(Path("/usr/lib/monitoring-plugins"), Path("/usr/local/libexec/nagios")),
]
PLUGINS = {
    "org.nagios.Load": ("check_load", "-w 30,25,20 -c 90,80,70"),
    "org.nagios.Disk": ("check_disk", "-w 5% -c 2% -p /"),
    "org.nagios.Procs": ("check_procs", "-w 2000 -c 5000"),
    "org.nagios.Users": ("check_users", "-w 50 -c 100"),
}
"""By metric, with limits for a busy laptop."""

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
SERVLET_CONFIGURATION = """\
[consumer]
name = "servlet"
brokers = ["listen+http://127.0.0.1:{port}"]
"""
WORKER_CONFIGURATION = """\
[publisher]
brokers = ["sam+http://127.0.0.1:{port}"]
proxy = "{proxy}"
spool = "outbox"
"""
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


def first_of_history(world: World) -> date:
    """The first day of the month before the first of the seven days."""
    return (world.first_day.replace(day=1) - timedelta(days=1)).replace(day=1)


def write_history(directory: Path, world: World) -> Path:
    """Write the results from before the seven days, which begin two hours before midnight."""
    first = first_of_history(world)
    end = midnight(world.first_day)
    seen: Counter[tuple[str, str]] = Counter()
    results = []
    for result in small_world(SEED + 1, first, (world.first_day - first).days).results:
        seen[result.host, result.metric] += 1
        is_kept = seen[result.host, result.metric] % _KEEP_ONE_IN == 0
        if is_kept and result.measured_at < end - timedelta(hours=2):
            results.append(_when_full(result, end, seen.total()))
    return _write(directory / "history.txt", map(result_record, results))


def _when_full(result: Result, end: datetime, number: int) -> Result:
    """The result, or a failure if it is a write to the storage that was full at the time."""
    start, stop = end - timedelta(days=9), end - timedelta(days=1, hours=12)
    is_write = result.host == host_of(FULL_STORAGE_SITE, "se01") and result.metric.endswith("Put")
    if not (is_write and start <= result.measured_at < stop):
        return result
    text = f"put failed: no space left in pool atlas-data, {number} files are waiting"
    return replace(result, status="CRITICAL", summary=text, details="")


def write_configuration(directory: Path, broker: str, database: str) -> None:
    """Write `sam.toml`; a spool is read without a subscription, other brokers need one."""
    names = () if broker.startswith("spool:") else CLASSES
    subscriptions = "".join(SUBSCRIPTION.format(name=name) for name in names)
    text = CONFIGURATION.format(broker=broker, database=database, subscriptions=subscriptions)
    (directory / "sam.toml").write_text(text)
    (directory / "sam.toml").chmod(0o600)  # the URL of PostgreSQL contains a password


def write_servlet_and_worker(directory: Path, port: int, proxy: str) -> None:
    """A message servlet, and a worker node that reaches it through a proxy only."""
    (directory / "servlet.toml").write_text(SERVLET_CONFIGURATION.format(port=port))
    (directory / "worker.toml").write_text(WORKER_CONFIGURATION.format(port=port, proxy=proxy))


def installed_plugins() -> dict[str, str]:
    """The command line of each plugin that is installed here, by its metric."""
    return {
        metric: f"{directory / name} {arguments}"
        for metric, (name, arguments) in PLUGINS.items()
        for directory in PLUGIN_DIRECTORIES
        if (directory / name).exists()
    }


def write_profile(directory: Path, metrics: Sequence[str]) -> None:
    """The profile of the small world, extended by the plugins that are installed here."""
    profile = PROFILE
    if metrics:
        flavours = {**PROFILE.flavours, THIS_FLAVOUR: Flavour(tuple(metrics))}
        functions = {**PROFILE.functions, "machine": Function((THIS_FLAVOUR,))}
        profile = replace(PROFILE, flavours=flavours, functions=functions)
    (directory / "critical.toml").write_text(to_toml(profile))


def write_topology(directory: Path, world: World, this_host: str) -> list[tuple[str, Path]]:
    """(class, file) for the topology of the world and, from now on, of this machine."""
    now = datetime.now(UTC).replace(microsecond=0)
    this_machine = Endpoint(THIS_SITE, this_host, THIS_FLAVOUR, valid_from=now)
    own_batch = Batch("this-machine", "serviceEndpoint", (endpoint_record(this_machine),))
    return [
        (batch.message_class, _write(directory / f"{batch.name}.txt", batch.records))
        for batch in [*topology_batches(world), own_batch]
    ]


def write_results(directory: Path, world: World) -> None:
    """Write a file per day of sending; a result sent late is in the file of a later day."""
    by_day: dict[date, list[Result]] = {}
    newest = datetime.min.replace(tzinfo=midnight(world.first_day).tzinfo)
    for result in world.results:
        newest = max(newest, result.measured_at)
        by_day.setdefault(newest.date(), []).append(result)
    for day, results in by_day.items():
        _write(directory / f"results-{day}.txt", map(result_record, results))


def write_broken_record(directory: Path, world: World) -> Path:
    path = directory / "broken-record.txt"
    path.write_text(BROKEN_RECORD.format(day=world.last_day))
    return path


def _write(path: Path, records: Iterable[dict[str, str]]) -> Path:
    path.write_text("".join(map(wlcg_text, records)))
    return path
