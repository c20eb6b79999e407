"""One probe out of a thousand stops: status, metrics and the plugin say which, in time."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.times import format_time, parse_time
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import free_ports, wait_until
from tests.support.brokers.tls_files import TlsFiles
from tests.support.commands import Workplace, embedded_workplace

PROBES = range(1000)
STOPPED = 7
INTERVAL = timedelta(seconds=15)
SOON_S = 60.0
WARNING, CRITICAL = 1, 2
TOKEN = "correct-horse"


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    workplace = embedded_workplace(tmp_path)
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        workplace = replace(workplace, database=fresh_database(postgres))
    (port,) = free_ports(1)
    workplace = replace(workplace, consumer_settings=f'metrics_listen = "127.0.0.1:{port}"')
    workplace.write_configuration().succeed("sam-db", "upgrade")
    return workplace


def report(workplace: Workplace, probes: Iterable[int], moment: datetime) -> None:
    records = [
        {
            "hostName": f"ce{number:04}.example.org",
            "serviceFlavour": "CE",
            "metricName": "org.example.Ping",
            "metricStatus": "OK",
            "timestamp": format_time(moment),
        }
        for number in probes
    ]
    workplace.succeed("sam-publish", "send", stdin=json.dumps(records))


def status(workplace: Workplace) -> dict[str, Any]:
    return dict(workplace.run("sam-consume", "status", "--json").json)


def curl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["curl", "-sS", "-m", "10", *arguments], capture_output=True, text=True, timeout=30
    )


def metric(workplace: Workplace, name: str) -> float:
    [address] = re.findall(r'metrics_listen = "(.*)"', workplace.consumer_settings)
    [value] = re.findall(
        rf"^{re.escape(name)} (\S+)$", curl(f"http://{address}/metrics").stdout, re.MULTILINE
    )
    return float(value)


def test_one_probe_of_a_thousand_is_missed_within_two_of_its_intervals(
    workplace: Workplace,
) -> None:
    with workplace.running("sam-consume", "run"):
        wait_until(lambda: status(workplace).get("coverage") is not None, SOON_S)
        began = datetime.now(UTC)
        for age in (4, 3, 2, 1):
            report(workplace, PROBES, began - age * INTERVAL)
        stopped_at = datetime.now(UTC).replace(microsecond=0)
        report(workplace, PROBES, stopped_at)
        others = [number for number in PROBES if number != STOPPED]
        noticed_at, next_at = None, stopped_at + INTERVAL
        while noticed_at is None and datetime.now(UTC) < stopped_at + 4 * INTERVAL:
            if datetime.now(UTC) >= next_at:
                report(workplace, others, next_at)
                next_at += INTERVAL
            said = status(workplace)
            assert said["silent"]["probe"] <= 1
            if said["silent"]["probe"]:
                noticed_at = datetime.now(UTC)
            time.sleep(1)

        assert noticed_at is not None and noticed_at - stopped_at <= 2 * INTERVAL
        [silence] = said["silences"]
        assert f"ce{STOPPED:04}.example.org CE org.example.Ping" in silence["name"]
        assert parse_time(silence["last"]) == stopped_at
        assert silence["name"] in workplace.succeed("sam-consume", "status").out
        plugin = workplace.run("check_sam_consumer")
        assert (plugin.code, silence["name"] in plugin.out) == (WARNING, True), str(plugin)
        assert "silent_probes=1;" in plugin.out
        assert metric(workplace, 'sam_consume_silent{kind="probe"}') == 1

        report(workplace, PROBES, datetime.now(UTC))

        wait_until(lambda: status(workplace)["silent"]["probe"] == 0, SOON_S)
        assert workplace.run("check_sam_consumer").code == 0
        assert metric(workplace, 'sam_consume_silent{kind="probe"}') == 0


def test_classes_and_sites_that_stop_are_noticed(tmp_path: Path) -> None:
    rules = """
[[consumer.silence]]
class = "metricOutput"
minutes = 0.05
[[consumer.silence]]
site = "*"
minutes = 0.05
"""
    workplace = replace(embedded_workplace(tmp_path), consumer_settings=rules)
    workplace.write_configuration().succeed("sam-db", "upgrade")
    endpoint = {
        "siteName": "EXAMPLE-LCG2",
        "hostName": "ce0000.example.org",
        "serviceFlavour": "CE",
        "validFrom": "2026-01-01T00:00:00Z",
    }
    workplace.succeed(
        "sam-publish", "send", "--class", "serviceEndpoint", stdin=json.dumps(endpoint)
    )
    with workplace.running("sam-consume", "run"):
        report(workplace, [0], datetime.now(UTC))
        wait_until(lambda: status(workplace).get("silent", {}).get("site") == 1, SOON_S)
        wait_until(lambda: status(workplace)["silent"]["class"] == 1, SOON_S)

        plugin = workplace.run("check_sam_consumer")

    assert plugin.code == CRITICAL
    assert "metricOutput" in plugin.out and "EXAMPLE-LCG2" in plugin.out


def test_metrics_are_scraped_over_https_with_a_token(tmp_path: Path) -> None:
    tls = TlsFiles(tmp_path)
    host = tls.host()
    (port,) = free_ports(1)
    tls.certificate_file(host, "host.pem")
    tls.key_file(host, name="host-key.pem")
    tls.file("token", f"{TOKEN}\n".encode())
    settings = f"""
metrics_listen = "0.0.0.0:{port}"
metrics_certificate_file = "host.pem"
metrics_key_file = "host-key.pem"
metrics_token_file = "token"
"""
    workplace = replace(embedded_workplace(tmp_path), consumer_settings=settings)
    workplace.write_configuration().succeed("sam-db", "upgrade")
    url = f"https://127.0.0.1:{port}/metrics"
    trusting = ("--cacert", str(tls.ca_file), url)
    with workplace.running("sam-consume", "run"):
        token = ("-H", f"Authorization: Bearer {TOKEN}")
        wait_until(lambda: "_expiry_timestamp_seconds{" in curl(*token, *trusting).stdout, SOON_S)

        scraped = curl(*token, *trusting)
        refused = curl("-w", "%{http_code}", *trusting)

        assert 'sam_consume_build_info{schema="' in scraped.stdout
        expiry = f'sam_consume_certificate_expiry_timestamp_seconds{{file="{tmp_path}/host.pem"}}'
        assert expiry in scraped.stdout
        assert refused.stdout.endswith("401") and "sam_consume" not in refused.stdout
        assert curl(f"http://127.0.0.1:{port}/metrics").returncode != 0
    assert TOKEN not in (tmp_path / "running.log").read_text()


def test_certificates_that_expire_are_reported_by_every_command(tmp_path: Path) -> None:
    tls = TlsFiles(tmp_path)
    now = datetime.now(UTC)
    soon = tls.client(now - timedelta(days=300), now + timedelta(days=10))
    tls.certificate_file(soon, "soon.pem")
    tls.key_file(soon, name="soon-key.pem")
    tls.certificate_file(tls.expired_host(), "expired.pem")
    settings = """
certificate_file = "soon.pem"
key_file = "soon-key.pem"
ca_file = "ca.pem"
"""
    workplace = replace(embedded_workplace(tmp_path), consumer_settings=settings)
    workplace.write_configuration().succeed("sam-db", "upgrade")

    checked = workplace.succeed("sam-consume", "check")
    with workplace.running("sam-consume", "run"):
        wait_until(lambda: status(workplace).get("certificates"), SOON_S)
        shown = workplace.succeed("sam-consume", "status").out
        plugin = workplace.run("check_sam_consumer")
        (tmp_path / "soon.pem").write_bytes((tmp_path / "expired.pem").read_bytes())
    expired = workplace.run("sam-consume", "check")

    assert re.search(r"soon\.pem +\S+ +10", checked.out) and "ca.pem" in checked.out
    assert re.search(r"soon\.pem: 10 days left", shown)
    assert (plugin.code, "soon.pem expires" in plugin.out) == (WARNING, True), str(plugin)
    assert (expired.code, "expired" in expired.err) == (78, True)
