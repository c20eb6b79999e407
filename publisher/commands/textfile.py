"""The metrics of a worker node, in a text file for the textfile collector of node_exporter."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.spool.losses import losses
from sam_pipeline.publisher.spool.state import spool_states
from sam_pipeline.schema import VERSION
from sam_pipeline.schema.errors import NO_PERMISSION, SpoolError
from sam_pipeline.schema.net.certificate import CertificateLife, lives_of
from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.schema.program.wording import printable

PREFIX = "sam_publish"
MODE = 0o644
"""Of the file: node_exporter has an account of its own."""

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
        ("spool_quarantined_messages", "Damaged messages that were set aside.", "quarantined"),
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
        shown = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels)
        number = f"{value:.3f}".rstrip("0").rstrip(".")
        yield f"{PREFIX}_{name}{shown and f'{{{shown}}}'} {number}"


def _escaped(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
