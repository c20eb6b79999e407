"""Publishing to real brokers: what a receipt guarantees, what arrives, and what brokers refuse."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher import Publication, PublisherConfig, publish
from sam_pipeline.publisher.api import publish_record
from sam_pipeline.publisher.brokers.stomp import StompTransport
from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import Target, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import needed
from tests.services.activemq5 import ActiveMQ5Server
from tests.services.artemis import FORBIDDEN, SILENT
from tests.services.broker import StompServer
from tests.services.brokers import BROKERS
from tests.services.process import last_lines
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.brokers.queue_reader import received, received_ids
from tests.support.brokers.subscriber import subscribed
from tests.support.brokers.tls_files import TlsBroker
from tests.support.builders import metric_message, metric_result
from tests.support.commands import Workplace
from tests.support.conservation import conserved
from tests.support.publishing import dead_url, ids, messages, secret, signer_of, spooled

OURS = ("messageClass", "recordCount", "samMessageId", "content-type", "x-note", "nagios_host")


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def name() -> str:
    return f"publish-{uuid.uuid4().hex}"


@pytest.fixture
def strict(request: pytest.FixtureRequest) -> StompServer:
    """A broker that forbids some topics, also to clients without a login."""
    server: StompServer = request.getfixturevalue(request.param)
    return server


def rest_url(server: StompServer) -> str:
    if isinstance(server, ActiveMQ5Server):
        return server.rest_url
    assert isinstance(server, RabbitMQServer)
    return server.api_url


def config_for(*urls: str, password: str = "", **settings: Any) -> PublisherConfig:
    """These brokers, and the spool of the working directory."""
    chosen = {"spool": Path("spool").absolute(), "timeout_s": 30.0, **settings}
    if password:
        chosen["password_file"] = secret(Path(f"password-{uuid.uuid4().hex}").absolute(), password)
    return PublisherConfig(brokers=urls, **chosen)


def confirmed(publication: Publication) -> list[str]:
    return ids(receipt.message for receipt in publication.receipts)


BINARY, TEXT = bytes(range(256)), "lines\r\n\tß€ a+b&c=d;%41\n\n".encode()
EVERY_WAY = [(stomp, "stomp") for stomp in BROKERS] + [("activemq5", "http"), ("rabbitmq", "http")]
every_way = pytest.mark.parametrize(("broker", "over"), EVERY_WAY, indirect=["broker"])


@every_way
@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_messages_arrive_unchanged(broker: StompServer, over: str, name: str, kind: str) -> None:
    make_key(key := Path("nagios1.pem").absolute())
    headers = {"x-note": "a:b\\c ü\n+&=%", "nagios_host": "n1:ü", "samRename": "a%2Cb=metricName"}
    message = metric_message(destination=f"/{kind}/{name}", **headers)
    is_text = kind == "queue" or (over == "http" and isinstance(broker, ActiveMQ5Server))
    message = message._replace(body=TEXT if is_text else BINARY)
    url = rest_url(broker) if over == "http" else broker.url

    with subscribed(broker, f"/{kind}/{name}") as frames:
        publish([message], config_for(url, password=broker.password, signing_key_file=key))
        frame = next(frames)

    assert (frame.body, frame.headers["persistent"]) == (message.body, "true")
    for header in OURS:
        assert frame.headers[header] == message.headers[header]
    assert signer_of(key, Message(frame.headers, frame.body)) == "nagios1"


@pytest.fixture(params=BROKERS)
def mortal_broker(request: pytest.FixtureRequest) -> Iterator[StompServer]:
    """Each STOMP broker in turn, with a store of its own."""
    with needed(BROKERS[request.param]()) as server:
        yield server


def test_confirmed_messages_survive_a_broker_crash(mortal_broker: StompServer, name: str) -> None:
    first, single, many = (messages(count, destination=f"/queue/{name}") for count in (1, 1, 250))

    # RabbitMQ stores a queue later than its messages, so the first stop is a regular one.
    publish(first, config_for(mortal_broker.url))
    mortal_broker.process.stop()
    mortal_broker.process.start()
    for sent in (single, many):
        assert len(publish(sent, config_for(mortal_broker.url)).receipts) == len(sent)
    mortal_broker.restart()  # with SIGKILL

    every = {*ids([*first, *single, *many])}
    arrived = {*received_ids(mortal_broker, f"/queue/{name}", every)}
    assert arrived == every, last_lines(mortal_broker.process.log)


@pytest.mark.parametrize(
    "fault",
    [
        {"resets_at": "RECEIPT", "spoils": 1},
        {"resets_after": 60_000, "spoils": 1},
        {"eats": "RECEIPT"},
    ],
    ids=["reset for a receipt", "reset in a frame", "no receipts"],
)
def test_a_faulty_wire_loses_nothing(broker: StompServer, name: str, fault: dict[str, Any]) -> None:
    sent = messages(300, destination=f"/queue/{name}")
    is_healed = "spoils" in fault

    with FaultProxy(broker.port, **fault) as proxy:
        timeout_s = 30.0 if is_healed else 1.0
        publication = publish(sent, config_for(proxy.url, timeout_s=timeout_s))
    left = spooled()
    drain(config_for(broker.url))

    assert sorted(confirmed(publication) + left) == sorted(ids(sent))
    assert (left == []) == is_healed
    arrived = received_ids(broker, f"/queue/{name}", ids(sent))
    conserved(ids(sent), arrived, DirectoryQueue(Path("spool").absolute()))
    if fault.get("resets_at") or fault.get("eats"):
        assert len(arrived) > len(sent), "what was stored before the fault is there twice"


def test_headers_that_a_broker_would_act_on_stop_no_message(broker: StompServer, name: str) -> None:
    # Each of them made a broker lose its message, delay it, stop its queue or end the connection.
    names = ["priority", "timestamp", "expires", "ack", "type", "transformation", "amq-msg-type"]
    names += ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_CRON", "_AMQ_DUPL_ID", "_AMQ_ROUTING_TYPE"]
    names += ["JMSDeliveryMode", "destination-type", "receipt", "message-id", "CC", "BCC"]
    spool, sent = DirectoryQueue(Path("spool").absolute()), []
    for header in names:
        for value in ("99", "x", "-1", "7"):
            sent.append(metric_message(destination=f"/queue/{name}", **{header: value}))
        sent.append(metric_message(destination=f"/queue/{name}"))
    for message in sent:
        spool.add(message)

    assert drain(config_for(broker.url)).sent == len(sent)

    assert sorted(received_ids(broker, f"/queue/{name}", ids(sent))) == sorted(ids(sent))


def only_allowed(server: RabbitMQServer) -> tuple[str, str]:
    """The URL for a user who may send only to some topics, and a password."""
    user = f"probe-{uuid.uuid4().hex}"
    server.add_user(user, "secret", topics_read=".*", topics_written="^allowed")
    return f"stomp://{user}@{server.host}:{server.port}", "secret"


@pytest.mark.parametrize(
    ("strict", "stem"),
    [
        ("artemis", "permission='CREATE_ADDRESS' on address forbidden.x"),
        ("strict_activemq", "write to: topic://forbidden.x"),
        ("rabbitmq", "access to topic 'forbidden.x'"),
    ],
    indirect=["strict"],
)
def test_forbidden_messages_alone_are_spooled(strict: StompServer, name: str, stem: str) -> None:
    is_rabbit = isinstance(strict, RabbitMQServer)
    url, password = only_allowed(strict) if is_rabbit else (strict.url, "")
    forbidden = messages(25, destination=f"/topic/{FORBIDDEN}x")
    allowed = messages(25, destination=f"/queue/{name}")
    mixed = [message for pair in zip(forbidden, allowed, strict=True) for message in pair]

    publication = publish(mixed, config_for(url, password=password))

    assert sorted(confirmed(publication)) == sorted(ids(allowed))
    assert sorted(spooled()) == sorted(ids(forbidden))
    assert all(stem in rejection.reason for rejection in publication.rejections)


@every_way
def test_only_the_right_password_publishes(broker: StompServer, name: str, over: str) -> None:
    url = rest_url(broker) if over == "http" else broker.url_with_user

    with subscribed(broker, f"/queue/{name}") as frames:
        sent = messages(2, destination=f"/queue/{name}")
        (failure,) = publish(sent[:1], config_for(url, password="guessed")).failures
        publication = publish(sent[1:], config_for(url, password=broker.password))
        assert {next(frames).headers["samMessageId"] for _ in sent} == {*ids(sent)}

    assert "guessed" not in str(failure)
    assert publication.drained == 1  # the message that was spooled because of the wrong password


def test_the_api_reports_what_it_cannot_route(rabbitmq: RabbitMQServer, name: str) -> None:
    lost = [metric_message(destination=f"/{kind}/{name}") for kind in ("topic", "queue")]
    config = config_for(rabbitmq.api_url, password=rabbitmq.password)
    reasons = [rejection.reason for rejection in publish(lost, config).rejections]

    assert "no queue is bound" in reasons[0] and f"no queue {name}" in reasons[1]
    elsewhere = config.replace(brokers=(rabbitmq.api_url.replace("amq.topic", "missing"),))
    assert "no exchange 'missing'" in publish(lost, elsewhere).failures[0].reason


def test_details_are_shortened_to_fit_into_a_form(activemq5: ActiveMQ5Server, name: str) -> None:
    destination = f"/topic/{name}"
    config = config_for(activemq5.rest_url, password=activemq5.password, destination=destination)
    fits = Message(metric_message(destination=destination).headers, b"x" * 199_000)

    with subscribed(activemq5, destination) as frames:
        publish([fits], config)
        publish_record(metric_result(detailsData="a b\n" * 60_000), config)
        first, shortened = next(frames).body, next(frames).body

    assert first == fits.body
    assert shortened.endswith(b" bytes were left out here]\nEOT\n")
    assert len(shortened) > 100_001  # where a raw body would be cut


def proof_of(server: StompServer, destination: str) -> str:
    target = Target(parse_broker(server.url), server.host)
    message = metric_message(destination=destination)
    return StompTransport.round_trip(target, message, Deadline.after(30))


def test_round_trips_succeed_and_consume_nothing(broker: StompServer, name: str) -> None:
    assert proof_of(broker, f"/topic/{name}") == proof_of(broker, f"/queue/{name}") == "round trip"
    standing = messages(2, destination=f"/queue/{name}")
    publish(standing, config_for(broker.url))

    (proof,) = {proof_of(broker, f"/queue/{name}") for _ in range(12)}  # Artemis gives up after 10

    assert proof.startswith("confirmed, ") and "another message" in proof
    frames = received(broker, f"/queue/{name}", 14)
    assert [frame.headers["samMessageId"] for frame in frames][:2] == ids(standing)


@pytest.mark.parametrize(
    ("strict", "stem"),
    [
        ("artemis", "Error creating subscription"),
        ("strict_activemq", "read from: topic://silent.x"),
    ],
    indirect=["strict"],
)
def test_without_the_right_to_subscribe_a_receipt_is_enough(strict: StompServer, stem: str) -> None:
    proof = proof_of(strict, f"/topic/{SILENT}x")

    assert proof.startswith("confirmed, not read back: not allowed")
    assert stem in proof


def test_check_proves_the_way_to_each_broker_and_notes_where_anybody_may_publish(
    tmp_path: Path, broker: StompServer, activemq5: ActiveMQ5Server, rabbitmq: RabbitMQServer
) -> None:
    place = Workplace(tmp_path, "", "", environment={"SAM_PUBLISHER_PASSWORD": "sam-secret"})
    urls = (broker.url, activemq5.rest_url, rabbitmq.api_url, dead_url())
    options = ("--connect", "--json", "--destination", topic := f"/topic/{uuid.uuid4().hex}")

    with subscribed(rabbitmq, topic):
        answer = place.run("sam-publish", "check", *options, *(f"--broker={url}" for url in urls))

    assert answer.code == 78, str(answer)
    trips = answer.json["brokers"]
    assert [trip["proven"] for trip in trips] == ["round trip"] * 3 + [None]
    assert [trip["anybody_may_publish"] for trip in trips] == [True, False, False, False]
    (note,), (problem,) = answer.json["notes"], answer.json["problems"]
    assert note.startswith(f"{broker.url}: anybody may publish here: ")
    assert problem.endswith("connection refused")


def test_tls_brokers_want_certificates(tls_broker: TlsBroker, tmp_path: Path, name: str) -> None:
    server, files = tls_broker
    trusting = config_for(server.tls_url, ca_file=files.ca_file, drain=False, state=None)
    expired = files.x509_proxy(files.expired_client())
    for config, stem in (
        (trusting, "client certificate (certificate_file): "),
        (trusting.replace(certificate_file=expired), f"{expired}: it expired on 20"),
        (trusting.replace(brokers=(server.tls_url.replace("+ssl", ""),)), "stomp+ssl://"),
    ):
        assert stem in publish(messages(1), config).failures[0].reason

    path = files.x509_proxy(files.client())
    sent = messages(1234, destination=f"/queue/{name}")
    publication = publish(sent, trusting.replace(certificate_file=path))
    assert confirmed(publication) == ids(sent)
    assert received_ids(server, f"/queue/{name}", ids(sent)) == ids(sent)

    environment = {"ca_file": files.ca_file, "certificate_file": path}
    variables = {f"SAM_PUBLISHER_{key.upper()}": str(file) for key, file in environment.items()}
    place = Workplace(tmp_path, "", "", environment=variables)
    options = ("--producers=3", "--consumers=2", "--sizes=10k", "--messages=300", "--json")
    done = place.succeed("sam-publish", "load-test", "--broker", server.tls_url, *options)
    assert (done.json["delivered"], done.json["problems"]) == (600, [])


def test_a_login_is_for_one_vhost(rabbitmq: RabbitMQServer, tmp_path: Path, name: str) -> None:
    vhost, user = f"vhost-{name}", f"region-{name}"
    rabbitmq.add_virtual_host(vhost, user, "region-secret")
    secret(tmp_path / "password", "region-secret")
    place = Workplace(tmp_path, "", "")
    for host, code in (("/", 78), (vhost, 0)):
        place.write(
            "sam.toml",
            f'[publisher]\n[[publisher.broker]]\nurl = "{rabbitmq.url}"\nvhost = "{host}"\n'
            f'user = "{user}"\npassword_file = "password"\n',
        )
        answer = place.run("sam-publish", "check", "--connect", "--destination", f"/topic/{name}")
        assert answer.code == code, str(answer)

    result = ("result", "--metric", "m", "--status", "OK", "--host", "h", "--flavour", "CE")
    place.succeed("sam-publish", *result, "--destination", f"/queue/{name}")
    assert rabbitmq.queue_of(vhost, name)["durable"]
