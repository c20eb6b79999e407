"""The summary at the end of the demo: the figures, the only dead letter, and the page to open."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.demo.road import Demo
from tests.demo.shell import Shell

NO_VALUE = "no data"


def print_summary(demo: Demo, shell: Shell) -> None:
    print(f"\n{demo.world.first_day} to {demo.world.last_day}:\n")
    for line in figures_table(site_figures(demo, shell)):
        print(f"   {line}")
    for letter in json.loads(shell.ask("sam-consume dead-letter list --json")):
        number, reason, error = (letter[key] for key in ("dead_letter_id", "reason", "error"))
        print(f"\nDead letter {number} ({reason}): {error}")
    print(f"\nOpen in a browser: {demo.page.resolve()}")


def site_figures(demo: Demo, shell: Shell) -> list[dict[str, Any]]:
    """The figures of the sites over the seven days, from the stored report."""
    answer = shell.ask(f"sam-report show --level site {demo.seven_days} --json")
    rows: list[dict[str, Any]] = json.loads(answer)
    return rows


def figures_table(rows: Iterable[dict[str, Any]]) -> list[str]:
    table = [("site", "availability", "reliability")]
    table += [
        (row["site"], percent(row["availability"]), percent(row["reliability"])) for row in rows
    ]
    return [f"{site:<14}{first:>14}{second:>14}" for site, first, second in table]


def percent(value: str | float | None) -> str:
    return NO_VALUE if value is None else f"{float(value):.2f} %"
