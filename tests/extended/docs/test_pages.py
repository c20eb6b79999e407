"""Every code block of every page of docs/ is run as a reader would type it, in order.

What lies between the blocks, and why a block is not run, is in plans/NAME.sh (see page.py).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deploy.pyz.build import build
from sam_pipeline.spark_jobs.errors import ProfileError
from sam_pipeline.spark_jobs.profiles.file import read_profile
from tests.extended.docs.page import PLANS, ROOT, Plan, blocks, pages
from tests.services import PRIVILEGED, missing, needed, postgres
from tests.services.postgres import find_programs, running_postgres
from tests.services.process import free_ports
from tests.support.accounts import open_directory
from tests.support.brokers.tls_files import TlsFiles
from tests.support.commands import PROGRAMS, Workplace, embedded
from tests.support.database.gocdb_files import (
    document,
    listed_site,
    nested_downtime,
    service_endpoint,
    site,
)
from tests.support.feed_samples import (
    ARGO_DOWNTIMES,
    ARGO_TOPOLOGY,
    OSG_DOWNTIME_YAML,
    OSG_GROUP_YAML,
    osg_downtime,
    osg_downtimes,
    osg_group,
    osg_resource,
    osg_service,
    osg_summary,
)
from tests.support.feed_server import XML, as_json, serving, vo_feed
from tests.support.waiting import eventually

TIMEOUT_S = 400
BROKERS = ("activemq", "artemis", "rabbitmq")
SERVICES = {"ce": {"rcsite": "A", "flavour": "CE", "endpoint": "ce01.example.org:9619"}}
FEDERATIONS = {"CH-CERN": {"rcsites": ["A"]}}


def test_every_plan_is_that_of_a_page() -> None:
    assert {path.stem for path in PLANS.glob("*.sh")} == set(pages())


@pytest.mark.parametrize("name", pages())
def test_every_block_of_the_page_is_run_or_excused(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    plan = Plan(name)
    with ExitStack() as stack:
        workplace = stack.enter_context(place(plan.place, tmp_path))
        values = {"here": str(tmp_path), "root": str(ROOT), "uuid": uuid.uuid4().hex}
        values |= {f"port{number}": str(port) for number, port in enumerate(free_ports(3), 1)}
        for need in plan.needs:
            if need in BROKERS:
                broker = request.getfixturevalue(need)
                values |= {
                    need: f"{broker.host}:{broker.port}",
                    f"{need}_password": broker.password,
                }
                if need == "rabbitmq":
                    broker.add_user("site-a", "secret", topics_read=".*", topics_written=".*")
            else:
                values |= stack.enter_context(NEEDS[need](tmp_path))
        (tmp_path / "plan.sh").write_text(plan.script(values))
        with (tmp_path / "out.log").open("wb") as output:
            done = subprocess.run(
                ["bash", "plan.sh"],
                cwd=tmp_path,
                env=workplace.clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
            )
    lines = [squeezed(line) for line in (tmp_path / "out.log").read_text().splitlines()]
    log = tmp_path / "running.log"
    running = log.read_text()[-3000:] if log.exists() else ""
    assert done.returncode == 0, "\n".join([*lines[-60:], running])
    shown = [squeezed(line) for text in plan.shown for line in text.splitlines()]
    assert [line for line in shown if line not in lines] == []


def squeezed(line: str) -> str:
    return " ".join(line.split())


# Places ---------------------------------------------------------------------------------------


@contextmanager
def place(kind: str, directory: Path) -> Iterator[Workplace]:
    """Empty, with a spool and SQLite, or with a spool and a server that is the page's own."""
    if kind == "sqlite":
        yield embedded(directory)
    elif kind == "bare":
        yield Workplace(directory, broker="", database="")
    else:
        with needed(running_postgres()) as server:
            variables = {
                "PATH": f"{PROGRAMS}:{find_programs()}:{os.environ['PATH']}",
                "PGHOST": server.host,
                "PGPORT": str(server.port),
                "PGUSER": server.user,
                "PGPASSWORD": server.password,
            }
            if kind == "server":  # roles belong to the server
                for role in postgres.ROLES:
                    server.execute(f"DROP ROLE {role}_login")
                    server.execute(f"DROP ROLE sam_{role}")
                yield Workplace(directory, broker="", database="", environment=variables)
                return
            server.execute("CREATE DATABASE sam")
            spool = f"spool://{directory / 'spool'}"
            url = server.url("sam")
            workplace = Workplace(directory, broker=spool, database=url, environment=variables)
            workplace.write_configuration().succeed("sam-db", "upgrade")
            yield workplace


# Needs ----------------------------------------------------------------------------------------


@contextmanager
def tls(directory: Path) -> Iterator[dict[str, str]]:
    """ca.pem, hostcert.pem, hostkey.pem, nagios1.pem, nagios1-key.pem, crl.pem."""
    files = TlsFiles(directory)
    host, sender = files.host(), files.client()
    files.certificate_file(host, "hostcert.pem")
    files.key_file(host, name="hostkey.pem")
    files.certificate_file(sender, "nagios1.pem")
    files.key_file(sender, name="nagios1-key.pem")
    (directory / "crl.pem").write_bytes(files.revocation_list().read_bytes())
    yield {"ca": str(files.ca_file)}


@contextmanager
def feeds(directory: Path) -> Iterator[dict[str, str]]:
    """GOCDB, CRIC, OSG and a VO feed on one server, and their files."""
    now = int(time.time())
    summary = osg_summary(
        osg_group("EXAMPLE_T2", osg_resource("ce.example.edu", osg_service("CE")))
    )
    (directory / "gocdb").mkdir()
    downtime = nested_downtime(("ce01.example.org", "CE"), start=now, end=2**31)
    for name, text in {
        "services.xml": document(service_endpoint()),
        "sites.xml": document(listed_site()),
        "downtimes.xml": document(downtime),
        "vofeed.xml": vo_feed("cms", {"A": [("ce01", "CE")]}, "T2"),
        "services.json": as_json(SERVICES)[1],
        "federations.json": as_json(FEDERATIONS)[1],
        "rgsummary.xml": summary,
        "EXAMPLE_T2.yaml": OSG_GROUP_YAML,
        "EXAMPLE_T2_downtime.yaml": OSG_DOWNTIME_YAML,
        "topology.csv": ARGO_TOPOLOGY,
        "downtimes.csv": ARGO_DOWNTIMES,
    }.items():
        content = text.encode() if isinstance(text, str) else text
        (directory / "gocdb" / name).write_bytes(content)
    with serving(directory, requires_certificate=False) as server:
        server.elements = {
            "get_service_endpoint": [service_endpoint()],
            "get_site": [site()],
            "get_site_list": [listed_site()],
            "get_downtime_nested_services": [downtime],
        }
        server.documents = {
            "/atlas/vofeed.xml": (XML, vo_feed("atlas", {"A": [("ce01", "CE")]}, "T2")),
            "/api/core/service/query/": as_json(SERVICES),
            "/api/core/federation/query/": as_json(FEDERATIONS),
            "/rgsummary/xml": (XML, summary),
            "/rgdowntime/xml": (XML, osg_downtimes(osg_downtime())),
        }
        yield {
            "feeds": server.url,
            "feeds_ca": str(server.ca_file),
            "feeds_certificate": str(server.certificate_file),
        }


@contextmanager
def nginx(directory: Path) -> Iterator[dict[str, str]]:
    """An nginx that the plan configures in nginx.conf and starts on port {front}."""
    del directory
    if not shutil.which("nginx", path="/usr/sbin:/usr/bin"):
        missing("nginx", "apt-get install nginx")
    yield {"nginx": "/usr/sbin/nginx"}


@contextmanager
def other(directory: Path) -> Iterator[dict[str, str]]:
    """A second, empty PostgreSQL."""
    del directory
    with running_postgres() as server:
        yield {"other_host": server.host, "other_port": str(server.port)}


@contextmanager
def farm(directory: Path) -> Iterator[dict[str, str]]:
    """A node with the directories of docs/farm.md, which other accounts can enter, and a build."""
    del directory
    if os.geteuid() != 0:
        missing("other accounts", PRIVILEGED)
    with open_directory() as node:
        (node / "build").mkdir()
        build(node / "build" / "sam-publish.pyz")
        for name in ("node", "shared"):
            (node / name).mkdir()
            (node / name).chmod(0o1777)
        yield {"farm": str(node)}


@contextmanager
def standby(directory: Path) -> Iterator[dict[str, str]]:
    """A directory for a PostgreSQL that the plan starts, which the server's account can enter."""
    del directory
    with open_directory() as place:
        yield {"standby": str(place)}
        lock = place / "data" / "postmaster.pid"
        if lock.exists():
            os.kill(int(lock.read_text().split()[0]), signal.SIGQUIT)
            eventually(lambda: not lock.exists())


NEEDS = {
    "farm": farm,
    "standby": standby,
    "tls": tls,
    "feeds": feeds,
    "nginx": nginx,
    "other": other,
}


PROFILE_PAGES = ("profiles", "profiles-reference")
TOML = [
    text
    for page in PROFILE_PAGES
    for (language, _), text in blocks(page).items()
    if language == "toml"
]
BASE = """\
name = "x"
validity_s = "off"
flavours.CE.metrics = ["org.sam.Ping"]
"""


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def rows_of_table(page: str, section: str) -> list[list[str]]:
    """The cells of the table in a section, without the table head."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    part = re.split(rf"^#+ {section}\n", text, flags=re.MULTILINE)[1].partition("\n## ")[0]
    return [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", part, re.MULTILINE)[1:]]


@pytest.mark.parametrize("number", range(len(TOML)))
def test_every_profile_of_the_page_is_one(number: int, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(TOML[number])
    assert read_profile(path).name


@pytest.mark.parametrize("row", rows_of_table("profiles", "Common mistakes"))
def test_each_mistake_gives_the_message_of_the_page(row: list[str], tmp_path: Path) -> None:
    [[mistake], [message]] = map(code, row)
    kept = [line for line in BASE.splitlines() if line.split(" = ")[0] != mistake.split(" = ")[0]]
    path = tmp_path / "profile.toml"
    path.write_text("\n".join([*kept, mistake]))

    with pytest.raises(ProfileError) as caught:
        read_profile(path)

    start = f"{path}:{len(kept) + 1}: {message}"
    assert any(problem.startswith(start) for problem in caught.value.problems), (
        caught.value.problems
    )
