"""The metrics of a snapshot, in the form of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, Metric, StateSetMetricFamily

from sam_pipeline.consumer.monitoring.snapshot import STATES, Snapshot
from sam_pipeline.schema.program.wording import printable

PREFIX = "sam_consume"
LAG = "Time from sending a message to the commit of its rows."
COMMIT = "Time to store and commit a batch."


class SnapshotCollector:
    """Collects the metrics of a new snapshot for each scrape."""

    def __init__(self, observe: Callable[[], Snapshot]) -> None:
        self._observe = observe

    def collect(self) -> Iterator[Metric]:
        """The metrics of a snapshot, which is taken for each scrape."""
        snapshot = self._observe()
        text = "The version of the program, and of the schema of the database."
        build = Gauge(f"{PREFIX}_build_info", text, labels=["version", "schema"])
        build.add_metric([snapshot.version, snapshot.schema], 1)
        yield build
        for kind, name, text, label, value in _numbers(snapshot):
            family = kind(f"{PREFIX}_{name}", text, labels=[label] if label else [])
            for key, number in value.items() if isinstance(value, Mapping) else [("", value)]:
                family.add_metric([printable(key)] if label else [], number)
            yield family
        for _, count, numbers in snapshot.counts.described():
            counter = Counter(f"{PREFIX}_{count.metric}", count.help, labels=count.labels)
            for values, number in numbers.items():
                counter.add_metric([*map(printable, values)], number)
            yield counter
        current = snapshot.health(datetime.now(UTC)).state
        states = {state: state == current for state in STATES}
        yield StateSetMetricFamily(f"{PREFIX}_state", "The state of the daemon.", states)
        for name, text, histogram in (
            ("publish_to_commit_seconds", LAG, snapshot.lags),
            ("commit_seconds", COMMIT, snapshot.commits),
            ("batch_messages", "Number of messages in a batch.", snapshot.batches),
        ):
            edges = [*(f"{float(edge)}" for edge in histogram.edges), "+Inf"]
            buckets = list(zip(edges, map(float, histogram.cumulative()), strict=True))
            yield HistogramMetricFamily(
                f"{PREFIX}_{name}", text, buckets=buckets, sum_value=histogram.total
            )


def _numbers(
    snapshot: Snapshot,
) -> Iterator[tuple[type[Counter] | type[Gauge], str, str, str, Mapping[str, float] | float]]:
    """Kind, name, help, label and value of each metric; with a label, values by label value."""
    brokers = {broker.broker: broker for broker in snapshot.brokers}
    text = "Log lines that could not be written."
    yield Counter, "log_lines_dropped", text, "", snapshot.log_lines_dropped
    text = "Requests to HTTP doors."
    yield Counter, "requests", text, "status", snapshot.requests

    reconnects = {name: broker.reconnects for name, broker in brokers.items()}
    text = "Sessions with a broker that replaced a lost one."
    yield Counter, "reconnects", text, "broker", reconnects
    connected = {name: not broker.missing for name, broker in brokers.items()}
    text = "Whether all addresses and subscriptions of a broker deliver."
    yield Gauge, "broker_connected", text, "broker", connected
    text = "Whether the last attempt to use the database succeeded."
    yield Gauge, "can_commit", text, "", snapshot.waiting_since is None
    text = "Files that can't be used as they are now: what they had before is in use."
    yield Gauge, "unused_files", text, "", len(snapshot.unused_files)
    text = "How far the clock of the database is ahead of that of this host."
    yield Gauge, "clock_offset_seconds", text, "", snapshot.clock_offset_s
    held = {name: broker.held for name, broker in brokers.items()}
    yield Gauge, "held_messages", "Messages received and not yet acked.", "broker", held
    yield Gauge, "held_bytes", "Size of the bodies of these messages.", "", snapshot.held_bytes
    yield Gauge, "connections", "Connections to HTTP doors.", "", snapshot.connections
    elements = {
        name: broker.spool_elements
        for name, broker in brokers.items()
        if broker.spool_elements is not None
    }
    yield Gauge, "spool_elements", "Elements of a spool not yet read.", "broker", elements
    if snapshot.lag_s is not None:
        text = "Time from sending to commit of the newest message."
        yield Gauge, "lag_seconds", text, "", snapshot.lag_s
    if snapshot.open_dead_letters is not None:
        text = "Open dead letters in the database."
        yield Gauge, "open_dead_letters", text, "reason", snapshot.open_dead_letters
    text = "New dead letters of the last hour."
    yield Gauge, "dead_letters_last_hour", text, "", snapshot.dead_letters_last_hour
    text = "Classes, sites and probes of which nothing has arrived for longer than their limits."
    yield Gauge, "silent", text, "kind", snapshot.silent
    text = "Up to when everything sent has arrived, so that silence can be noticed."
    if snapshot.coverage:
        until = snapshot.coverage.until.timestamp()
        yield Gauge, "covered_until_timestamp_seconds", text, "", until
    received = {name: moment.timestamp() for name, moment in snapshot.received.items()}
    text = "When records of the class last arrived."
    yield Gauge, "last_received_timestamp_seconds", text, "class", received
    sites = {name: moment.timestamp() for name, moment in snapshot.sites.items() if moment}
    text = "The newest result of a site that should report."
    yield Gauge, "site_last_received_timestamp_seconds", text, "site", sites
    expiries = {life.file: life.end.timestamp() for life in snapshot.certificates}
    text = "When the certificate expires."
    yield Gauge, "certificate_expiry_timestamp_seconds", text, "file", expiries
    for name, text, moment in (
        ("start_timestamp_seconds", "Start of the process.", snapshot.since),
        ("turn_timestamp_seconds", "Last turn of the main loop.", snapshot.turned_at),
        ("last_commit_timestamp_seconds", "Last commit.", snapshot.last_commit),
    ):
        if moment:
            yield Gauge, name, text, "", moment.timestamp()
