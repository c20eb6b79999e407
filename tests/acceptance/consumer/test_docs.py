"""What docs/consumer.md tells an operator to type works, and what it says is so."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import signal
import subprocess
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

import sam_pipeline.consumer.cli
import sam_pipeline.consumer.commands.nagios
import sam_pipeline.publisher.cli
import sam_pipeline.sql.cli
from sam_pipeline.consumer.config import ConsumerConfig, SubscriptionConfig, load_consumer, password
from sam_pipeline.consumer.monitoring.snapshot import STATES
from sam_pipeline.consumer.sources.broker_dialects import (
    DIALECTS,
    subscribe_headers,
    subscription_name,
)
from sam_pipeline.publisher.settings.config import load_config
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.program import command
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import needed
from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer, running_postgres
from tests.services.process import free_ports
from tests.services.rabbitmq import CONTROL, RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS, Answer, Workplace, embedded
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import eventually, fill_spool, results, subscribe
from tests.support.page import DOCS, blocks, read_page, shell
from tests.support.reports.stored import execute, query

PAGE = "consumer.md"
ROOT = DOCS.parent
TOPIC = "grid.probe.metricOutput"
RESULT = ["result", "--metric", "org.example.Ping", "--status", "OK", "--flavour", "CE", "--host"]
RECORD = {
    "hostName": "ce01.example.org",
    "serviceFlavour": "CE",
    "metricName": "org.example.Ping",
    "metricStatus": "OK",
    "timestamp": "2026-11-20T12:00:00Z",
}
NOTHING = "\N{EN DASH}"
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)


def section(heading: str) -> str:
    """Its text; its headings of a lower level are part of it."""
    return re.split(rf"^## {heading}$", read_page(PAGE), flags=re.MULTILINE)[1].split("\n## ")[0]


def table(heading: str, number: int = 0) -> list[list[str]]:
    """The rows of a table of a section, as cells, without its head."""
    tables = re.findall(r"(?:^\|.*\n)+", section(heading), flags=re.MULTILINE)
    return [
        [cell.strip() for cell in re.split(r" \|(?: |$)", row)]
        for row in ROW.findall(tables[number])
    ][1:]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def texts(heading: str, language: str) -> list[str]:
    found = [one.text for one in blocks(PAGE) if (one.section, one.language) == (heading, language)]
    assert found, heading
    return found


def succeed(place: Workplace, script: str) -> Answer:
    answer = shell(place, script)
    assert answer.code == 0, str(answer)
    return answer


def hosts(place: Workplace) -> list[str]:
    found = query(place.database, "SELECT hostName AS host FROM metricOutput ORDER BY 1")
    return [row["host"] for row in found]


def configure(place: Workplace, text: str) -> Workplace:
    """The configuration of the page, with our database unless it names one."""
    if "[database]" not in text:
        text = f'[database]\nurl = "{place.database}"\n{text}'
    place.write("sam.toml", re.sub(r'^url = ".*"', f'url = "{place.database}"', text, flags=re.M))
    return place


def log_of(place: Workplace) -> str:
    return (place.directory / "running.log").read_text()


def port_of(broker: StompServer) -> str:
    return f"{broker.host}:{broker.port}"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its schema, to copy."""
    return embedded(tmp_path_factory.mktemp("empty")).directory / "sam.db"


@pytest.fixture
def place(tmp_path: Path, empty: Path) -> Workplace:
    """Spool and SQLite."""
    shutil.copy(empty, tmp_path)
    spool, database = f"spool://{tmp_path / 'spool'}", f"sqlite:///{tmp_path / 'sam.db'}"
    return Workplace(tmp_path, broker=spool, database=database).write_configuration()


@pytest.fixture
def topic() -> str:
    """For this test alone: brokers serve all of a session."""
    return f"grid.{uuid.uuid4().hex}"


# Starting -----------------------------------------------------------------------------------------


def test_the_first_commands_prove_the_way_and_load_what_is_there(
    place: Workplace, activemq: ActiveMQServer, rabbitmq: RabbitMQServer, topic: str
) -> None:
    (told,), (commands,) = texts("Start it", "toml"), texts("Start it", "sh")
    told = told.replace("msg1.example.org:61613", port_of(activemq))
    told = told.replace("msg2.example.org:61613", port_of(rabbitmq)).replace(TOPIC, topic)
    configure(place, told)
    for broker in (activemq, rabbitmq):
        subscribe(broker, "site-a", f"/topic/{topic}")
        publish(broker.host, broker.port, f"/topic/{topic}", results(2, metric=broker.url[-5:]))

    answer = succeed(place, commands)

    assert "no problem found" in answer.out
    assert answer.out.count("round trip") == 2
    assert len(hosts(place)) == 4


def test_a_second_process_of_the_name_ends_at_once(place: Workplace) -> None:
    (line,) = re.findall(r"^\S+ \* \* \* \*  (sam-consume .*)$", section("Start it"), re.MULTILINE)
    with place.running("sam-consume", "run"):
        eventually(lambda: "starting with" in log_of(place))

        refused = shell(place, line)

        assert refused.code == 69, str(refused)
        assert "another sam-consume of the name 'acceptance' runs here" in refused.err
    succeed(place, line)


def test_the_units_are_those_of_the_page() -> None:
    named = re.findall(r"deploy/(sam-consume@?\.service)", read_page(PAGE))
    units = {name: (ROOT / "deploy" / name).read_text() for name in named}

    assert set(units) == {"sam-consume.service", "sam-consume@.service"}
    for text in units.values():
        assert "WatchdogSec=180s" in text  # three minutes
        assert "RestartSec=10s" in text
        assert "StateDirectory=sam" in text
        assert "kill -HUP" in text


# Configuration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [one.text for one in blocks(PAGE) if one.language == "toml"])
def test_every_configuration_is_one(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in re.findall(r'file = "([\w.-]+)"', text):
        (tmp_path / name).write_text("secret\n")
        (tmp_path / name).chmod(0o600)
    (tmp_path / "sam.toml").write_text(text)
    monkeypatch.setenv("SAM_CONFIG", str(tmp_path / "sam.toml"))

    if "[publisher]" in text:
        assert load_config(None, {}).brokers
    else:
        assert load_consumer(argparse.Namespace(config=None)).brokers


@pytest.mark.parametrize(("number", "config"), [(0, ConsumerConfig), (1, SubscriptionConfig)])
def test_the_tables_have_every_key_with_its_default(
    number: int, config: type[ConsumerConfig] | type[SubscriptionConfig]
) -> None:
    told = {code(key)[0]: default for key, default, *_ in table("Configuration", number)}

    assert told == defaults(config)


def defaults(config: type[ConsumerConfig] | type[SubscriptionConfig]) -> dict[str, str]:
    """As the page writes them: a dash for what is empty or must be given."""
    found = {}
    for field in fields(config):
        value = None if field.default is MISSING else field.default
        if value is not None:
            value = str(value).lower().removesuffix(".0")
        found[field.metadata.get("key", field.name)] = value or NOTHING
    return {key: value for key, value in found.items() if key != "subscription"}


def test_the_example_for_production_shows_every_key_and_no_other() -> None:
    example = (ROOT / "deploy" / "sam.toml").read_text()
    section = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", example, flags=re.MULTILINE))["consumer"]
    keys = {key for each in section["subscription"] for key in each}

    assert set(section) - {"subscription"} == set(defaults(ConsumerConfig))
    assert keys == set(defaults(SubscriptionConfig))


def test_the_limits_are_those_of_the_program(place: Workplace) -> None:
    limits = Limits()
    told = {code(key)[0]: (value, letter) for key, value, letter in table("Limits")}

    assert told["max_message_bytes"][0] == f"{limits.max_message_bytes // 1024**2} MiB"
    assert told["max_records"][0] == f"{limits.max_records:,}".replace(",", " ")
    assert told["max_age_days"][0].startswith(f"{limits.past.days},")
    assert told["max_future_s"][0].startswith("86 400,")
    assert {letter.split("*")[1] for _, letter in told.values()} == {
        "too-large", "too-many-records", "too-old", "in-the-future",
    }  # fmt: skip


# Brokers ------------------------------------------------------------------------------------------


def test_the_table_of_brokers_says_what_they_are_asked() -> None:
    rows = {name: cells for name, *cells in table("Brokers")}
    destination = f"/topic/{TOPIC}"
    for number, dialect in enumerate(DIALECTS):
        durable = {*dialect.durable, *({"client-id"} if number < 2 else ())}
        (prefetch,) = dialect.always
        name = code(rows["messages are kept in"][number])[0]
        shared = code(rows["`shared = true`"][number])

        assert set(code(rows["asked for by"][number])) == durable
        assert code(rows["`prefetch` becomes"][number]) == [prefetch]
        assert name.endswith(subscription_name("site-a", destination))
        assert ("transaction" in rows["acknowledged"][number]) == dialect.acks_in_transaction
        topic = shared[-1] if number == 0 else "/topic/X"
        if shared:
            wanted = subscribe_headers(dialect, "site-a", topic, 1, shared=True)
            assert shared[0] == wanted["destination"]


def test_two_processes_share_what_the_page_tells(
    place: Workplace, activemq: ActiveMQServer, topic: str
) -> None:
    (told,), (commands,) = texts("Several processes", "toml"), texts("Several processes", "sh")
    told = told.replace("msg1.example.org:61613", port_of(activemq)).replace(TOPIC, topic)
    configure(place, told)
    first, second = commands.splitlines()
    # What the first run does: ActiveMQ fills a queue from when somebody subscribed to it.
    subscribe(activemq, "site-a", f"/queue/Consumer.site-a.VirtualTopic.{topic}")
    publish(activemq.host, activemq.port, f"/topic/VirtualTopic.{topic}", results(100))

    succeed(place, f"{first}& {second}; wait")

    assert len(hosts(place)) == 100
    configure(place, told.replace("shared = true", ""))
    assert place.run("sam-consume", *first.split()[1:]).code == 78


# A broker moves -----------------------------------------------------------------------------------


def test_a_broker_moves_without_a_restart(
    place: Workplace, activemq: ActiveMQServer, rabbitmq: RabbitMQServer, topic: str
) -> None:
    def brokers(*urls: str) -> None:
        text = f'[consumer]\nname = "site-a"\nbrokers = {json.dumps(urls)}\n'
        destination = f'destination = "/topic/{topic}"\nclass = "metricOutput"\n'
        configure(place, f"{text}[[consumer.subscription]]\n{destination}")

    def subscribed(url: str) -> int:
        return log_of(place).count(f"broker {url}: subscribed as site-a")

    def send(broker: StompServer, host: str) -> None:
        message = metric_message(metric_result(hostName=host))
        publish(broker.host, broker.port, f"/topic/{topic}", [message])

    old, new = activemq, rabbitmq
    brokers(old.url)
    with place.running("sam-consume", "run") as daemon:
        eventually(lambda: subscribed(old.url) == 1)
        brokers(old.url, new.url)
        daemon.send_signal(signal.SIGHUP)
        eventually(lambda: (subscribed(old.url), subscribed(new.url)) == (2, 1))
        send(old, "a.example.org")
        send(new, "b.example.org")
        eventually(lambda: len(hosts(place)) == 2)
        brokers(new.url)
        daemon.send_signal(signal.SIGHUP)
        eventually(lambda: subscribed(new.url) == 2)
        send(old, "left.example.org")
        send(new, "c.example.org")
        eventually(lambda: len(hosts(place)) == 3)

        assert subscribed(old.url) == 2
    assert hosts(place) == ["a.example.org", "b.example.org", "c.example.org"]


def test_a_subscription_that_was_deleted_keeps_nothing(
    place: Workplace, broker: StompServer, topic: str
) -> None:
    by_frames, by_command = texts("A broker moves", "sh")
    destination = f"/topic/{topic}"
    subscribe(broker, "site-a", destination)
    publish(broker.host, broker.port, destination, results(3))

    if isinstance(broker, RabbitMQServer):
        succeed(with_rabbitmqctl(place, broker), by_command.replace(TOPIC, topic))
    else:
        address = f"{broker.host}/{broker.port}"
        script = by_frames.replace("msg1.example.org/61613", address).replace(TOPIC, topic)
        told = succeed(place, script)
        assert "CONNECTED" in told.out
        assert "ERROR" not in told.out

    subscribe(broker, "site-a", destination)
    publish(broker.host, broker.port, destination, results(1))
    moved = replace(place, broker=broker.url, name="site-a")
    consume_from(moved, topic)
    assert len(hosts(place)) == 1


def consume_from(place: Workplace, topic: str) -> None:
    text = f'[consumer]\nname = "site-a"\nbrokers = ["{place.broker}"]\n[[consumer.subscription]]\n'
    configure(place, f'{text}destination = "/topic/{topic}"\nclass = "metricOutput"\n')
    place.succeed("sam-consume", "run", "--drain")


def with_rabbitmqctl(place: Workplace, server: RabbitMQServer) -> Workplace:
    """As on the broker's own host: a `rabbitmqctl` on the path that speaks to this one."""
    settings = "".join(f'export {k}="{v}"\n' for k, v in (server.process.env or {}).items())
    program = place.write("bin/rabbitmqctl", f'#!/bin/sh\n{settings}exec {CONTROL} "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{place.clean_environment()['PATH']}"
    return replace(place, environment={**place.environment, "PATH": path})


# The database -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One to kill and to change."""
    with needed(running_postgres()) as server:
        yield server


@pytest.fixture
def beside_postgres(tmp_path: Path, server: PostgresServer) -> Iterator[Workplace]:
    server.execute("CREATE DATABASE sam")
    spool = f"spool://{tmp_path / 'spool'}"
    place = Workplace(tmp_path, broker=spool, database=server.url("sam")).write_configuration()
    place.succeed("sam-db", "upgrade")
    yield place
    server.execute("DROP DATABASE sam WITH (FORCE)")


def test_a_database_that_is_down_is_waited_for_as_the_page_tells(
    beside_postgres: Workplace, server: PostgresServer
) -> None:
    place = beside_postgres
    warning, going_on = re.findall(
        r"^\w+ sam_pipeline\.consumer\.core\.loop: .*?((?:waiting|going).*?)(?: 41 s)?$",
        section("The database is down"),
        re.MULTILINE,
    )
    drop = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'sam'"
    troubles = {
        "WARNING": (server.kill, server.restart),
        "ERROR": (
            lambda: server.execute("ALTER ROLE loader_login PASSWORD 'another'"),
            lambda: server.execute(f"ALTER ROLE loader_login PASSWORD '{server.password}'"),
        ),
        "WARNING ": (
            lambda: server.execute("ALTER DATABASE sam SET default_transaction_read_only = on"),
            lambda: server.execute("ALTER DATABASE sam RESET default_transaction_read_only"),
        ),
    }
    with place.running("sam-consume", "run") as daemon:
        for number, (level, (break_it, mend_it)) in enumerate(troubles.items()):
            before = len(log_of(place)) if number else 0
            break_it()
            if server.process.running:
                server.execute(drop)
            place.succeed("sam-publish", *RESULT, f"ce{number}.example.org")
            told = rf" {level.strip()} sam_pipeline\.consumer\.core\.loop: .*{re.escape(warning)}"
            eventually(lambda b=before, t=told: re.search(t, log_of(place)[b:]))
            mend_it()
            eventually(
                lambda b=before: (
                    f" INFO sam_pipeline.consumer.core.loop: {going_on}" in log_of(place)[b:]
                )
            )
            eventually(lambda n=number: len(hosts(place)) == n + 1)

        assert daemon.poll() is None
    words = ("refused", "password authentication failed", "read-only")
    assert [word for word in words if word not in log_of(place)] == []


def test_a_drain_does_not_wait_longer_than_it_is_told(
    beside_postgres: Workplace, server: PostgresServer
) -> None:
    place = beside_postgres
    place.succeed("sam-publish", *RESULT, "ce01.example.org")
    login = server.url("sam").replace(server.password, "wrong")
    (port,) = free_ports(1)
    nobody = server.url("sam").replace(f":{server.port}", f":{port}")

    codes = [
        replace(place, environment={"SAM_DATABASE_URL": url})
        .run("sam-consume", "run", "--drain", "--timeout", "0.5")
        .code
        for url in (nobody, login)
    ]

    assert codes == [69, 77]
    assert re.search(r"ends with 69, or 77", section("The database is down"))


def test_a_schema_of_another_version_is_not_waited_for(place: Workplace) -> None:
    execute(place.database, "UPDATE alembic_version SET version_num = '9999'")

    assert place.run("sam-consume", "run").code == 78


# Dead letters -------------------------------------------------------------------------------------


def test_the_commands_for_dead_letters_mend_one(place: Workplace) -> None:
    place.succeed("sam-publish", *RESULT, "ce01.example.org", "--class", "metricoutptu")
    assert place.run("sam-consume", "run", "--drain").code == 65

    answer = succeed(place, texts("Dead letters", "sh")[0])

    assert "unknown-class" in answer.out
    assert "loaded" in answer.out
    assert hosts(place) == ["ce01.example.org"]


def test_the_table_has_every_reason_that_the_code_knows() -> None:
    told = [code(cells[0])[0] for cells in table("Dead letters")]

    assert sorted(told) == sorted(known_reasons())


REASON_AT = {"BadRecord": 0, "RecordRefused": 0, "MessageRefused": 0, "_Malformed": 0}
REASON_AT |= {"Refused": 1, "whole": 1, "Failure": 2}
"""Where the reason stands among the arguments."""


def known_reasons() -> set[str]:
    """Read from the source: what makes a bad record or a failure is given its reason there."""
    paths = [
        path
        for room in ("schema", "sql/loading", "consumer")
        for path in (ROOT / room).rglob("*.py")
    ]
    found: set[str] = set()
    for path in paths:
        tree = ast.parse(path.read_text())
        constants = dict(_constants(tree))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            position = REASON_AT.get(node.func.id)
            if position is not None:
                found |= set(_texts(node.args[position], constants, path))
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield ast.unparse(node.targets[0]), str(node.value.value)


def _texts(node: ast.expr, constants: Mapping[str, str], path: Path) -> Iterator[str]:
    """What a reason may be; one that is handed on was found where it was made."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, constants, path)
        yield from _texts(node.orelse, constants, path)
    elif isinstance(node, ast.Name) and node.id in constants:
        yield constants[node.id]
    else:
        handed_on = ast.unparse(node)
        assert handed_on.rpartition(".")[2] == "reason", f"{path}: {handed_on}"


def text_of(**changes: str) -> str:
    record = {**RECORD, **changes}
    return "".join(f"{key}: {value}\n" for key, value in record.items() if value) + "EOT\n"


def json_of(**changes: Any) -> str:
    return json.dumps({**RECORD, **changes})


JSON = {"content-type": "application/json"}
MAKES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "unknown-class": (text_of(), {"messageClass": "nosuch"}),
    "class-broken": ("hostName: a\nEOT\n", {"messageClass": "downtime"}),
    "refused-by-database": (text_of(metricName="long" * 300), {}),
    "missing-key": (text_of(metricName=""), {}),
    "bad-status": (text_of(metricStatus="SPLENDID"), {}),
    "bad-time": (text_of(timestamp="noon"), {}),
    "bad-host": (text_of(hostName="two words"), {}),
    "bad-weight": ("groupType: VO\nweight: much\nEOT\n", {"messageClass": "siteGroup"}),
    "too-old": (text_of(timestamp="2001-01-01T00:00:00Z"), {}),
    "in-the-future": (text_of(timestamp="2999-01-01T00:00:00Z"), {}),
    "too-large": (text_of(detailsData="x" * 3000), {}),
    "too-many-records": (text_of() * 4, {}),
    "truncated": (text_of(detailsData="x").removesuffix("EOT\n"), {}),
    "no-key": ("no colon\nEOT\n", {}),
    "duplicate-key": (text_of().replace("EOT", "hostName: b\nEOT"), {}),
    "empty": ("", {}),
    "not-json": ("{", JSON),
    "nested": (json_of(summaryData={"a": 1}), JSON),
    "bad-text": (json_of(summaryData="\ud800"), JSON),
    "nul-byte": (text_of(summaryData="a\0b"), {}),
    "control-character": (json_of(metricName="a\nb"), JSON),
    "unknown-format": (text_of(), {"samFormat": "xml"}),
    "bad-rename": (text_of(), {"samRename": "="}),
    "poison": (text_of(), {"samMessageId": "poison"}),
}
"""A body and headers that give a dead letter of each reason."""


def test_every_reason_of_the_table_can_be_had(place: Workplace) -> None:
    settings = "max_message_bytes = 2000\nmax_records = 3"
    replace(place, consumer_settings=settings).write_configuration()
    execute(place.database, "DROP TRIGGER downtime_insert")
    execute(
        place.database,
        "CREATE TRIGGER strict BEFORE INSERT ON metric WHEN length(NEW.name) > 1000"
        " BEGIN SELECT RAISE(ABORT, 'the name is too long'); END",
    )
    died = {"in_hand": ["poison"], "deaths": {"poison": 3}}
    place.write("state/sam/consume-acceptance.attempts", json.dumps(died))
    fill_spool(
        place.directory / "spool",
        [
            Message(
                {"messageClass": "metricOutput", "samMessageId": reason, **headers}, text.encode()
            )
            for reason, (text, headers) in MAKES.items()
        ],
    )

    drained = place.run("sam-consume", "run", "--drain")

    found = query(place.database, "SELECT message_id, reason FROM dead_letter")
    assert drained.code == 65, str(drained)
    assert {row["message_id"]: row["reason"] for row in found} == {each: each for each in MAKES}
    assert sorted(code(cells[0])[0] for cells in table("Dead letters")) == sorted(MAKES)


# Passwords, foreign writers, relays ---------------------------------------------------------------


def test_a_new_password_is_taken_at_a_reload(
    place: Workplace, rabbitmq: RabbitMQServer, topic: str
) -> None:
    def change_password(text: str) -> None:
        rabbitmq.add_user("site-a", text, topics_read=".*", topics_written=".*")
        place.write("broker-password", f"{text}\n").chmod(0o600)

    (told,) = texts("Certificates and passwords", "toml")
    told = told.replace("stomp+ssl://msg1.example.org:61614", rabbitmq.url).replace(TOPIC, topic)
    told = re.sub(r"^(ca|certificate|key)_file.*\n", "", told, flags=re.MULTILINE)
    configure(place, told)
    change_password("first")
    with place.running("sam-consume", "run") as daemon:
        eventually(lambda: log_of(place).count("subscribed as site-a") == 1)
        change_password("second")
        daemon.send_signal(signal.SIGHUP)
        eventually(lambda: log_of(place).count("subscribed as site-a") == 2)
        message = metric_message(metric_result(hostName="ce01.example.org"))
        publish(rabbitmq.host, rabbitmq.port, f"/topic/{topic}", [message])
        eventually(lambda: hosts(place) == ["ce01.example.org"])


def test_a_systemd_credential_is_found_by_the_name_that_page_and_units_tell(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = "LoadCredential=sam-consumer-password:/etc/sam/broker-password"
    units = [path.read_text() for path in (ROOT / "deploy").glob("sam-consume*.service")]
    place.write("sam-consumer-password", "secret\n").chmod(0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(place.directory))

    config = load_consumer(argparse.Namespace(config=str(place.directory / "sam.toml")))

    assert password(config) == "secret"
    assert [setting in text for text in (read_page(PAGE), *units)] == [True] * 3


def test_what_foreign_writers_wrote_is_loaded(
    place: Workplace, activemq: ActiveMQServer, topic: str
) -> None:
    (told,) = texts("Foreign writers", "toml")
    spool = place.directory / "outgoing"
    told = told.replace("/var/spool/nstream/outgoing", str(spool))
    told = told.replace("msg1.example.org:61613", port_of(activemq)).replace("site.probes", topic)
    configure(place, told)
    etf = {"metric": "org.Ping", "host": "etf.example.org", "status": "OK", "tags": "CE"}
    stream = replace(place, environment={"SAM_PUBLISHER_BROKERS": f"spool://{spool}"})
    body = json.dumps({**etf, "timestamp": RECORD["timestamp"]})
    stream.succeed("sam-publish", "send", "--raw", stdin=body)
    theirs = {"hostName": "machine", "metricName": "check", "metricStatus": "state"}
    record = "".join(f"{theirs.get(key, key)}: {value}\n" for key, value in RECORD.items())
    subscribe(activemq, "site-a", f"/topic/{topic}")
    over = f"/topic/{topic}"
    send = ("sam-publish", "send", "--raw", "--broker", activemq.url, "--destination", over)
    place.succeed(*send, stdin=f"{record}EOT\n")

    place.succeed("sam-consume", "run", "--drain")

    assert hosts(place) == ["ce01.example.org", "etf.example.org"]


def test_a_relay_moves_messages_and_either_end_takes_them(place: Workplace) -> None:
    relay, onward = texts("A relay", "sh")
    back, out = texts("A relay", "toml")
    relayed = place.directory / "relayed"
    place.succeed("sam-publish", *RESULT, "ce01.example.org")
    (before,) = ids(place.directory / "spool")

    succeed(place, relay)

    assert ids(relayed) == [before]
    assert place.spooled("spool") == 0
    shutil.copytree(relayed, place.directory / "copy")
    configure(place, back.replace("/var/spool/sam-in", str(relayed)))
    place.succeed("sam-consume", "run", "--drain")
    assert hosts(place) == ["ce01.example.org"]
    with FakeBroker() as broker:
        out = out.replace("stomp://msg2.example.org:61613", broker.url)
        place.write("sam.toml", out.replace("/var/spool/sam-in", str(place.directory / "copy")))
        succeed(place, onward)
        assert [frame.headers["samMessageId"] for frame in broker.taken] == [before]


def ids(path: Path) -> list[str]:
    queue = DirectoryQueue(path)
    return [queue.read(name).message_id for name in queue.names()]


# Watching -----------------------------------------------------------------------------------------


def test_the_commands_that_watch_tell_of_a_daemon_that_runs(place: Workplace) -> None:
    (port,) = free_ports(1)
    replace(place, consumer_settings=f"metrics_port = {port}").write_configuration()
    with place.running("sam-consume", "run"):
        place.succeed("sam-publish", *RESULT, "ce01.example.org")
        told = place.directory / "state" / "sam" / "consume-acceptance.state.json"
        eventually(lambda: told.exists() and json.loads(told.read_text())["rows"] == 1)

        answer = succeed(place, texts("Watching", "sh")[0])

        assert "acceptance: running" in answer.out
        assert "SAM CONSUMER OK" in answer.out
        for path in re.findall(r"`(?:http://127\.0\.0\.1:9464)?(/\w+)`", section("Watching")):
            script = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).status)"
            url = f"http://127.0.0.1:{port}{path}"
            asked = subprocess.run(
                [PROGRAMS / "python", "-c", script, url], capture_output=True, text=True
            )
            assert asked.stdout == "200\n", path
    gone = place.run("sam-consume", "status")
    assert (gone.code, "stopped" in gone.out) == (69, True)


def test_the_table_of_states_has_them_all() -> None:
    assert [code(cells[0])[0] for cells in table("Watching")] == list(STATES_IN_ORDER)
    assert set(STATES_IN_ORDER) == set(STATES)


STATES_IN_ORDER = ("running", "waiting", "degraded", "stuck", "stopped")


# The page as a whole ------------------------------------------------------------------------------


def test_the_exit_codes_are_those_of_the_program(place: Workplace) -> None:
    told = {int(number) for cells in table("Exit codes") for number in cells[0].split(", ")}
    closed = replace(place, environment={"STATE_DIRECTORY": "/dev/null/state"})

    found = {
        place.run("sam-consume", "run", "--drain").code,
        place.run("sam-consume", "run", "--no-such-option").code,
        place.run("sam-consume", "dead-letter", "edit", "1", "--body", "none").code,
        closed.run("sam-consume", "run", "--drain").code,
        place.run("sam-consume", "--config", "none.toml", "check").code,
    }

    assert found <= told
    codes = {value for value in vars(command).values() if isinstance(value, int)}
    assert told <= codes


HELPS = {
    sam_pipeline.consumer.cli.main: (
        *("run", "check", "status"),
        *("dead-letter list", "dead-letter edit", "dead-letter replay"),
    ),
    sam_pipeline.consumer.commands.nagios.main: ("",),
    sam_pipeline.publisher.cli.main: ("send", "spool drain"),
    sam_pipeline.sql.cli.main: ("prune",),
}


def test_every_option_it_names_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for main, commands in HELPS.items():
        for words in commands:
            with pytest.raises(SystemExit):
                main([*words.split(), "--help"])
    helps = capsys.readouterr().out
    ours = re.sub(r"^(rabbitmqctl|.*systemctl).*$", "", read_page(PAGE), flags=re.MULTILINE)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))

    assert {option for option in named if option not in helps} == set()


def test_its_links_lead_somewhere() -> None:
    page = read_page(PAGE)
    anchors = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", page, re.M)
    }
    files = set(re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", page))

    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) == anchors
    assert {name for name in files if not (DOCS / name).exists()} == set()


def test_every_block_is_run_here() -> None:
    here = Path(__file__).read_text()
    run = [one for one in blocks(PAGE) if one.language in ("sh", "sql", "python")]

    assert [one.section for one in run if f'"{one.section}", "sh"' not in here] == []
