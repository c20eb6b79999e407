"""The alert rules and the dashboard: promtool accepts them, and every metric is a real one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.services import missing

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/sam.rules.yml"
RULE_TESTS = ROOT / "deploy/prometheus/sam.tests.yml"
DASHBOARD = json.loads((ROOT / "deploy/grafana/sam.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())
METRIC = re.compile(r"\b(?:sam|process|node)_[a-z_]+\b")
VARIABLES = {"$instance": ".*", "$__rate_interval": "5m"}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which("promtool"):
        missing("promtool", "apt-get install prometheus")
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True)


def queries() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def names_in(text: str) -> set[str]:
    """The names of metrics, without the endings of histograms."""
    text = re.sub(r"sam_\(consume\|publish\)(_\w+)", r"sam_consume\1 sam_publish\1", text)
    text = re.sub(r"sam_consume_\((\w+)\|(\w+)\)", r"sam_consume_\1 sam_consume_\2", text)
    return {re.sub("_(bucket|sum|count)$", "", name) for name in METRIC.findall(text)}


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    checked = promtool("check", "rules", RULES)
    tested = promtool("test", "rules", RULE_TESTS)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_each_alert_is_tested_and_documented() -> None:
    documented = (ROOT / "docs/monitoring.md").read_text()
    for alert in ALERTS:
        case = RULE_TESTS.read_text().partition(f"- name: {alert}\n")[2].partition("- name:")[0]
        assert f'labels: \'ALERTS{{alertname="{alert}", alertstate="firing"' in case
        assert f"`{alert}`" in documented


def test_promtool_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = []
    for number, query in enumerate(queries()):
        for variable, value in VARIABLES.items():
            query = query.replace(variable, value)
        assert "$" not in query
        rules.append({"record": f"query:{number}", "expr": query})
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "a", "rules": rules}]}))

    done = promtool("check", "rules", "--lint=none", tmp_path / "queries.yml")

    assert done.returncode == 0, done.stdout + done.stderr


def documented() -> set[str]:
    """The metrics of two pages, whose plans compare them with those of programs that run."""
    names = {"node_textfile_mtime_seconds"}  # of node_exporter
    for page, heading, prefix in (
        ("consumer-reference", "\n## Metrics\n", "sam_consume_"),
        ("monitoring", "\n## Metrics of a worker node\n", "sam_publish_"),
    ):
        section = (ROOT / f"docs/{page}.md").read_text().partition(heading)[2].partition("\n## ")[0]
        cells = re.findall(r"^\| ([^|]*)\|", section, re.MULTILINE)
        names |= {f"{prefix}{name}" for name in re.findall(r"`(\w+)`", "".join(cells))}
    return names


def test_every_metric_is_one_that_a_daemon_or_a_worker_node_has() -> None:
    expressions = "\n".join(re.findall(r"expr: (>\n(?: {10}.*\n)+|.*)", RULES.read_text()))
    used = names_in("\n".join([*queries(), expressions]))

    assert len(used) > 25
    assert {name for name in used - documented() if not name.startswith("process_")} == set()
