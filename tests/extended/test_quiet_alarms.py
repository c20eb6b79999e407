"""No alarm fires on a healthy system: two minutes with each broker, continued to twenty."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.extended.test_dashboards import RULES, promtool
from tests.services.broker import StompServer
from tests.services.process import HOST, free_ports
from tests.support.conservation import numbered
from tests.support.consumer.daemon import Subscription, running, site_of
from tests.support.consumer.publisher import publish

EVERY_S, TIMES = 15, 8
MINUTES = 20
Series = dict[str, list[float]]


def test_no_alarm_fires_on_a_healthy_system(
    tmp_path: Path, activemq: StompServer, artemis: StompServer, rabbitmq: StompServer
) -> None:
    """With a busy destination and one where nothing arrives, as of the topology."""
    with ExitStack() as stack:
        watched = []
        for broker, port in zip((activemq, artemis, rabbitmq), free_ports(3), strict=True):
            directory = tmp_path / str(port)
            directory.mkdir()
            busy, rare = (f"/topic/grid.{name}.{uuid.uuid4().hex}" for name in ("busy", "rare"))
            site = site_of(
                directory,
                [broker.url],
                *(Subscription(busy), Subscription(rare, "serviceEndpoint")),
                metrics_listen=f"{HOST}:{port}",
            )
            daemon = stack.enter_context(running(site))
            daemon.wait_until_subscribed(broker.url)
            watched.append((broker, busy, port, defaultdict[str, list[float]](list)))
        for turn in range(TIMES):
            due = time.monotonic() + EVERY_S
            for broker, busy, port, series in watched:
                publish(broker.host, broker.port, busy, numbered(f"turn-{turn}", range(3)))
                for name, value in scraped(port):
                    series[name].append(value)
            time.sleep(max(due - time.monotonic(), 0))

    rules = shutil.copy(RULES, tmp_path)
    (tmp_path / "healthy.yml").write_text(
        json.dumps({"rule_files": [rules], "tests": [case_of(one[3]) for one in watched]})
    )
    done = promtool("test", "rules", tmp_path / "healthy.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def scraped(port: int) -> Iterator[tuple[str, float]]:
    """The samples of a daemon, by names with labels; times are relative to now, as in a test."""
    with urlopen(f"http://{HOST}:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {**sample.labels, "job": "sam-consume", "instance": str(port)}
            shown = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
            is_time = sample.name.endswith("timestamp_seconds")
            value = sample.value - STARTED if is_time else sample.value
            yield f"{sample.name}{{{shown}}}", value


STARTED = time.time()


def case_of(series: Series) -> dict[str, object]:
    """A test of promtool: the series go on as they were in the second half of the time."""
    steps = MINUTES * 60 // EVERY_S
    inputs = [
        {"series": name, "values": continued(values, steps)} for name, values in series.items()
    ]
    inputs.append({"series": 'up{job="sam-consume"}', "values": f"1+0x{steps}"})
    moments = [f"{minute}m" for minute in range(1, MINUTES)]
    silent = [
        {"expr": 'ALERTS{alertstate="firing"}', "eval_time": moment, "exp_samples": []}
        for moment in moments
    ]
    return {"interval": f"{EVERY_S}s", "input_series": inputs, "promql_expr_test": silent}


def continued(values: Sequence[float], steps: int) -> str:
    half = len(values) // 2
    step = (values[-1] - values[half]) / max(len(values) - 1 - half, 1)
    rest = [values[-1] + step * number for number in range(1, steps - len(values) + 2)]
    return " ".join(f"{value:g}" for value in (*values, *rest))
