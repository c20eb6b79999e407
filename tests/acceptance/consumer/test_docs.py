"""The examples of docs/consumer.md work, and the tables of its reference are complete."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import ssl
import stat
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from docs.exit_codes import EXIT_CODES
from docs.reasons import dead_letter_reasons
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.load import load_consumer
from sam_pipeline.consumer.settings.subscription_config import SubscriptionConfig
from sam_pipeline.publisher.settings.load import load_config
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import PRIVILEGED, missing, needed
from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer, running_postgres
from tests.services.process import free_ports
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS, Answer, Workplace, embedded
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import eventually, fill_spool, results, subscribe
from tests.support.page import ROOT, Page, production_example, shell
from tests.support.reports.stored import execute, query

PAGE = Page("docs/consumer.md")
REFERENCE = Page("docs/consumer-reference.md")
(START_TOML,), (START,) = (
    PAGE.texts(language, "Start the consumer") for language in ("toml", "sh")
)
(CRON,) = PAGE.texts("crontab", "From cron")
(SHARED_TOML,), (SHARED,) = (PAGE.texts(language, "Run several") for language in ("toml", "sh"))
(UNSUBSCRIBE,) = PAGE.texts("sh", "Replace a broker")
(DEAD_LETTERS,) = PAGE.texts("sh", "Handle dead letters")
(FIND,) = PAGE.texts("sh", "Find a message")
(PASSWORD_TOML,) = PAGE.texts("toml", "Use certificates and passwords")
(FOREIGN_TOML,) = PAGE.texts("toml", "Load records of foreign writers")
(RELAY,) = PAGE.texts("sh", "Relay messages")
(RELAY_TOML,) = PAGE.texts("toml", "Relay messages")
(BRIDGE,) = PAGE.texts("sh", "To brokers")
(BRIDGE_TOML,) = PAGE.texts("toml", "To brokers")
SHARE, CORRECT = PAGE.texts("sh", "Share a spool between accounts")
(TAP,) = PAGE.texts("sh", "Look at messages")
(DRY_RUN,) = PAGE.texts("sh", "What a message would become")
(MONITOR,) = PAGE.texts("sh", "Monitor the consumer")
(METRICS_TOKEN,) = PAGE.texts("sh", "Metrics beyond this machine")
(METRICS_TOML,) = PAGE.texts("toml", "Metrics beyond this machine")
TOPIC = "grid.probe.metricOutput"
RESULT = ["result", "--metric", "org.example.Ping", "--status", "OK", "--flavour", "CE", "--host"]
RECORD = {
    "hostName": "ce01.example.org",
    "serviceFlavour": "CE",
    "metricName": "org.example.Ping",
    "metricStatus": "OK",
    "timestamp": "2026-11-20T12:00:00Z",
}


def succeed(workplace: Workplace, script: str) -> Answer:
    answer = shell(workplace, script)
    assert answer.code == 0, str(answer)
    return answer


def hosts(workplace: Workplace) -> list[str]:
    rows = query(workplace.database, "SELECT hostName AS host FROM metricOutput ORDER BY 1")
    return [row["host"] for row in rows]


def configure(workplace: Workplace, text: str) -> Workplace:
    """The configuration of the page, with our database unless it names one."""
    if "[database]" not in text:
        text = f'[database]\nurl = "{workplace.database}"\n{text}'
    workplace.write(
        "sam.toml",
        re.sub(
            r'^url = "(?:postgresql|sqlite).*"', f'url = "{workplace.database}"', text, flags=re.M
        ),
    )
    return workplace


def log_of(workplace: Workplace) -> str:
    return (workplace.directory / "running.log").read_text()


def port_of(broker: StompServer) -> str:
    return f"{broker.host}:{broker.port}"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its schema, to copy."""
    return embedded(tmp_path_factory.mktemp("empty")).directory / "sam.db"


@pytest.fixture
def workplace(tmp_path: Path, empty: Path) -> Workplace:
    """Spool and SQLite."""
    shutil.copy(empty, tmp_path)
    spool, database = f"spool://{tmp_path / 'spool'}", f"sqlite:///{tmp_path / 'sam.db'}"
    return Workplace(tmp_path, broker=spool, database=database).write_configuration()


@pytest.fixture
def topic() -> str:
    """A topic of this test alone: the brokers serve a whole session."""
    return f"grid.{uuid.uuid4().hex}"


# Starting -----------------------------------------------------------------------------------------


def test_the_first_commands_check_the_brokers_and_load_their_messages(
    workplace: Workplace, activemq: ActiveMQServer, rabbitmq: RabbitMQServer, topic: str
) -> None:
    text = START_TOML.replace("msg1.example.org:61613", port_of(activemq))
    text = text.replace("msg2.example.org:61613", port_of(rabbitmq)).replace(TOPIC, topic)
    configure(workplace, text)
    for broker in (activemq, rabbitmq):
        subscribe(broker, "site-a", f"/topic/{topic}")
        publish(broker.host, broker.port, f"/topic/{topic}", results(2, metric=broker.url[-5:]))

    answer = succeed(workplace, START)

    assert "no problem found" in answer.out
    assert answer.out.count("round trip") == 2
    assert len(hosts(workplace)) == 4


def test_a_second_process_of_the_name_exits_at_once(workplace: Workplace) -> None:
    *_, line = CRON.split(maxsplit=5)
    with workplace.running("sam-consume", "run"):
        eventually(lambda: "starting with" in log_of(workplace))

        refused = shell(workplace, line)

        assert refused.code == 69, str(refused)
        assert "another sam-consume named 'acceptance' is running" in refused.err
    succeed(workplace, line)


# Configuration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PAGE.texts("toml"))
def test_every_configuration_is_valid(
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


def test_the_example_for_production_shows_every_key_and_no_other() -> None:
    section = production_example()["consumer"]
    keys = {key for subscription in section["subscription"] for key in subscription}

    names = {field.metadata.get("key", field.name) for field in fields(ConsumerConfig)}
    assert set(section) == names - {None}
    assert keys == {field.metadata.get("key", field.name) for field in fields(SubscriptionConfig)}


# Brokers ------------------------------------------------------------------------------------------


def test_two_processes_share_the_messages_of_one_name(
    workplace: Workplace, activemq: ActiveMQServer, topic: str
) -> None:
    text = SHARED_TOML.replace("msg1.example.org:61613", port_of(activemq)).replace(TOPIC, topic)
    configure(workplace, text)
    first, second = SHARED.splitlines()
    # Like a first run: ActiveMQ fills the queue of a subscriber from its first connection on.
    subscribe(activemq, "site-a", f"/queue/Consumer.site-a.VirtualTopic.{topic}")
    publish(activemq.host, activemq.port, f"/topic/VirtualTopic.{topic}", results(100))

    succeed(workplace, f"{first}& {second}; wait")

    assert len(hosts(workplace)) == 100
    configure(workplace, text.replace("shared = true", ""))
    assert workplace.run("sam-consume", *first.split()[1:]).code == 78


# Replacing a broker -------------------------------------------------------------------------------


def test_a_broker_is_replaced_without_a_restart(
    workplace: Workplace, activemq: ActiveMQServer, rabbitmq: RabbitMQServer, topic: str
) -> None:
    def brokers(*urls: str) -> None:
        text = f'[consumer]\nname = "site-a"\nbrokers = {json.dumps(urls)}\n'
        destination = f'destination = "/topic/{topic}"\nclass = "metricOutput"\n'
        configure(workplace, f"{text}[[consumer.subscription]]\n{destination}")

    def subscribed(url: str) -> int:
        return log_of(workplace).count(f"broker {url}: subscribed as site-a")

    def send(broker: StompServer, host: str) -> None:
        message = metric_message(metric_result(hostName=host))
        publish(broker.host, broker.port, f"/topic/{topic}", [message])

    old, new = activemq, rabbitmq
    brokers(old.url)
    with workplace.running("sam-consume", "run") as daemon:
        eventually(lambda: subscribed(old.url) == 1)
        brokers(old.url, new.url)
        daemon.send_signal(signal.SIGHUP)
        eventually(lambda: (subscribed(old.url), subscribed(new.url)) == (2, 1))
        send(old, "a.example.org")
        send(new, "b.example.org")
        eventually(lambda: len(hosts(workplace)) == 2)
        brokers(new.url)
        daemon.send_signal(signal.SIGHUP)
        eventually(lambda: subscribed(new.url) == 2)
        send(old, "left.example.org")
        send(new, "c.example.org")
        eventually(lambda: len(hosts(workplace)) == 3)

        assert subscribed(old.url) == 2
    assert hosts(workplace) == ["a.example.org", "b.example.org", "c.example.org"]


def test_a_deleted_subscription_stores_nothing(
    workplace: Workplace, broker: StompServer, topic: str
) -> None:
    destination = f"/topic/{topic}"
    at_broker = replace(workplace, broker=broker.url)
    consume_from(at_broker, topic)
    publish(broker.host, broker.port, destination, results(3))
    configure(workplace, f'[consumer]\nname = "site-a"\nbrokers = ["{workplace.broker}"]\n')

    script = UNSUBSCRIBE.replace("stomp://msg1.example.org:61613", broker.url)
    answer = succeed(workplace, script.replace(TOPIC, topic))

    assert "left behind" in answer.out
    assert "3 messages" in answer.out
    consume_from(at_broker, topic)
    assert hosts(workplace) == []
    publish(broker.host, broker.port, destination, results(1))
    consume_from(at_broker, topic)
    assert len(hosts(workplace)) == 1


def consume_from(workplace: Workplace, topic: str) -> None:
    text = f'[consumer]\nname = "site-a"\nbrokers = ["{workplace.broker}"]\n'
    text += "[[consumer.subscription]]\n"
    configure(workplace, f'{text}destination = "/topic/{topic}"\nclass = "metricOutput"\n')
    workplace.succeed("sam-consume", "run", "--drain")


# The database -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A private server: the tests kill and change it."""
    with needed(running_postgres()) as server:
        yield server


@pytest.fixture
def beside_postgres(tmp_path: Path, server: PostgresServer) -> Iterator[Workplace]:
    server.execute("CREATE DATABASE sam")
    spool = f"spool://{tmp_path / 'spool'}"
    workplace = Workplace(tmp_path, broker=spool, database=server.url("sam")).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    yield workplace
    server.execute("DROP DATABASE sam WITH (FORCE)")


def test_the_daemon_waits_while_the_database_is_down(
    beside_postgres: Workplace, server: PostgresServer
) -> None:
    workplace = beside_postgres
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
    with workplace.running("sam-consume", "run") as daemon:
        for number, (level, (break_it, fix_it)) in enumerate(troubles.items()):
            before = len(log_of(workplace)) if number else 0
            break_it()
            if server.process.running:
                server.execute(drop)
            workplace.succeed("sam-publish", *RESULT, f"ce{number}.example.org")
            line = rf" {level.strip()} sam_pipeline\.consumer\.core\.loop: .*nothing is acked"
            eventually(lambda b=before, line=line: re.search(line, log_of(workplace)[b:]))
            fix_it()
            eventually(
                lambda b=before: (
                    " INFO sam_pipeline.consumer.core.loop: continuing after"
                    in log_of(workplace)[b:]
                )
            )
            eventually(lambda n=number: len(hosts(workplace)) == n + 1)

        assert daemon.poll() is None
    causes = ("refused", "password authentication failed", "read-only")
    assert [cause for cause in causes if cause not in log_of(workplace)] == []


def test_a_drain_gives_up_after_its_timeout(
    beside_postgres: Workplace, server: PostgresServer
) -> None:
    workplace = beside_postgres
    workplace.succeed("sam-publish", *RESULT, "ce01.example.org")
    login = server.url("sam").replace(server.password, "wrong")
    (port,) = free_ports(1)
    closed = server.url("sam").replace(f":{server.port}", f":{port}")

    codes = [
        replace(workplace, environment={"SAM_DATABASE_URL": url})
        .run("sam-consume", "run", "--drain", "--timeout", "0.5")
        .code
        for url in (closed, login)
    ]

    assert codes == [69, 77]


def test_another_schema_version_ends_the_daemon(workplace: Workplace) -> None:
    execute(workplace.database, "UPDATE alembic_version SET version_num = '9999'")

    assert workplace.run("sam-consume", "run").code == 78


# Dead letters -------------------------------------------------------------------------------------


def test_the_dead_letter_commands_fix_and_load_a_letter(workplace: Workplace) -> None:
    workplace.succeed("sam-publish", *RESULT, "ce01.example.org", "--class", "metricoutptu")
    assert workplace.run("sam-consume", "run", "--drain").code == 65

    answer = succeed(workplace, DEAD_LETTERS)

    assert "unknown-class" in answer.out
    assert "loaded" in answer.out
    assert hosts(workplace) == ["ce01.example.org"]


def test_a_message_is_found_first_in_the_spool_and_then_as_a_row(workplace: Workplace) -> None:
    answer = workplace.succeed("sam-publish", *RESULT, "ce01.example.org", "--json")
    message_id = answer.json["messages"][0]["message_id"]
    first, _ = FIND.splitlines()

    spooled = shell(workplace, f"ID={message_id}\n{first}")
    workplace.succeed("sam-consume", "run", "--drain")
    stored = shell(workplace, f"ID={message_id}\n{FIND}")

    assert (spooled.code, "spool: " in spooled.out) == (0, True)
    assert "hostName=ce01.example.org" in stored.out
    assert stored.code == 66, "the second command names a message that was never seen"


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
    "too-many-records": ("key: value\nEOT\n" * 31, {}),
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
    "bad-frame": (text_of(), {"samRefused": "bad-frame"}),  # as a relay marks it
    "bad-signature": (text_of(), {"samRefused": "bad-signature"}),
    "signature-expired": (text_of(), {"samRefused": "signature-expired"}),
    "unsigned": (text_of(), {"samIdentity": "uid:1"}),  # as a relay has established it
    "not-authorised": (text_of(), {"samIdentity": "uid:2"}),
    "mixed": ("no colon\nEOT\n" * 20 + "key: a\nkey: b\nEOT\n", {}),
    "poison": (text_of(), {"samMessageId": "poison"}),
    "flood": ("no colon\nEOT\n", {"JMSXUserID": "other", "note": "x" * 50_000}),
}
"""A body and headers that give a dead letter of each reason."""
POLICY = f"""
mode = "enforce"
[[publisher]]
name = "this account"
is = ["uid:{os.getuid()}"]
classes = ["*"]
sites = ["*"]
hosts = ["*"]
[[publisher]]
name = "signs"
is = ["uid:1", "key:signs"]
keys = ["ed25519:MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="]
signed = true
classes = ["*"]
hosts = ["*"]
"""


def test_every_documented_reason_can_occur(workplace: Workplace) -> None:
    settings = "max_message_bytes = 2000\nmax_records = 30\ndead_letter_bytes_per_hour = 40000"
    settings += '\npublishers = "publishers.toml"'
    replace(workplace, consumer_settings=settings).write_configuration()
    workplace.write("publishers.toml", POLICY)
    execute(workplace.database, "DROP TRIGGER downtime_insert")
    execute(
        workplace.database,
        "CREATE TRIGGER strict BEFORE INSERT ON metric WHEN length(NEW.name) > 1000"
        " BEGIN SELECT RAISE(ABORT, 'the name is too long'); END",
    )
    died = {"pending": ["poison"], "deaths": {"poison": 3}}
    workplace.write("state/sam/consume-acceptance.attempts", json.dumps(died))
    fill_spool(
        workplace.directory / "spool",
        [
            Message(
                {"messageClass": "metricOutput", "samMessageId": reason, **headers}, text.encode()
            )
            for reason, (text, headers) in MAKES.items()
        ],
    )

    drained = workplace.run("sam-consume", "run", "--drain")

    letters = query(workplace.database, "SELECT message_id, reason FROM dead_letter")
    assert drained.code == 65, str(drained)
    by_id = {row["message_id"].partition(":")[0]: row["reason"] for row in letters}
    assert by_id == {name: name for name in MAKES}
    assert MAKES.keys() == dead_letter_reasons().keys()


# Passwords, foreign writers, relays ---------------------------------------------------------------


def test_a_reload_uses_the_new_password(
    workplace: Workplace, rabbitmq: RabbitMQServer, topic: str
) -> None:
    def change_password(password: str) -> None:
        rabbitmq.add_user("site-a", password, topics_read=".*", topics_written=".*")
        workplace.write("broker-password", f"{password}\n").chmod(0o600)

    text = re.sub(r"^(ca|crl|certificate|key)_file.*\n", "", PASSWORD_TOML, flags=re.MULTILINE)
    text = text.replace("stomp+ssl://msg1.example.org:61614", rabbitmq.url).replace(TOPIC, topic)
    configure(workplace, text)
    change_password("first")
    with workplace.running("sam-consume", "run") as daemon:
        eventually(lambda: log_of(workplace).count("subscribed as site-a") == 1)
        change_password("second")
        daemon.send_signal(signal.SIGHUP)
        eventually(lambda: log_of(workplace).count("subscribed as site-a") == 2)
        message = metric_message(metric_result(hostName="ce01.example.org"))
        publish(rabbitmq.host, rabbitmq.port, f"/topic/{topic}", [message])
        eventually(lambda: hosts(workplace) == ["ce01.example.org"])


def test_the_systemd_credential_of_the_units_is_found(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = "LoadCredential=sam-consumer-password\n"
    units = [
        path.read_text() for path in (ROOT / "deploy/systemd/consumer").glob("sam-consume*.service")
    ]
    workplace.write("sam-consumer-password", "secret\n").chmod(0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(workplace.directory))

    config = load_consumer(argparse.Namespace(config=str(workplace.directory / "sam.toml")))

    assert config.password() == "secret"
    assert [setting in text for text in units] == [True] * 3


def test_records_of_foreign_writers_are_loaded(
    workplace: Workplace, activemq: ActiveMQServer, topic: str
) -> None:
    spool = workplace.directory / "outgoing"
    text = FOREIGN_TOML.replace("/var/spool/nstream/outgoing", str(spool))
    text = text.replace("msg1.example.org:61613", port_of(activemq)).replace("site.probes", topic)
    configure(workplace, text)
    etf = {"metric": "org.Ping", "host": "etf.example.org", "status": "OK", "tags": "CE"}
    stream = replace(workplace, environment={"SAM_PUBLISHER_BROKERS": f"spool://{spool}"})
    body = json.dumps({**etf, "timestamp": RECORD["timestamp"]})
    stream.succeed("sam-publish", "send", "--raw", stdin=body)
    theirs = {"hostName": "machine", "metricName": "check", "metricStatus": "state"}
    record = "".join(f"{theirs.get(key, key)}: {value}\n" for key, value in RECORD.items())
    subscribe(activemq, "site-a", f"/topic/{topic}")
    over = f"/topic/{topic}"
    send = ("sam-publish", "send", "--raw", "--broker", activemq.url, "--destination", over)
    workplace.succeed(*send, stdin=f"{record}EOT\n")

    workplace.succeed("sam-consume", "run", "--drain")

    assert hosts(workplace) == ["ce01.example.org", "etf.example.org"]


def test_a_relay_moves_messages_to_a_consumer(workplace: Workplace) -> None:
    relayed = workplace.directory / "relayed"
    workplace.succeed("sam-publish", *RESULT, "ce01.example.org")
    (before,) = ids(workplace.directory / "spool")

    succeed(workplace, RELAY)

    assert ids(relayed) == [before]
    assert workplace.spooled("spool") == 0
    configure(workplace, RELAY_TOML.replace("/var/spool/sam-in", str(relayed)))
    workplace.succeed("sam-consume", "run", "--drain")
    assert hosts(workplace) == ["ce01.example.org"]


def test_a_bridge_sends_to_the_first_broker_that_confirms(
    workplace: Workplace, rabbitmq: RabbitMQServer, topic: str
) -> None:
    workplace.write("msg2-password", "secret\n").chmod(0o600)
    (port,) = free_ports(1)
    with FakeBroker(drops_after=0) as second, FakeBroker() as third:
        urls = {
            "stomp://msg1.example.org:61613": rabbitmq.url,
            "stomp+ssl://msg2.example.org:61614": second.url,
            "stomp+ssl://msg3.example.org:61614": third.url,
            "127.0.0.1:8080": f"127.0.0.1:{port}",
            "sam-consume run": "sam-consume run --drain",
            TOPIC: topic,
        }

        def with_ours(text: str) -> str:
            for documented, ours in urls.items():
                text = text.replace(documented, ours)
            return text

        configure(workplace, with_ours(BRIDGE_TOML))
        succeed(workplace, with_ours(BRIDGE))  # subscribes
        message = metric_message()
        publish(rabbitmq.host, rabbitmq.port, f"/topic/{topic}", [message])
        succeed(workplace, with_ours(BRIDGE))

    assert third.ids == [message.message_id]
    assert {login.headers.get("login") for login in second.logins} == {"bridge"}
    assert {login.headers.get("login") for login in third.logins} == {None}


def test_the_group_owns_the_spool_and_what_was_left_there(workplace: Workplace) -> None:
    if os.geteuid() != 0:
        missing("root", PRIVILEGED)
    group = "40010"  # the commands that make it and add accounts would change this machine

    def of_group(block: str) -> str:
        block = re.sub(r"^(groupadd|usermod) .*\n", "", block, flags=re.MULTILINE)
        return block.replace("sam-spool", group).replace("/var/spool", str(workplace.directory))

    succeed(workplace, of_group(SHARE))
    spool = workplace.directory / "sam-in"
    (element := spool / DirectoryQueue(spool).add(metric_message())).chmod(0o600)
    succeed(workplace, of_group(CORRECT))

    for path in (spool, workplace.directory / "sam-in.bad", element.parent, element):
        mode = 0o660 if path == element else 0o2770
        assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_gid) == (mode, int(group))


def ids(path: Path) -> list[str]:
    queue = DirectoryQueue(path)
    return [queue.read(name).message_id for name in queue.names()]


# Looking ----------------------------------------------------------------------------------------


def test_messages_that_wait_can_be_looked_at_and_are_loaded_later(workplace: Workplace) -> None:
    for number in range(5):
        workplace.succeed("sam-publish", *RESULT, f"ce{number}.example.org")

    seen = succeed(workplace, TAP)
    preview = succeed(workplace, DRY_RUN)
    workplace.succeed("sam-consume", "run", "--drain")

    *_, document = seen.out.splitlines()
    assert json.loads(document)["records"][0]["hostName"] == "ce0.example.org"
    assert seen.out.count("metricName: org.example.Ping") == 5
    assert preview.out.count("a row of metricOutput") == 5
    *_, document = preview.out.splitlines()
    assert json.loads(document)["rows"][0]["values"]["hostName"] == "ce0.example.org"
    assert len(hosts(workplace)) == 5


# Monitoring ---------------------------------------------------------------------------------------


def test_the_monitoring_commands_and_metrics_describe_a_running_daemon(
    workplace: Workplace,
) -> None:
    (port,) = free_ports(1)
    replace(
        workplace, consumer_settings=f'metrics_listen = "127.0.0.1:{port}"'
    ).write_configuration()
    with workplace.running("sam-consume", "run"):
        workplace.succeed("sam-publish", *RESULT, "ce01.example.org")
        state = workplace.directory / "state" / "sam" / "consume-acceptance.state.json"
        eventually(lambda: state.exists() and json.loads(state.read_text())["rows"] == 1)

        answer = succeed(workplace, MONITOR)

        assert "acceptance: running" in answer.out
        assert "SAM CONSUMER OK" in answer.out
        script = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
        url = f"http://127.0.0.1:{port}"
        bodies = {
            path: subprocess.run(
                [PROGRAMS / "python", "-c", script, url + path],
                check=True,  # urlopen raises for any status but 200
                capture_output=True,
                text=True,
            ).stdout
            for path in ("/metrics", "/readyz", "/healthz")
        }
        assert bodies["/readyz"] == bodies["/healthz"] == "running\n\n"
        exported = re.findall(r"^# TYPE sam_consume_(\w+)", bodies["/metrics"], re.MULTILINE)
        names = [cells[0] for cells in REFERENCE.examples("Metrics")]
        assert sorted(exported) == sorted(name[1:-1] for name in names if re.match(r"`\w", name))
    stopped = workplace.run("sam-consume", "status")
    assert (stopped.code, "stopped" in stopped.out) == (69, True)


def test_metrics_beyond_this_machine_need_a_certificate_and_a_token(workplace: Workplace) -> None:
    tls = TlsFiles(workplace.directory)
    host = tls.host()
    tls.certificate_file(host, "hostcert.pem")
    tls.key_file(host, name="hostkey.pem")
    (port,) = free_ports(1)
    text = METRICS_TOML.replace("9464", str(port)).replace(
        "/var/spool/sam-in", f"{tls.directory}/in"
    )
    configure(workplace, text)
    without_token = workplace.run("sam-consume", "check")

    succeed(workplace, METRICS_TOKEN)

    assert "metrics-token" in without_token.err
    token = (workplace.directory / "metrics-token").read_text().strip()
    with workplace.running("sam-consume", "run"):
        context = ssl.create_default_context(cafile=str(tls.ca_file))
        request = Request(
            f"https://127.0.0.1:{port}/healthz", headers={"Authorization": f"Bearer {token}"}
        )

        def answers() -> bool:
            with suppress(OSError), urlopen(request, context=context, timeout=10) as response:
                return bool(response.status == 200)
            return False

        eventually(answers)


# The page as a whole ------------------------------------------------------------------------------


def test_the_program_uses_only_documented_exit_codes(workplace: Workplace) -> None:
    closed = replace(workplace, environment={"STATE_DIRECTORY": "/dev/null/state"})

    codes = {
        workplace.run("sam-consume", "run", "--drain").code,
        workplace.run("sam-consume", "run", "--no-such-option").code,
        workplace.run("sam-consume", "dead-letter", "edit", "1", "--body", "none").code,
        closed.run("sam-consume", "run", "--drain").code,
        workplace.run("sam-consume", "--config", "none.toml", "check").code,
    }

    assert codes <= EXIT_CODES["consumer"].keys()


def test_every_block_is_run() -> None:
    assert PAGE.unused("sh", "crontab") == []
