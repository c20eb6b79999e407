"""The same report on a cluster: a standalone master and two workers, PostgreSQL, spark-submit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sam_pipeline.spark_jobs
from sam_pipeline.spark_jobs.config import find_java
from sam_pipeline.sql.database.engine import make_engine
from tests.services import missing
from tests.services.postgres import as_role, fresh_database
from tests.services.process import HOST
from tests.services.spark_cluster import Cluster, running_cluster
from tests.support.commands import Workplace
from tests.support.reports.database import DAY, PROFILE, Grid
from tests.support.reports.published import published_figures, published_timeline

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
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    """Two sites with results all over the day, in a PostgreSQL database."""
    database = fresh_database(request.getfixturevalue("postgres"))
    place = Workplace(
        tmp_path,
        f"spool://{tmp_path}/queue",
        database,
        environment={"SPARK_LOCAL_IP": HOST},
    )
    place.write_configuration()
    place.write("test.toml", PROFILE)
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
    return place


def test_a_cluster_makes_the_report_that_one_machine_makes(
    place: Workplace, cluster: Cluster
) -> None:
    events = place.directory / "events"
    events.mkdir()

    submitted = submit(place, cluster, events)
    of_submitted = published(place)
    by_master = run(place, "--master", cluster.url, "--conf", QUICK_EXECUTORS)
    of_master = published(place)
    alone = run(place, "--master", "local[2]")

    assert published(place) == of_master == of_submitted
    [first], [second], [third] = submitted, by_master, alone
    assert first["results_read"] == second["results_read"] == third["results_read"] == 144
    assert (second["figures_changed"], third["figures_changed"]) == (0, 0)
    assert of_submitted[0]  # there are figures
    tasks = tasks_of_stages(events)
    assert {executor for each in tasks for executor in each} == {"0", "1"}, "both workers took part"
    assert any(set(each) == {"0", "1"} for each in tasks if len(each) > 1), "side by side"


def run(place: Workplace, *more: str) -> Any:
    answer = place.run("sam-report", *RUN, *more, timeout_s=TIMEOUT_S)
    assert answer.code == 0, str(answer)
    return answer.json


def submit(place: Workplace, cluster: Cluster, events: Path) -> Any:
    """Run the same program by spark-submit, which writes down what the cluster did."""
    log = [f"--conf=spark.eventLog.{name}" for name in ("enabled=true", f"dir={events.as_uri()}")]
    settings = [
        *log,
        "--conf=spark.eventLog.compress=false",
        "--conf=spark.ui.enabled=false",
        f"--conf={QUICK_EXECUTORS}",
        "--driver-java-options=-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m",
    ]
    done = subprocess.run(
        [SPARK_SUBMIT, "--master", cluster.url, *settings, ENTRY, *RUN],
        cwd=place.directory,
        env={**place.clean_environment(("sam-report", "run")), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # What the program says on stderr comes on stdout, too.
    return json.loads("[" + f"\n{done.stdout}".rpartition("\n[\n")[2])


def published(place: Workplace) -> tuple[set[Any], set[Any]]:
    engine = make_engine(as_role(place.database, "reader"))
    found = published_figures(engine, "test"), published_timeline(engine, "test")
    engine.dispose()
    return found


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
