"""The commands of docs/monitoring.md work, and its metrics are those of the text file."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.commands import Workplace
from tests.support.page import ROOT, Page, shell

PAGE = Page("docs/monitoring.md")


def test_every_command_succeeds_and_the_table_has_every_metric(tmp_path: Path) -> None:
    place = Workplace(tmp_path, broker="stomp://127.0.0.1:1", database="").write_configuration()
    check, write = PAGE.texts("sh")

    done = shell(place, check, write)

    assert done.code == 0, str(done)
    assert done.out.startswith("SAM PUBLISHER OK - 0 messages in the spool | age=0s;1800;14400;0 ")
    [section] = re.findall(
        r"## Metrics of a worker node\n(.*?)\n## ", (ROOT / "docs/monitoring.md").read_text(), re.S
    )
    table = "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))
    documented = set(re.findall(r"`(\w+)`", table))
    written = set(
        re.findall(r"# TYPE sam_publish_(\w+) ", (tmp_path / "sam-publish.prom").read_text())
    )
    # Those of an empty spool and of no certificate are missing.
    assert (
        written
        | {
            "spool_oldest_timestamp_seconds",
            "certificate_expiry_timestamp_seconds",
        }
        == documented
    )
