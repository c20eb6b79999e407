"""The library in separate processes: an import that loads no modules, and a forked child."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sam_pipeline.publisher import Publisher, PublisherConfig
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_cannot_use_or_close_the_publisher(tmp_path: Path) -> None:
    config = PublisherConfig(spool=tmp_path / "spool")
    with FakeBroker() as broker, Publisher(config._replace(brokers=(broker.url,))) as publisher:
        publisher.add_message(metric_message())
        publisher.flush()
        child = os.fork()
        if child == 0:
            try:
                publisher.__exit__(None, None, None)
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        publisher.add_message(metric_message())
        publisher.flush()

        assert os.waitstatus_to_exitcode(status) == 7
        assert (len(broker.taken), broker.connections) == (2, 1)


def test_every_exported_name_exists_and_importing_the_package_loads_no_slow_module() -> None:
    slow = {"dataclasses", "http.client", "logging", "socket", "ssl", "subprocess", "tempfile"}
    script = (
        "import sys; from sam_pipeline import publisher;"
        "[getattr(publisher, name) for name in publisher.__all__];"
        f"print(sorted({slow} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
