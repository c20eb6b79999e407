"""For monitoring systems: `check_sam_publisher`, the spool of a worker node for Nagios, Icinga and
similar ones; and a text file of metrics for the textfile collector of node_exporter.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from sam_pipeline.publisher.delivery.route import Memory
from sam_pipeline.publisher.settings import PublisherConfig, load_config
from sam_pipeline.publisher.spool.inspection import losses, spool_states
from sam_pipeline.schema import VERSION
from sam_pipeline.schema.errors import NO_PERMISSION, SpoolError
from sam_pipeline.schema.net.certificate import CertificateLife, lives_of
from sam_pipeline.schema.program.command import CommandParser
from sam_pipeline.schema.program.monitoring_plugin import (
    CRITICAL,
    DAYS_LEFT,
    UNKNOWN,
    PluginReport,
    PluginThreshold,
    failure,
    plugin_parser,
    run_plugin,
)
from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.schema.program.wording import duration, plural, printable
from sam_pipeline.schema.spool.inspection import unwritable

PROGRAM = "check_sam_publisher"
SUBJECT = "SAM PUBLISHER"

THRESHOLDS = (
    PluginThreshold("age", "seconds that the oldest message waits in a spool", 3600, 21_600),
    PluginThreshold("messages", "messages in the spools", None, None),
    PluginThreshold("bytes", "bytes of these messages", None, None),
    PluginThreshold("fill", "percent of a limit on a spool", 50, 90),
    PluginThreshold("quarantined", "damaged messages in the quarantine", 1, None),
    PluginThreshold("lost", "lost results, the last one less than a day ago", None, 1),
    PluginThreshold("failures", "failures in a row of every broker", 5, None),
    DAYS_LEFT,
)
EXAMPLES = """\
examples:
  check_sam_publisher
  check_sam_publisher --config /etc/sam/sam.toml --warning-age 600 --critical-age 7200
  check_sam_publisher --warning-messages 100 --warning-certificate-days 30

Run it as the account that publishes: others can't read the spool. The spools of copies also count.
For a short-lived certificate, the last third of its lifetime is a warning, the last tenth critical.
The exit code is that of monitoring plugins:
  0 OK        nothing waits in the spool for too long
  1 WARNING   a value reaches its --warning threshold
  2 CRITICAL  a value reaches its --critical threshold, or nothing can be written into the spool
  3 UNKNOWN   the spool or the configuration can't be read, or no spool is configured
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code of a monitoring plugin."""
    return run_plugin(make_parser(), argv, check_publisher)


def make_parser() -> CommandParser:
    description = "Check the spool of the publisher on this host for a monitoring system."
    return plugin_parser(PROGRAM, description, EXAMPLES, THRESHOLDS)


def check_publisher(args: argparse.Namespace) -> int:
    """Print the state in one line; an error is UNKNOWN, since monitoring ignores standard error."""
    try:
        config = load_config(args.config, {})
        states = list(spool_states(config))
        lives = list(lives_in(config))
        failures, reason = failing(config)
    except Exception as error:
        return failure(args, SUBJECT, error)
    now = datetime.now(timezone.utc)
    report = PluginReport(args, SUBJECT)
    if not states:
        report.raise_to(UNKNOWN, "no spool is configured")
        return report.print()
    messages = sum(state.messages for state in states)
    size_bytes = sum(state.size_bytes for state in states)
    waiting = f"{plural(messages, 'message')} in the spool"
    report.texts.append(waiting)
    oldest = min((state.oldest for state in states if state.oldest), default=now)
    age_s = max((now - oldest).total_seconds(), 0.0)
    report.judge("age", age_s, "s", f"the oldest waits for {duration(int(age_s))}")
    report.judge("messages", messages, text="too many messages")
    report.judge("bytes", size_bytes, "B", f"{size_bytes} bytes")
    fullest = max(states, key=lambda state: state.fill)
    report.judge("fill", fullest.fill, "%", f"{fullest.path} is {fullest.fill:.0f} % full")
    aside = sum(state.quarantined for state in states)
    report.judge("quarantined", aside, text=f"{aside} damaged, see `sam-publish spool list`")
    text = f"no broker works, {failures} failures in a row: {reason}"
    report.judge("failures", failures, text=text)
    lost = losses(config.state)
    when = f"{lost.last:%Y-%m-%d %H:%M} UTC" if lost.last else ""
    report.judge("lost", lost.recent, text=f"{plural(lost.results, 'result')} lost, last {when}")
    for state in states:
        if problem := unwritable(state.path):
            report.raise_to(CRITICAL, problem)
    report.judge("dropped", sum(state.dropped for state in states), "c")
    for life in lives:
        report.judge_certificate(life.file, life.begin, life.end, now)
    return report.print()


def failing(config: PublisherConfig) -> tuple[int, str]:
    """The failures in a row where none of the brokers works, and their reason: the worst copy's."""
    worst = (0, "")
    for one in (config, *config.copies):
        memory = Memory(one.state, one.targets)
        memory.refresh()
        worst = max(worst, memory.failing())
    return worst


PREFIX = "sam_publish"
MODE = 0o644
"""The mode of the file: node_exporter runs under an account of its own."""

Label = tuple[str, str]
Sample = tuple[Sequence[Label], float]


def write_textfile(path: Path, config: PublisherConfig) -> None:
    """Replace the file by one with the present values; after an error, the old one stays.

    Raises:
        SpoolError: a spool can't be read, or the file can't be written.
    """
    text = "".join(f"{line}\n" for line in lines(config))
    try:
        with replacing(path, MODE) as file:
            os.fchmod(file.fileno(), MODE)  # whatever the umask is
            file.write(text.encode())
    except PermissionError as error:
        raise SpoolError(f"cannot write {path}: {error.strerror}", NO_PERMISSION) from error
    except OSError as error:
        raise SpoolError(f"cannot write {path}: {error.strerror}") from error


def lines(config: PublisherConfig) -> Iterator[str]:
    """The metrics in the text format of Prometheus."""
    yield from _metric("build_info", "The version of sam-publish.", [([("version", VERSION)], 1)])
    states = [
        ([("copy", state.copy)] if state.copy else [], state) for state in spool_states(config)
    ]
    for name, text, field in (
        ("spool_messages", "Messages in the spool.", "messages"),
        ("spool_bytes", "Size of these messages.", "size_bytes"),
        ("spool_max_messages", "The limit on messages in the spool.", "max_messages"),
        ("spool_max_bytes", "The limit on the size of the spool.", "max_bytes"),
        ("spool_quarantined_messages", "Damaged messages in the quarantine.", "quarantined"),
        ("spool_dropped_messages", "Messages that a full spool has dropped.", "dropped"),
    ):
        yield from _metric(name, text, [(labels, getattr(s, field)) for labels, s in states])
    oldest = [(labels, s.oldest.timestamp()) for labels, s in states if s.oldest]
    text = "When the oldest message in the spool was written."
    yield from _metric("spool_oldest_timestamp_seconds", text, oldest)
    lost = losses(config.state)
    text = "Results that were neither published nor spooled."
    yield from _metric("lost_results", text, [([], lost.results)])
    if lost.last:
        text = "When a result was last lost."
        yield from _metric("last_loss_timestamp_seconds", text, [([], lost.last.timestamp())])
    expiries = [([("file", life.file)], life.end.timestamp()) for life in lives_in(config)]
    text = "When the certificate expires."
    yield from _metric("certificate_expiry_timestamp_seconds", text, expiries)


def lives_in(config: PublisherConfig) -> Iterator[CertificateLife]:
    """The certificates that the configuration names, also in its tables."""
    sections = (config, *config.copies)
    tables = [table for section in sections for table in section.broker]
    ours = [one.certificate_file for one in sections] + [one.certificate_file for one in tables]
    return lives_of(ours, [one.ca_file for one in sections] + [one.ca_file for one in tables])


def _metric(name: str, text: str, samples: Sequence[Sample]) -> Iterator[str]:
    if not samples:
        return
    yield f"# HELP {PREFIX}_{name} {text}"
    yield f"# TYPE {PREFIX}_{name} gauge"
    for labels, value in samples:
        texts = {label: printable(content).replace("\\", "\\\\") for label, content in labels}
        escaped = {label: text.replace('"', '\\"') for label, text in texts.items()}
        shown = ",".join(f'{label}="{text}"' for label, text in escaped.items())
        number = f"{value:.3f}".rstrip("0").rstrip(".")
        yield f"{PREFIX}_{name}{shown and f'{{{shown}}}'} {number}"
