"""The text file for node_exporter: its metrics, and how it is replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sam_pipeline.publisher.commands.textfile import write_textfile
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.copy_config import CopyTable
from sam_pipeline.schema.errors import NO_PERMISSION, SpoolError
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message

Samples = dict[tuple[str, str], float]


@pytest.fixture
def config(tmp_path: Path) -> PublisherConfig:
    path = TlsFiles(tmp_path).certificate_file(TlsFiles(tmp_path).client())
    path = path.rename(tmp_path / 'a"b\\c.pem')
    copy = CopyTable("central", ("stomp://msg2.example.org",), spool=tmp_path / "copy")
    return PublisherConfig(spool=tmp_path / "spool", certificate_file=path, copy=(copy,))


def samples_in(path: Path) -> Samples:
    """The values by name and last label value."""
    return {
        (sample.name.removeprefix("sam_publish_"), "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


def test_it_has_the_sizes_of_all_spools_and_the_ends_of_certificates(
    config: PublisherConfig, tmp_path: Path
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    queue.add(metric_message())
    queue.quarantine(queue.add(metric_message()), "damaged")

    write_textfile(tmp_path / "sam.prom", config)

    samples = samples_in(tmp_path / "sam.prom")
    [size] = [path.stat().st_size for path in queue.path.glob("*/*")]
    assert samples["spool_messages", ""] == 1
    assert samples["spool_bytes", ""] == size
    assert samples["spool_quarantined_messages", ""] == 1
    assert samples["spool_messages", "central"] == 0
    assert samples["spool_max_messages", "central"] == 100_000
    assert samples["spool_oldest_timestamp_seconds", ""] > 1_790_000_000
    assert ("spool_oldest_timestamp_seconds", "central") not in samples
    assert samples["certificate_expiry_timestamp_seconds", str(tmp_path / 'a"b\\c.pem')] > 0
    assert any(name == "build_info" for name, _ in samples)


def test_others_can_read_it_whatever_the_umask_is(config: PublisherConfig, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_textfile(tmp_path / "sam.prom", config)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "sam.prom").stat().st_mode) == 0o644


def test_an_error_leaves_the_old_file_so_that_its_age_is_an_alarm(
    config: PublisherConfig, tmp_path: Path
) -> None:
    write_textfile(tmp_path / "sam.prom", config)
    before = (tmp_path / "sam.prom").read_text()
    (tmp_path / "spool").write_text("not a directory")

    with pytest.raises(SpoolError):
        write_textfile(tmp_path / "sam.prom", config)

    assert (tmp_path / "sam.prom").read_text() == before
    assert [path.name for path in tmp_path.glob(".sam*")] == []


def test_a_file_that_can_not_be_written_is_an_error(
    config: PublisherConfig, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SpoolError) as raised:
        write_textfile(tmp_path / "file" / "sam.prom", config)

    assert raised.value.exit_code != NO_PERMISSION
