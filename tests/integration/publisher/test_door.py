"""Publishing through a real HTTP door: what it confirms is in the database, and once."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from trustme import LeafCert

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.publisher.cli import main
from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.schema.identity.identity import IDENTITY
from sam_pipeline.schema.identity.keys import load_signer, make_key
from sam_pipeline.schema.identity.tokens import make_token
from sam_pipeline.schema.messages.message import CLASS, Message, pack
from sam_pipeline.schema.records.text import Record, write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import needed
from tests.services.tinyproxy import TinyProxy, running_tinyproxy
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.brokers.tls_files import HOST, TlsFiles
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS
from tests.support.consumer.door import listening, new_door, servlet_site
from tests.support.consumer.door_site import DoorSite, door_site
from tests.support.consumer.site import WAIT_S, eventually

MAX_BYTES = 100_000
"""The limit of the door on a message."""
POLICY = """\
mode = "enforce"
[[publisher]]
name = "nagios1"
is = ["token:nagios1"]
classes = ["metricOutput"]
hosts = ["*"]
"""


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without secrets or proxies."""
    for name in os.environ:
        if name.startswith(("SAM_", "BEARER_TOKEN")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorSite]:
    """A door without TLS in front of SQLite."""
    with door_site(tmp_path_factory.mktemp("door")) as site:
        yield site


class Secured(NamedTuple):
    """A door over TLS that wants a token or a certificate."""

    site: DoorSite
    files: TlsFiles
    host: LeafCert
    token: Path
    """A file with a token that it knows."""

    @property
    def trusting(self) -> PublisherConfig:
        """The configuration of a sender without credentials."""
        return PublisherConfig(brokers=(self.site.door.url,), ca_file=self.files.ca_file)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    files = TlsFiles(directory)
    host = files.host()
    token = files.file("token", make_token(directory / "tokens", "nagios1").encode())
    with door_site(
        directory,
        tls=True,
        certificate_file=str(files.certificate_file(host, "host.pem")),
        key_file=str(files.key_file(host, name="host-key.pem")),
        client_ca_file=str(files.ca_file),
        tokens_file=str(directory / "tokens"),
        require_identity=True,
    ) as site:
        yield Secured(site, files, host, token)


@pytest.fixture(scope="module")
def proxy() -> Iterator[TinyProxy]:
    with needed(running_tinyproxy()) as server:
        yield server


def results(count: int, metric: str) -> list[Record]:
    return [metric_result(hostName=f"ce{at}.example.org", metricName=metric) for at in range(count)]


def messages(count: int, metric: str) -> list[Message]:
    """One record each."""
    return [metric_message(result) for result in results(count, metric)]


def config_for(door: DoorSite, **more: object) -> PublisherConfig:
    return PublisherConfig(brokers=(door.door.url,))._replace(**more)  # type: ignore[arg-type]


def test_what_the_door_confirms_is_in_the_database_once(door: DoorSite) -> None:
    single = messages(1200, "single")
    packed = list(pack(results(250, "packed"), "metricOutput"))

    first = publish([*single, *packed], config_for(door))
    again = publish(single, config_for(door))

    assert (len(first.receipts), len(again.receipts)) == (1203, 1200)
    assert (door.rows("single"), door.rows("packed")) == (1200, 250)


def test_a_record_that_became_a_dead_letter_is_reported_to_its_sender(
    door: DoorSite, caplog: pytest.LogCaptureFixture
) -> None:
    good = metric_result(metricName="half")
    message = metric_message({**good, "metricStatus": "FINE"}, good)
    before = door.letters()

    publication = publish([message], config_for(door))

    assert len(publication.receipts) == 1
    assert (door.rows("half"), door.letters()) == (1, before + 1)
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert message.message_id in warning.getMessage()
    assert ": 1 dead letter, the first because of " in warning.getMessage()
    assert "FINE" in warning.getMessage()


def test_a_message_that_is_too_large_for_the_door_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    few = messages(20, "beside")
    large = metric_message(metric_result(detailsData="x" * (MAX_BYTES + 1)))
    spool = tmp_path / "spool"

    with door_site(tmp_path, consumer={"max_message_bytes": MAX_BYTES}) as door:
        publication = publish([*few[:10], large, *few[10:]], config_for(door, spool=spool))

        assert door.rows("beside") == 20
    (rejection,) = publication.rejections
    assert rejection.message.message_id == large.message_id
    assert rejection.reason.startswith("413 ")
    assert [message.message_id for message in publication.spooled] == [large.message_id]


@pytest.mark.parametrize("source", ["variable", "key"])
def test_plain_http_goes_through_a_proxy(
    door: DoorSite, proxy: TinyProxy, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    config = config_for(door)
    if source == "variable":
        monkeypatch.setenv("http_proxy", proxy.url)
    else:
        config = config._replace(proxy=proxy.url)
    asked_before = len(proxy.asked)

    publication = publish(messages(1001, f"proxy-{source}"), config)

    assert len(publication.receipts) == 1001
    assert door.rows(f"proxy-{source}") == 1001
    url = f"http://{HOST}:{door.door.port}/v1/messages"
    assert proxy.asked[asked_before:] == [f"POST {url}"] * 2


def test_https_goes_through_a_tunnel_with_a_token(secured: Secured, proxy: TinyProxy) -> None:
    config = secured.trusting._replace(token_file=secured.token, proxy=proxy.url)
    asked_before = len(proxy.asked)

    publication = publish(messages(1001, "tunnel"), config)

    assert len(publication.receipts) == 1001
    assert secured.site.rows("tunnel") == 1001
    assert proxy.asked[asked_before:] == [f"CONNECT {HOST}:{secured.site.door.port}"]


def test_a_sender_of_the_message_servlet_may_send_to_the_door_through_a_tunnel(
    secured: Secured, proxy: TinyProxy
) -> None:
    url = f"activemq-rest+https://nagios1@{HOST}:{secured.site.door.port}"
    config = secured.trusting._replace(
        brokers=(url,), password_file=secured.token, proxy=proxy.url, timeout_s=WAIT_S
    )
    asked_before = len(proxy.asked)

    publication = publish(messages(20, "servlet-tunnel"), config)

    assert len(publication.receipts) == 20
    assert secured.site.rows("servlet-tunnel") == 20
    assert proxy.asked[asked_before:] == [f"CONNECT {HOST}:{secured.site.door.port}"]


def test_a_client_certificate_is_enough(secured: Secured) -> None:
    files = secured.files
    ours = files.client()
    config = secured.trusting._replace(
        certificate_file=files.certificate_file(ours), key_file=files.key_file(ours)
    )

    publication = publish(messages(5, "certificate"), config)

    assert len(publication.receipts) == 5


@pytest.mark.parametrize("token", [None, "a-token-of-another-door"])
def test_a_sender_without_a_known_token_or_certificate_is_refused_with_the_reason(
    secured: Secured, tmp_path: Path, token: str | None
) -> None:
    config = secured.trusting
    if token:
        path = tmp_path / "token"
        path.touch(mode=0o600)
        path.write_text(token)
        config = config._replace(token_file=path)

    with pytest.raises(NoBrokerTookIt) as refusal:
        publish(messages(1, "refused"), config)

    (failure,) = refusal.value.publication.failures
    assert failure.reason.startswith("401 Unauthorized: ")
    assert "token" in failure.reason
    assert secured.site.rows("refused") == 0


def test_a_class_that_the_policy_does_not_permit_is_rejected_and_the_others_are_stored(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(make_token(tmp_path / "tokens", "nagios1"))
    policy = tmp_path / "publishers.toml"
    policy.write_text(POLICY)
    permitted, forbidden = messages(2, "policy")
    forbidden = Message({**forbidden.headers, CLASS: "serviceEndpoint"}, forbidden.body)

    with door_site(
        tmp_path, consumer={"publishers": str(policy)}, tokens_file=str(tmp_path / "tokens")
    ) as door:
        config = config_for(door, token_file=token, spool=tmp_path / "spool")
        publication = publish([forbidden, permitted], config)

        assert door.rows("policy") == 1
    (rejection,) = publication.rejections
    assert rejection.message.message_id == forbidden.message_id
    assert rejection.reason.startswith("403 Forbidden: ")
    assert "nagios1" in rejection.reason


def test_a_signature_is_valid_behind_the_door(tmp_path: Path) -> None:
    key = tmp_path / "nagios1.pem"
    make_key(key)
    public = f'keys = ["{load_signer(key).public_key()}"]'
    policy = tmp_path / "publishers.toml"
    policy.write_text("\n".join([POLICY.replace("token:", "key:"), public, "signed = true"]))

    with door_site(tmp_path, consumer={"publishers": str(policy)}) as door:
        config = config_for(door, spool=tmp_path / "spool")
        signed = publish(messages(3, "signed"), config._replace(signing_key_file=key))
        unsigned = publish(messages(3, "unsigned"), config)

        assert door.rows("signed") == door.rows() == 3
    assert (len(signed.receipts), len(unsigned.rejections)) == (3, 3)
    assert all(rejection.reason.startswith("403 ") for rejection in unsigned.rejections)


def test_a_door_whose_certificate_was_revoked_gets_nothing(secured: Secured) -> None:
    revoked = secured.files.revocation_list(secured.host)
    config = secured.trusting._replace(token_file=secured.token, crl_file=revoked)

    with pytest.raises(NoBrokerTookIt) as refusal:
        publish(messages(1, "revoked"), config)

    assert "revoked" in refusal.value.publication.failures[0].reason


def test_check_shows_where_the_door_stores_messages(
    secured: Secured,
    door: DoorSite,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_TOKEN_FILE", str(secured.token))
    monkeypatch.setenv("SAM_PUBLISHER_CA_FILE", str(secured.files.ca_file))
    urls = (secured.site.door.url, door.door.url)

    code = main(["check", "--connect", "--json", "--broker", urls[0], "--broker", urls[1]])

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [broker["broker"] for broker in document["brokers"]] == list(urls)
    assert {broker["proven"] for broker in document["brokers"]} == {
        "confirmed: stored in the database"
    }
    assert [broker["anybody_may_publish"] for broker in document["brokers"]] == [False, True]


@pytest.mark.parametrize(
    ("fault", "timeout_s", "some_are_confirmed"),
    [
        ({"mute": True}, 1.5, False),
        ({"resets_after": 3000}, 1.5, False),
        ({"drip_s": 0.0002}, 5.0, True),
    ],
    ids=["answers are lost", "the request is cut", "answers are slow"],
)
def test_over_a_faulty_connection_nothing_is_lost_and_nothing_stored_twice(
    door: DoorSite,
    tmp_path: Path,
    fault: dict[str, Any],
    timeout_s: float,
    some_are_confirmed: bool,
) -> None:
    metric = "fault-" + "-".join(fault)
    sent = messages(400, metric)
    direct = config_for(door, spool=tmp_path / "spool")

    with FaultProxy(door.door.port, **fault) as proxy:
        url = f"sam+http://{proxy.host}:{proxy.port}"
        publication = publish(sent, direct._replace(brokers=(url,), timeout_s=timeout_s))
    totals = drain(direct)

    confirmed = [receipt.message.message_id for receipt in publication.receipts]
    spooled = [message.message_id for message in publication.spooled]
    assert (len(publication.failures), bool(confirmed)) == (1, some_are_confirmed)
    assert sorted(confirmed + spooled) == sorted(message.message_id for message in sent)
    assert totals.sent == len(spooled) > 0
    assert door.rows(metric) == 400


def test_a_servlet_keeps_the_headers_of_messages_and_says_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    door = new_door()
    queue = DirectoryQueue(tmp_path / "out")
    sent = [
        metric_message(result, destination="/queue/in.box", nagios_host="n1")
        for result in results(20, "servlet")
    ]

    with listening(servlet_site(tmp_path / "servlet", door), door, "--to", f"spool://{queue.path}"):
        publication = publish(sent, PublisherConfig(brokers=(door.url,)))
        stored = [queue.read(name) for name in queue.names() if queue.lock(name)]
        code = main(["check", "--connect", "--broker", door.url])

    assert len(publication.receipts) == 20
    kept = [
        Message({k: v for k, v in message.headers.items() if k != IDENTITY}, message.body)
        for message in stored
    ]
    assert kept == sent
    assert code == 0
    assert "confirmed: stored in the spool" in capsys.readouterr().out


def test_after_a_crash_of_the_door_every_message_is_stored_once(tmp_path: Path) -> None:
    count = 1500
    (tmp_path / "results").write_text("".join(map(write_wlcg, results(count, "crash"))))
    state = {"STATE_DIRECTORY": str(tmp_path / "publisher"), "PATH": os.environ["PATH"]}

    with door_site(tmp_path) as door:
        command = [PROGRAMS / "sam-publish", "send", "--one-per-message", tmp_path / "results"]
        with subprocess.Popen([*command, "--broker", door.door.url], env=state) as sender:
            eventually(lambda: door.rows("crash") > 0)
            door.daemon.process.kill()
            assert sender.wait(WAIT_S) == 0
        stored = door.rows("crash")
        with listening(door.site, door.door):
            drained = subprocess.run(
                [PROGRAMS / "sam-publish", "spool", "drain", "--broker", door.door.url],
                env=state,
                timeout=WAIT_S,
            )

    assert drained.returncode == 0
    assert 0 < stored < count, "the door was killed while messages arrived"
    assert door.rows("crash") == count
