"""The commands of docs/import.md work, in the order of the page."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import embedded
from tests.support.page import Page, shell
from tests.support.reports.stored import query

PAGE = Page("docs/import.md")


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)

    done = shell(workplace, *PAGE.texts("sh"))

    assert done.code == 0, str(done)
    assert "results-2011.txt:7: bad-status: metricStatus 'SPLENDID'" in done.out
    assert "3 records: 2 rows, 0 duplicates, 1 refused, 1 new dead letter" in done.out
    assert "downtimes.csv:3: bad-time: " in done.err
    assert "downtimes.csv: 1 of 2 lines are bad; nothing was imported" in done.out
    counts = {
        name: query(workplace.database, f"SELECT count(*) AS n FROM {name}")[0]["n"]
        for name in ("metricOutput", "serviceEndpoint", "downtime", "dead_letter")
    }
    assert counts == {"metricOutput": 2, "serviceEndpoint": 2, "downtime": 1, "dead_letter": 1}
