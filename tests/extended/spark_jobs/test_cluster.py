"""Reports on a cluster: a standalone master with two workers, spark-submit, an archive in S3."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sam_pipeline.spark_jobs
from sam_pipeline.spark_jobs.compute.cluster.session import watching
from sam_pipeline.spark_jobs.config import find_java
from tests.acceptance.spark_jobs.test_archive import RUN as OF_ARCHIVE
from tests.acceptance.spark_jobs.test_archive import Archived, new_figures
from tests.acceptance.spark_jobs.test_archive import archived as archived  # a fixture
from tests.acceptance.spark_jobs.test_archive import published as figures_of
from tests.services import missing
from tests.services.postgres import fresh_database
from tests.services.process import HOST
from tests.services.s3 import KEYS, running_s3
from tests.services.spark_cluster import Cluster, running_cluster
from tests.support.commands import Workplace
from tests.support.reports.database import DAY, PROFILE, Grid

SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")
ENTRY = Path(sam_pipeline.spark_jobs.__file__).with_name("__main__.py")
RUN = ("run", "--profile", "test.toml", "--day", str(DAY), "--json")
# A few hundred results: the second compiler of Java would only cost time.
QUICK_EXECUTORS = "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1"
TIMEOUT_S = 500.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    with running_cluster(workers=2) as cluster:
        yield cluster


@pytest.fixture
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    """A workplace whose PostgreSQL database has two sites with results throughout the day."""
    database = fresh_database(request.getfixturevalue("postgres"))
    environment = {"SPARK_LOCAL_IP": HOST}
    workplace = Workplace(tmp_path, f"spool://{tmp_path}/queue", database, environment=environment)
    workplace.write_configuration()
    workplace.write("test.toml", PROFILE)
    grid = Grid(database)
    for site in ("A", "B"):
        grid.endpoint(site, "CE", f"ce.{site}")
        grid.endpoint(site, "SRM", f"se.{site}")
        grid.result(f"SRM se.{site} put", "23:00", "OK", day=DAY - timedelta(days=1))
        for hour in range(24):
            status = ("OK", "OK", "CRITICAL", "WARNING", "UNKNOWN")[hour * len(site + "x") % 5]
            for metric in ("CE ce.{} ping", "CE ce.{} submit", "SRM se.{} put"):
                grid.result(metric.format(site), f"{hour:02}:{hour:02}", status)
    grid.downtime("13:00", "14:30", siteName="B")
    grid.dispose()
    return workplace


def test_a_cluster_and_one_machine_compute_the_same_report(
    workplace: Workplace, cluster: Cluster
) -> None:
    events = workplace.directory / "events"
    events.mkdir()

    submitted = submit(workplace, cluster, events)
    of_submitted = figures_of(workplace.database)
    by_master = run(workplace, "--master", cluster.url, "--conf", QUICK_EXECUTORS)
    of_master = figures_of(workplace.database)
    alone = run(workplace, "--master", "local[2]")

    assert figures_of(workplace.database) == of_master == of_submitted
    [first], [second], [third] = submitted, by_master, alone
    assert first["results_read"] == second["results_read"] == third["results_read"] == 144
    assert (second["figures_changed"], third["figures_changed"]) == (0, 0)
    assert of_submitted[0]  # there are figures
    tasks = tasks_of_stages(events)
    assert set().union(*tasks) == {"0", "1"}, "both workers took part"
    assert any(set(stage) == {"0", "1"} for stage in tasks if len(stage) > 1), "in parallel"


def run(workplace: Workplace, *more: str) -> Any:
    answer = workplace.process("sam-report", *RUN, *more, timeout_s=TIMEOUT_S)
    assert answer.code == 0, str(answer)
    return answer.json


def submit(workplace: Workplace, cluster: Cluster, events: Path) -> Any:
    """Run the same program with spark-submit, which logs the tasks of the cluster."""
    log = [f"--conf=spark.eventLog.{name}" for name in ("enabled=true", f"dir={events.as_uri()}")]
    settings = [
        *log,
        "--conf=spark.eventLog.compress=false",
        "--conf=spark.ui.enabled=false",
        f"--conf={QUICK_EXECUTORS}",
        "--driver-java-options=-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m",
    ]
    completed = subprocess.run(
        [SPARK_SUBMIT, "--master", cluster.url, *settings, ENTRY, *RUN],
        cwd=workplace.directory,
        env={
            **workplace.clean_environment(("sam-report", "run")),
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "DAGScheduler" not in completed.stdout + completed.stderr, "Spark logs its errors only"
    # The stderr of the program is on stdout, too.
    return json.loads("[" + f"\n{completed.stdout}".rpartition("\n[\n")[2])


def tasks_of_stages(events: Path) -> list[list[str]]:
    """The executors of the tasks of each stage."""
    stages: dict[int, list[str]] = {}
    for file in events.rglob("events_*"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                executor = event["Task Info"]["Executor ID"]
                stages.setdefault(event["Stage ID"], []).append(executor)
    return list(stages.values())


def test_executors_of_a_cluster_read_from_s3_with_the_credentials_of_the_driver(
    archived: Archived, cluster: Cluster, tmp_path: Path
) -> None:
    with running_s3() as s3:
        url = s3.new_bucket()
        bucket, prefix = url.removeprefix("s3a://").split("/")
        for path in archived.root.rglob("v*"):
            name = f"{prefix}/{path.relative_to(archived.root)}"
            s3.client().put_object(Bucket=bucket, Key=name, Body=path.read_bytes())
        workplace = new_figures(tmp_path, archived.root)
        environment = {**s3.environment, "SAM_ARCHIVE_URL": url, "SPARK_LOCAL_IP": HOST}
        workplace = replace(workplace, environment=environment)

        on_cluster = ("--master", cluster.url, "--conf", QUICK_EXECUTORS)
        answer = workplace.process(*OF_ARCHIVE, "--source", "archive", *on_cluster)

        assert answer.code == 0, str(answer)
        assert figures_of(workplace.database) == (archived.figures, archived.timeline)
        secret = KEYS["AWS_SECRET_ACCESS_KEY"]
        logs = [path for path in cluster.directory.rglob("*") if path.is_file()]
        logs = [path for path in logs if path.suffix in ("", ".log")]
        assert logs
        assert secret not in answer.out + answer.err
        assert not [path for path in logs if secret.encode() in path.read_bytes()]


def test_a_run_without_a_free_worker_warns_and_ends_after_the_timeout(
    workplace: Workplace,
) -> None:
    section = '[report]\nstart_timeout = "12s"\n'
    workplace.write("sam.toml", f'[database]\nurl = "{workplace.database}"\n{section}')
    with running_cluster(workers=0) as cluster:
        gave_up = workplace.process(
            *("sam-report", *RUN[:-1], "--master", cluster.url),
            *("--conf", f"spark.driver.host={HOST}"),
        )

    assert gave_up.code == 69, str(gave_up)
    *_, warning, error = gave_up.err.splitlines()
    assert f"WARNING {watching.__module__}: {cluster.url}" in warning
    assert error.startswith("sam-report: error: ")
    assert "start_timeout" in error
    assert gave_up.err.count("start_timeout") == 2
