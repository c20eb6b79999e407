"""Every program of docs/embedding.md does what the page says."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.errors import ConfigError, RecordRefused, SamError
from sam_pipeline.schema.identity.identity import ANONYMOUS, broker_identity
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.sql.database.engine import make_engine, reading
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.errors import DatabaseAway, DatabaseMissing, SchemaMismatch, SqlError
from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.postgres import as_role
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message
from tests.support.commands import Answer, Workplace
from tests.support.consumer.publisher import publish as publish_to
from tests.support.page import ROOT, Page, shell
from tests.support.reports.published_days import publish

NAME = "docs/embedding.md"
PAGE, TEXT = Page(NAME), (ROOT / NAME).read_text(encoding="utf-8")
[PROBE] = PAGE.texts("python", "Publish")
[RECORDS] = PAGE.texts("python", "Load records")
[LOADER] = PAGE.texts("python", "Load from a broker")
[PANDAS] = PAGE.texts("python", "Read with pandas")
DIALECTS = {name: cells for name, *cells in PAGE.examples("Load from a broker with stomp.py")}
BROKER_NAMES: Mapping[type[StompServer], str] = {
    ActiveMQServer: "ActiveMQ Classic",
    ArtemisServer: "Artemis",
    RabbitMQServer: "RabbitMQ",
}
WAIT_S = 60.0
OK_ALL_DAY = {"00:00": "OK"}
PROFILE = """
name = "critical"
validity_s = "off"
[flavours.CE]
metrics = ["ping"]
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty database of the test's own, with its schema."""
    url = f"sqlite:///{tmp_path / 'sam.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    engine = make_engine(url, create=True)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """Without a `sam.toml`: the programs of the page bring their own settings."""
    return Workplace(tmp_path, broker="", database="")


def url_of(engine: Engine, role: str) -> str:
    """The URL that a program of that role uses."""
    if engine.dialect.name == "sqlite":
        return "sqlite:///sam.db"
    return as_role(engine.url.render_as_string(hide_password=False), role)


def on_database(program: str, engine: Engine, role: str) -> str:
    return program.replace("sqlite:///sam.db", url_of(engine, role))


def count(engine: Engine, table: str) -> int:
    with reading(engine) as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


def run(place: Workplace, program: str) -> Answer:
    place.write("program.py", program)
    return shell(place, "python program.py")


def test_every_program_of_the_page_is_run() -> None:
    assert PAGE.unused("python") == []


@pytest.mark.parametrize(
    "error", [ConfigError, RecordRefused, SqlError, DatabaseAway, DatabaseMissing, SchemaMismatch]
)
def test_the_page_names_the_errors_and_their_modules(error: type[SamError]) -> None:
    assert issubclass(error, SamError)
    assert f"`{error.__name__}`" in TEXT
    assert f"`{error.__module__}`" in TEXT


# Publish ------------------------------------------------------------------------------------------


def test_without_a_broker_the_results_of_the_probe_are_spooled(place: Workplace) -> None:
    answer = run(place, PROBE.replace("msg1.example.org:61613", "127.0.0.1:1"))

    assert answer.code == 0, str(answer)
    assert answer.out == "0 messages published, 3 spooled\n"


def test_without_a_broker_and_a_spool_the_probe_reports_the_loss(place: Workplace) -> None:
    batch_job = replace(place, environment={"_CONDOR_SCRATCH_DIR": str(place.directory)})
    answer = run(batch_job, PROBE.replace("msg1.example.org:61613", "127.0.0.1:1"))

    assert answer.code == 1
    assert answer.out == ""
    assert "results are lost: 3 of 3 messages" in answer.err


# Load records -------------------------------------------------------------------------------------


def test_records_become_rows_and_dead_letters(place: Workplace, database: Engine) -> None:
    program = on_database(RECORDS, database, "loader")

    first, second = run(place, program), run(place, program)

    assert first.code == second.code == 0, f"{first}\n{second}"
    assert f"This prints `{first.out.strip()}`" in TEXT
    assert second.out == first.out.replace("rows: 1 duplicates: 0", "rows: 0 duplicates: 1")
    assert count(database, "metricOutput") == 1
    assert count(database, "dead_letter") == 2


# Load from a broker -------------------------------------------------------------------------------


class Loader:
    """The loader and the probe of the page, on one broker and a topic of the test's own."""

    def __init__(self, place: Workplace, broker: StompServer, engine: Engine) -> None:
        self.topic = topic = f"/topic/embedding.{uuid.uuid4().hex}"
        name = f"loader-{uuid.uuid4().hex}"
        headers, user = (cell.strip("`") for cell in DIALECTS[BROKER_NAMES[type(broker)]])
        program = on_database(LOADER, engine, "loader")
        for old, new in {
            r'\("msg1.example.org", 61613\)': repr((broker.host, broker.port)),
            r'"/topic/grid.probe.metricOutput"': repr(topic),
            r'"my-loader"': repr(name),
            r'"sam", os.environ': f"{broker.user!r}, os.environ",
            r"(?m)^SUBSCRIPTION = .*$": f"SUBSCRIPTION = {headers}",
            r'(?m)^USER = "\w+"': f"USER = {user}",
        }.items():
            program, count = re.subn(old, new, program)
            assert count == 1, old
        self.program = program
        self._probe = PROBE.replace("msg1.example.org:61613", f"{broker.host}:{broker.port}")
        environment = {"BROKER_PASSWORD": broker.password, "SAM_PUBLISHER_DESTINATION": topic}
        self.place = replace(place, environment=environment)
        self._log = place.directory / "running.log"

    def publish(self, records: int, hosts: str) -> None:
        """One result of each host: `hosts`0 and so on, 100 in a message."""
        probe = self._probe.replace("range(250)", f"range({records})").replace("wn{", hosts + "{")
        answer = run(self.place, probe)
        assert answer.out == f"{-(-records // 100)} messages published, 0 spooled\n", str(answer)

    def subscribe(self) -> None:
        """Publish until a message arrives: those sent before it has subscribed are lost."""
        deadline = time.monotonic() + WAIT_S
        self.publish(1, hosts="first")
        while not self.wait_for(1, timeout_s=3):
            assert time.monotonic() < deadline
            self.publish(1, hosts="first")

    @contextmanager
    def running(self) -> Iterator[None]:
        self.place.write("loader.py", self.program)
        self._log.write_text("")
        with self.place.running("python", "loader.py") as process:
            yield
            assert process.poll() is None, self._log.read_text()

    def messages(self) -> int:
        """How many messages the running loader has committed and acknowledged."""
        return sum(map(int, re.findall(r"^(\d+) messages, ", self._log.read_text(), re.MULTILINE)))

    def wait_for(self, messages: int, timeout_s: float = WAIT_S) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.messages() < messages and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.messages() >= messages


@pytest.mark.parametrize(
    ("broker", "database"),
    [("activemq", "sqlite"), ("artemis", "sqlite"), ("rabbitmq", "postgresql")],
    indirect=True,
)
def test_each_message_is_acknowledged_after_its_commit(
    place: Workplace, broker: StompServer, database: Engine
) -> None:
    loader = Loader(place, broker, database)
    with loader.running():
        loader.subscribe()
    rows_before = count(database, "metricOutput")
    loader.publish(250, hosts="wn")

    ack = 'connection.ack(frame.headers["ack"])'
    assert loader.program.count(ack) == 1
    killed = run(loader.place, loader.program.replace(ack, "os._exit(7)"))
    rows_committed = count(database, "metricOutput") - rows_before
    with loader.running():
        assert loader.wait_for(3), "not delivered again"
    loader.publish(1, hosts="last")
    with loader.running():
        assert loader.wait_for(1)
        messages_after_acks = loader.messages()

    assert killed.code == 7, str(killed)
    assert rows_committed in {100, 200, 250}
    assert messages_after_acks == 1
    assert count(database, "metricOutput") == rows_before + 251


@pytest.mark.parametrize(
    ("broker", "database", "users"),
    [
        ("activemq", "sqlite", {"anonymous", "sam"}),
        ("artemis", "sqlite", {"guest", "sam"}),
        ("rabbitmq", "sqlite", {"", "sam"}),
    ],
    indirect=["broker", "database"],
)
def test_the_sender_is_the_user_whom_the_broker_names(
    place: Workplace, broker: StompServer, database: Engine, users: set[str]
) -> None:
    loader = Loader(place, broker, database)
    url, forged = f"stomp://{broker.host}:{broker.port}", {"samIdentity": "key:root"}
    senders = {broker_identity(url, user) if user else ANONYMOUS for user in users}
    with loader.running():
        loader.subscribe()  # by a client without a login
        message = metric_message(**forged, **{"user-id": broker.user})
        login = {"user": broker.user, "password": broker.password}
        publish_to(broker.host, broker.port, loader.topic, [message], **login)
        assert loader.wait_for(2)

    with reading(database) as connection:
        stored = set(connection.scalars(text("SELECT publisher FROM metricOutput")))
    assert stored == senders


@pytest.mark.parametrize(("broker", "database"), [("activemq", "sqlite")], indirect=True)
def test_the_loader_ends_when_the_broker_hangs(
    place: Workplace, broker: StompServer, database: Engine
) -> None:
    loader = Loader(place, broker, database)
    program = loader.program.replace("heartbeats=(10_000, 10_000)", "heartbeats=(1_000, 1_000)")
    place.write("hanging.py", program)
    with loader.place.running("python", "hanging.py") as process:
        loader.subscribe()
        with broker.frozen():
            code = process.wait(WAIT_S)

    assert program != loader.program
    assert code == 1


def on_fake_broker(broker: FakeBroker) -> str:
    host, _, port = broker.url.removeprefix("stomp://").partition(":")
    program = LOADER.replace('("msg1.example.org", 61613)', repr((host, int(port))))
    return program.replace("inbox.take(wait_s=10)", "inbox.take(wait_s=2)")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("broker", "message"),
    [
        (FakeBroker(mute=True), "no answer to CONNECT"),
        (FakeBroker(refuses_login="wrong password"), "wrong password"),
        (FakeBroker(forbids_subscribing="not authorized"), "not authorized"),
    ],
)
@pytest.mark.usefixtures("database")
def test_the_loader_ends_when_the_broker_refuses_it(
    place: Workplace, broker: FakeBroker, message: str
) -> None:
    local = replace(place, environment={"BROKER_PASSWORD": "secret"})
    with broker:
        answer = run(local, on_fake_broker(broker))

    assert answer.code == 1
    assert "ConnectionError: " in answer.err
    assert message in answer.err


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("database")
def test_the_loader_ends_when_the_connection_is_lost(place: Workplace) -> None:
    local = replace(place, environment={"BROKER_PASSWORD": "secret"})
    with ExitStack() as stack:
        broker = stack.enter_context(FakeBroker())
        place.write("loader.py", on_fake_broker(broker))
        with local.running("python", "loader.py") as process:
            deadline = time.monotonic() + WAIT_S
            while not broker.subscriptions:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            stack.close()
            code = process.wait(WAIT_S)

    assert code == 1
    assert "the connection to the broker was lost" in (place.directory / "running.log").read_text()


# Read with pandas ---------------------------------------------------------------------------------


def test_pandas_reads_a_month(place: Workplace, database: Engine) -> None:
    report = read_profile(place.write("critical.toml", PROFILE))
    for day, good_until in ((date(2026, 10, 14), "12:00"), (date(2026, 10, 15), "06:00")):
        timeline = {"00:00": "OK", good_until: "CRITICAL"}
        publish(database, report, day, {"SITE-A CE ce01": timeline, "SITE-B CE ce02": OK_ALL_DAY})

    answer = run(place, on_database(PANDAS, database, "reader"))

    assert answer.code == 0, str(answer)
    assert re.findall(r"SITE-\w +[\d. ]+", answer.out) == [
        "SITE-A        50.0        25.0",
        "SITE-B       100.0       100.0",
        "SITE-A     37.5",
        "SITE-B    100.0",
    ]
