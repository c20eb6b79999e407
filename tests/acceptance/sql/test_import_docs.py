"""What docs/import.md tells a site to type works, in the order of the page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.sql.commands.import_files import TABLES
from tests.support.commands import embedded
from tests.support.reports.stored import query

PAGE = (Path(__file__).parents[3] / "docs" / "import.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    place = embedded(tmp_path)

    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -euo pipefail", *BLOCKS])],
        cwd=tmp_path,
        env=place.clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "results-2011.txt:7: bad-status: metricStatus 'SPLENDID'" in done.stdout
    assert "3 records: 2 rows stored, 1 records refused, 1 new dead letters" in done.stdout
    assert "downtimes.csv:3: downtime: " in done.stderr
    assert "downtimes.csv: 1 of 2 lines are bad; nothing was imported" in done.stdout
    counts = {
        name: query(place.database, f"SELECT count(*) AS n FROM {name}")[0]["n"]
        for name in ("metricOutput", "serviceEndpoint", "downtime", "dead_letter")
    }
    assert counts == {"metricOutput": 2, "serviceEndpoint": 2, "downtime": 1, "dead_letter": 1}


def test_the_columns_of_the_tables_are_those_of_the_classes() -> None:
    for known in TABLES:
        [row] = re.findall(rf"^\| `{known.name}` \| (.*) \|$", PAGE, re.MULTILINE)
        required = re.findall(r"\w+", row.split("**")[1])
        named = set(re.findall(r"[a-z]+[A-Z]\w*|\w+", row)) - {"or", "both"}

        assert sorted(required) == sorted(known.required)
        assert named == set(BUILT_IN[known.name.lower()].keys)
