"""The alert rules and the dashboard: promtool accepts them, and every metric is a real one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.services import missing
from tests.services.process import free_ports
from tests.support.commands import RESULT, embedded_workplace
from tests.support.waiting import SOON_S, eventually

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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The metrics of a real daemon that has stored a result, and of a real text file."""
    place = embedded_workplace(tmp_path_factory.mktemp("served"))
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}/metrics"
    file = place.directory / "sam.toml"
    listen = f'[consumer]\nmetrics_listen = "127.0.0.1:{port}"\n'
    file.write_text(file.read_text().replace("[consumer]\n", listen))
    place.succeed("sam-db", "upgrade")
    place.succeed(*RESULT, "--site", "SITE-A")
    text = ""

    def has_stored() -> bool:
        nonlocal text
        with suppress(OSError), urllib.request.urlopen(url, timeout=SOON_S) as response:
            text = response.read().decode()
        late = ("lag_seconds", "last_commit_timestamp_seconds", "open_dead_letters")
        return all(f"# TYPE sam_consume_{name} " in text for name in late)

    with place.running("sam-consume", "run"):
        eventually(has_stored)
    place.succeed(*RESULT, "--broker", "stomp://127.0.0.1:1")
    place.succeed("sam-publish", "spool", "status", "--textfile", "sam.prom")
    text += (place.directory / "sam.prom").read_text()
    counters = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(text)
    }
    yield counters


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


def test_every_metric_is_one_that_a_daemon_or_a_worker_node_has(served: set[str]) -> None:
    expressions = "\n".join(re.findall(r"expr: (>\n(?: {10}.*\n)+|.*)", RULES.read_text()))
    used = names_in("\n".join([*queries(), expressions]))

    assert len(used) > 25
    # Of certificates, which this site has none of, and of node_exporter.
    others = {f"sam_{name}_certificate_expiry_timestamp_seconds" for name in ("consume", "publish")}
    assert used - served - others == {"node_textfile_mtime_seconds"}
