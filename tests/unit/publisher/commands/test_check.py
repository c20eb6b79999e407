"""`sam-publish check`: every problem at once, each with its file, line and key."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sam_pipeline.publisher.cli import main
from tests.support.brokers.door_stand_in import TOKEN, DoorStandIn, stored
from tests.support.brokers.fake_broker import closed_port
from tests.support.brokers.http_stand_in import Asked, HttpStandIn, json_reply, reply
from tests.support.brokers.stand_in import HOST

Check = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without configuration, secrets or proxies."""
    for name in os.environ:
        if name.startswith(("SAM_", "XDG_", "BEARER_TOKEN")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Runs the check; returns its exit code, standard output and the lines of standard error."""

    def run(*arguments: str) -> tuple[int, str, list[str]]:
        code = main(["check", *arguments])
        out, err = capsys.readouterr()
        return code, out, err.splitlines()

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sam.toml"


def secret(path: Path, text: str = "canary", mode: int = 0o600) -> Path:
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return path


def test_a_valid_configuration_has_no_problems(check: Check, file: Path, tmp_path: Path) -> None:
    file.write_text('[publisher]\nbrokers = ["stomp://b.example.org"]\nspool = "spool"\n')

    code, out, errors = check()

    assert code == 0
    assert out == "password unset, token unset, proxy password unset\nno problem found\n"
    assert errors == []
    assert not (tmp_path / "spool").exists()


def test_every_problem_is_reported_at_once_with_file_line_and_key(
    check: Check, file: Path, tmp_path: Path
) -> None:
    secret(tmp_path / "open", mode=0o644)
    (tmp_path / "occupied").write_text("")
    file.write_text(
        "[publisher]\n"
        'brokers = ["stomp://b.example.org", "http://x", "foo://"]\n'
        "timeout_s = 0\n"
        "spol = 1\n"
        'password_file = "missing"\n'
        'token_file = "open"\n'
        'spool = "occupied/spool"\n'
        'order = "random"\n'
        "[consumr]\n"
    )

    code, _, errors = check()

    assert code == 78
    problems = [line.removeprefix(f"sam-publish: error: {file}:") for line in errors]
    for line in problems:
        assert line[0].isdigit(), line
    text = "\n".join(problems)
    assert "2: [publisher] brokers: broker URL begins with 'http'" in text
    assert "2: [publisher] brokers: broker URL begins with 'foo'" in text
    assert "3: [publisher] timeout_s: expected more than 0, not 0" in text
    assert "4: [publisher] unknown key spol (did you mean spool?)" in text
    assert f"5: [publisher] password_file: {tmp_path}/missing: no such file" in text
    assert (
        f"6: [publisher] token_file: {tmp_path}/open: is accessible to other users (mode 0644)"
        in text
    )
    assert f"7: [publisher] spool: {tmp_path}/occupied/spool: " in text
    assert "8: [publisher] order: expected listed or shuffled, not random" in text
    assert "9: unknown section [consumr] (did you mean consumer?)" in text
    assert len(problems) == 9


def test_a_file_that_is_not_toml_is_reported_with_its_line(check: Check, file: Path) -> None:
    file.write_text("[publisher]\nbrokers = [\n\ntimeout_s = 1\n")

    code, _, errors = check()

    assert code == 78
    assert len(errors) == 1
    assert errors[0].startswith(f"sam-publish: error: {file}:4: ")


def test_a_configuration_without_a_broker_is_a_problem(check: Check) -> None:
    code, _, errors = check()

    assert code == 78
    missing, searched = errors
    assert missing.endswith("[publisher] brokers is missing: all messages would stay in the spool")
    assert "no configuration file was found" in searched


def test_ams_needs_a_token(check: Check, tmp_path: Path) -> None:
    url = "ams+https://ams.example.org/v1/projects/P"
    without = check("--broker", url)
    secret(tmp_path / "token")
    (tmp_path / "sam.toml").write_text('[publisher]\ntoken_file = "token"\n')

    with_it = check("--broker", url)

    assert without[0] == 78
    assert "[publisher] token_file is missing: ams brokers require a token" in without[2][0]
    assert with_it[0] == 0
    assert "token set" in with_it[1]


def test_a_token_that_others_could_read_on_its_way_to_a_door_is_a_problem(
    check: Check, file: Path
) -> None:
    file.write_text('[publisher]\nbrokers = ["sam+http://d"]\ntoken_file = "token"\n')
    secret(file.with_name("token"))

    code, _, errors = check()
    permitted = check("--broker", "sam+https://d")

    assert code == 78
    (error,) = errors
    assert f"{file}:2: [publisher] brokers: sam+http://d:8080: the token would be sent" in error
    assert permitted[0] == 0


@pytest.mark.parametrize("key", ["ca_file", "certificate_file", "crl_file"])
def test_a_file_without_a_certificate_is_a_problem_for_brokers_with_tls(
    check: Check, file: Path, key: str
) -> None:
    secret(file.with_name("pem"), "no certificate")
    file.write_text(f'[publisher]\nbrokers = ["stomp+ssl://b.example.org"]\n{key} = "pem"\n')

    code, _, errors = check()

    assert code == 78
    assert len(errors) == 1
    assert errors[0].startswith(f"sam-publish: error: {file}:3: [publisher] {key}: ")


def test_a_key_without_a_certificate_is_a_problem(check: Check, file: Path) -> None:
    secret(file.with_name("key"))
    file.write_text('[publisher]\nbrokers = ["stomp://b.example.org"]\nkey_file = "key"\n')

    code, _, errors = check()

    assert code == 78
    assert len(errors) == 1
    assert errors[0].startswith(
        f"sam-publish: error: {file}:3: [publisher] key_file: has no effect"
    )


def test_settings_that_work_but_deserve_attention_are_noted(
    check: Check, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("_CONDOR_SCRATCH_DIR", str(tmp_path))
    secret(file.with_name("password"))
    file.write_text(
        "[publisher]\n"
        'brokers = ["stomp://sam@b.example.org", "stomp://sam@127.0.0.1", "stomp+ssl://sam@b"]\n'
        'password_file = "password"\n'
        'spool = "spool"\n'
        "insecure = true\n"
    )

    code, out, notes = check()

    assert code == 0
    assert "password set" in out
    key = f"{file}:4: [publisher] spool: {tmp_path}/spool"
    assert notes == [
        f"note: {key} is below $_CONDOR_SCRATCH_DIR and is removed with the job",
        "note: stomp://b.example.org:61613: the password of sam is sent in plain text",
    ]


def test_a_login_in_plain_text_is_a_problem(check: Check, file: Path) -> None:
    file.write_text('[publisher]\nbrokers = ["stomp://sam@b.example.org", "stomp://c"]\n')

    code, _, (problem,) = check()

    assert code == 78
    assert "the password of sam would be sent in plain text" in problem
    assert f"{file}:2: [publisher] brokers: stomp://b.example.org:61613" in problem
    assert "insecure = true" in problem


def test_a_login_at_a_proxy_is_noted_once(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://probe:canary@proxy.example.org:3128")

    _, _, (note,) = check("--broker", "stomp://b", "--broker", "stomp://c")

    assert "proxy.example.org:3128 (http_proxy): the password of probe is sent in plain" in note
    assert "canary" not in note


def test_an_incomplete_login_is_noted(check: Check, file: Path) -> None:
    secret(file.with_name("password"))
    file.write_text('[publisher]\nbrokers = ["stomp://b"]\npassword_file = "password"\n')

    unused = check()
    file.unlink()
    missing = check("--broker", "stomp+ssl://sam@b")

    assert unused[2] == [
        f"note: {file}:3: [publisher] password_file: is not used, because no user is configured"
    ]
    (note,) = missing[2]
    assert "b:61614: user sam has no password (password_file, SAM_PUBLISHER_PASSWORD)" in note


def test_a_broker_that_answers_passes_and_one_that_does_not_is_a_problem(
    check: Check, tmp_path: Path
) -> None:
    dead = f"stomp://127.0.0.1:{closed_port()}"

    code, out, errors = check("--connect", "--broker", f"spool://{tmp_path}/q", "--broker", dead)

    assert code == 78
    lines = out.splitlines()
    assert lines[1].split() == ["broker", "address", "proven", "seconds"]
    assert lines[3].startswith(f"spool://{tmp_path}/q") and " round trip " in lines[3]
    assert lines[4].split()[:3] == [dead, "127.0.0.1", "failed"]
    assert errors == [f"sam-publish: error: command line: brokers: {dead}: connection refused"]


def test_the_json_document_has_problems_notes_brokers_and_no_secret(
    check: Check, file: Path
) -> None:
    dead = f"stomp://sam@127.0.0.1:{closed_port()}"
    secret(file.with_name("password"))
    file.write_text(f'[publisher]\nbrokers = ["{dead}", "x"]\npassword_file = "password"\n')

    code, out, _ = check("--connect", "--json")

    document = json.loads(out)
    (broker,) = document["brokers"]
    assert code == 78
    assert len(document["problems"]) == 2
    assert document["notes"] == []
    assert document["secrets"] == {"password": True, "token": False, "proxy password": False}
    assert (broker["address"], broker["proven"]) == ("127.0.0.1", None)
    assert "connection refused" in broker["problem"]
    assert "canary" not in out


def test_a_servlet_that_confirms_but_does_not_deliver_is_a_problem(check: Check) -> None:
    """The servlet confirms the message but never delivers it."""

    def swallows(asked: Asked) -> bytes:
        return reply(204) if asked.method == "GET" else reply(200, b"Message sent", messageID="1")

    with HttpStandIn(swallows) as server:
        url = f"activemq-rest+http://{HOST}:{server.port}/api/message"
        code, _, errors = check("--connect", "--timeout", "0.5", "--broker", url)

    assert code == 78
    assert "it confirmed the message but did not deliver it" in errors[0]


@pytest.mark.parametrize("token", [TOKEN, None], ids=["with a token", "without"])
def test_a_door_shows_where_it_stores_messages_and_whether_anybody_may_send(
    check: Check, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_TOKEN", TOKEN)
    with DoorStandIn(outcome_of=lambda sent: stored(sent, stored="broker"), token=token) as door:
        code, out, errors = check("--connect", "--broker", door.url)

    assert code == 0
    assert "confirmed: stored in the broker" in out
    assert [TOKEN in request.headers.get("authorization", "") for request in door.asked] == [
        True,
        False,
    ]
    assert any("anybody may publish here" in note for note in errors) is (token is None)


def test_a_door_that_refuses_the_check_message_is_a_problem(check: Check) -> None:
    with DoorStandIn(token=TOKEN) as door:
        code, _, errors = check("--connect", "--broker", door.url)

    assert code == 78
    assert "401 Reason: a token is required" in errors[0]


def test_a_door_that_takes_messages_but_delivers_none_is_not_a_problem(check: Check) -> None:
    def only_takes(asked: Asked) -> bytes:
        return reply(405) if asked.method == "GET" else reply(200, b"Message sent", messageID="1")

    with HttpStandIn(only_takes) as server:
        url = f"activemq-rest+http://{HOST}:{server.port}/api/message"
        code, out, _ = check("--connect", "--broker", url)

    assert code == 0
    assert "confirmed; not read back: an HTTP door" in out


def test_an_api_that_forbids_creating_a_queue_is_not_a_problem(check: Check) -> None:
    def forbids(asked: Asked) -> bytes:
        if asked.target.startswith("/api/queues"):
            return json_reply(401, {"error": "not_authorised", "reason": "Access refused."})
        return json_reply(200, {"routed": True})

    with HttpStandIn(forbids) as server:
        url = f"rabbitmq-api+http://{HOST}:{server.port}/%2F/amq.topic"
        code, out, _ = check("--connect", "--broker", url)

    assert code == 0
    assert "confirmed, routed to a queue; not read back: 401" in out


def test_a_check_message_goes_to_the_destination_of_results_with_its_own_class(
    check: Check,
) -> None:
    with HttpStandIn(lambda request: json_reply(200, {"routed": True})) as server:
        url = f"rabbitmq-api+http://{HOST}:{server.port}/%2F/amq.topic"
        check("--connect", "--broker", url)
        check("--connect", "--broker", url, "--destination", "/topic/other")

    published = [request.json for request in server.asked if request.target.endswith("/publish")]
    keys = list(dict.fromkeys(document["routing_key"] for document in published))
    assert keys == ["grid.probe.metricOutput", "other"]
    assert published[0]["properties"]["headers"]["messageClass"] == "sam-check"


def test_a_destination_where_nobody_can_subscribe_is_a_problem_and_gets_no_check_message(
    check: Check, file: Path
) -> None:
    with HttpStandIn(lambda request: json_reply(200, {"routed": True})) as server:
        url = f"rabbitmq-api+http://{HOST}:{server.port}/%2F/amq.topic"
        file.write_text(f'[publisher]\nbrokers = ["{url}"]\ndestination = "/topics/x"\n')
        code, _, errors = check("--connect")

    assert code == 78
    (error,) = errors
    assert "sam.toml:3: [publisher] destination" in error
    assert "did you mean /topic/x?" in error
    assert server.asked == []


def test_a_destination_that_a_kind_of_broker_does_not_have_is_a_problem(
    check: Check, file: Path
) -> None:
    file.write_text(
        '[publisher]\nbrokers = ["stomp://b", "ams+https://a/v1/projects/p"]\n'
        'destination = "/queue/x"\ntoken_file = "token"\n'
    )
    secret(file.with_name("token"))

    code, _, errors = check()

    assert code == 78
    assert [error for error in errors if "ams+https" in error and "AMS has only topics" in error]


def test_a_class_with_a_blank_is_a_problem(check: Check, file: Path) -> None:
    file.write_text('[publisher]\nbrokers = ["stomp://b"]\nclass = "disk usage"\n')

    code, _, errors = check()

    assert code == 78
    assert "[publisher] class" in errors[0]
