"""`sam-publish check`: every problem at once, each with its file, line and key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.brokers.door_stand_in import TOKEN, DoorStandIn, stored
from tests.support.brokers.http_stand_in import Asked, HttpStandIn, json_reply, reply
from tests.support.brokers.stand_in import HOST
from tests.support.brokers.tls_files import TlsFiles
from tests.support.invoke import Answer, invoke
from tests.support.publishing import TOPIC, secret

AMS = "ams+https://ams.example.org/v1/projects/P"
SENT = reply(200, b"Message sent", messageID="1")
ROUTED = json_reply(200, {"routed": True})


def check(*options: str, toml: str = "") -> Answer:
    """The check of a section, with a secret in `file` and one that others may read in `open`."""
    secret(Path("file"))
    secret(Path("open"), mode=0o644)
    if toml:
        Path("sam.toml").write_text(f"[publisher]\n{toml}\n")
    answer = invoke("sam-publish", "check", *options)
    assert "canary" not in answer.out + answer.err
    return answer


def test_every_problem_is_reported_at_once_with_file_line_and_key(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    answer = check(
        toml='brokers = ["stomp://b.example.org", "http://x", "foo://"]\n'
        'timeout = "0s"\nspol = 1\npassword_file = "missing"\ntoken_file = "open"\n'
        'spool = "occupied/spool"\norder = "random"\n[consumr]'
    )

    assert answer.code == 78
    start = f"sam-publish: error: {tmp_path}/sam.toml:"
    problems = [line.removeprefix(start) for line in answer.err.splitlines()]
    for stem in (
        "2: [publisher] brokers: broker URL begins with 'http'",
        "2: [publisher] brokers: broker URL begins with 'foo'",
        "3: [publisher] timeout: expected more than 0s, not 0s",
        "4: [publisher] unknown key spol (did you mean spool?)",
        f"5: [publisher] password_file: {tmp_path}/missing: no such file",
        f"6: [publisher] token_file: {tmp_path}/open: is accessible to other users (mode 0644)",
        f"7: [publisher] spool: {tmp_path}/occupied/spool: ",
        "8: [publisher] order: expected listed or shuffled, not 'random'",
        "9: unknown section [consumr] (did you mean consumer?)",
    ):
        assert sum(problem.startswith(stem) for problem in problems) == 1, stem
    assert len(problems) == 9


PLAIN = 'brokers = ["stomp://b.example.org", "stomp://127.0.0.1", "stomp+ssl://b"]\nuser = "sam"\n'
STOMP, TLS = 'brokers = ["stomp://b.example.org"]\n', 'brokers = ["stomp+ssl://b.example.org"]\n'


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ('brokers = [\n\ntimeout = "1s"', ":4: "),
        ("", "[publisher] brokers is missing: all messages would stay in the spool"),
        (f'brokers = ["{AMS}"]', "token_file is missing: ams brokers require a token"),
        (
            'brokers = ["sam+http://d"]\ntoken_file = "file"',
            ":2: [publisher] brokers: sam+http://d:8080: the token would be sent in plain text",
        ),
        (
            'brokers = ["stomp://sam@b.example.org", "stomp://c"]',
            ":2: [publisher] brokers: stomp://b.example.org:61613: the password of sam would be",
        ),
        *(
            (f'{TLS}{key} = "file"', f":3: [publisher] {key}: ")
            for key in ("ca_file", "certificate_file", "crl_file")
        ),
        (f'{STOMP}key_file = "file"', ":3: [publisher] key_file: has no effect"),
        (f'{STOMP}destination = "/topics/x"', ":3: [publisher] destination: "),
        (
            f'brokers = ["{AMS}"]\ndestination = "/queue/x"\ntoken_file = "file"',
            f":3: [publisher] destination: {AMS.replace('.org', '.org:443')}: destination /queue/x",
        ),
    ],
)
def test_a_problem_is_reported_with_its_place(toml: str, problem: str) -> None:
    answer = check(toml=toml)

    lines = answer.err.splitlines()
    assert (answer.code, len(lines)) == (78, 1 if toml else 2), str(answer)
    assert problem in lines[0]
    assert toml or "no configuration file was found" in lines[1]


PROXY = 'proxy = "http://probe@p.example.org"\nproxy_password_file = "file"'
NOTES = {
    "the password of sam is sent in plain text": f'{PLAIN}password_file = "file"\ninsecure = true',
    ":3: [publisher] password_file: is not used": f'{STOMP}password_file = "file"',
    "b:61614: user sam has no password (password_file": 'brokers = ["stomp+ssl://sam@b"]',
    "proxy): the password of probe is sent in plain text": STOMP + PROXY,
    "scratch/spool is below $SLURM_TMPDIR": f'{STOMP}spool = "scratch/spool"',
    "": f'brokers = ["{AMS}"]\ntoken_file = "file"',
}


@pytest.mark.parametrize("note", NOTES)
def test_settings_that_work_but_deserve_attention_are_noted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, note: str
) -> None:
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "scratch"))

    answer = check(toml=NOTES[note])

    assert (answer.code, len(answer.err.splitlines())) == (0, bool(note)), str(answer)
    assert note in answer.err
    assert not Path("state").exists()


def test_an_x509_proxy_is_noted_for_brokers_which_take_none(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    proxy = files.x509_proxy(files.proxy_of(files.client()))
    brokers = ("stomp+ssl://b", "sam+https://door")

    answer = check(toml=f"certificate_file = '{proxy}'\nbrokers = {list(brokers)}")

    assert (answer.code, len(answer.err.splitlines())) == (0, 1), str(answer)
    assert "stomp+ssl://b" in answer.err and "proxy_depth" in answer.err


def connected(*urls: str, options: tuple[str, ...] = (), toml: str = "") -> Answer:
    return check("--connect", *(f"--broker={url}" for url in urls), *options, toml=toml)


def forbids_queues(asked: Asked) -> bytes:
    refused = json_reply(401, {"error": "not_authorised", "reason": "Access refused."})
    return refused if asked.target.startswith("/api/queues") else ROUTED


SERVLET, API = "activemq-rest+http://{}/api/message", "rabbitmq-api+http://{}/%2F/amq.topic"


@pytest.mark.parametrize(
    ("url", "server", "code", "stem"),
    [
        # It confirms the message but never delivers it.
        (SERVLET, lambda a: reply(204) if a.method == "GET" else SENT, 78, "did not deliver it"),
        # A door takes messages, and delivers none.
        (SERVLET, lambda a: reply(405) if a.method == "GET" else SENT, 0, "not read back: an HTTP"),
        (API, forbids_queues, 0, "confirmed, routed to a queue; not read back: 401"),
    ],
)
def test_a_check_message_is_read_back_where_a_publisher_may(
    url: str, server: Callable[[Asked], bytes], code: int, stem: str
) -> None:
    with HttpStandIn(server) as broker:
        url = url.format(f"{HOST}:{broker.port}")
        answer = connected(url, options=("--timeout", "4"))

    assert (answer.code, stem in answer.out + answer.err) == (code, True), str(answer)


def test_a_check_message_goes_to_the_destination_of_results_with_its_own_class() -> None:
    with HttpStandIn(lambda asked: ROUTED) as server:
        url = API.format(f"{HOST}:{server.port}")
        connected(url, options=("--timeout", "0.3"))
        connected(url, options=("--timeout", "0.3", "--destination", "/topic/other"))
        before = len(server.asked)
        refused = connected(toml=f'brokers = ["{url}"]\ndestination = "/topics/x"')

    published = [request.json for request in server.asked if request.target.endswith("/publish")]
    keys = list(dict.fromkeys(document["routing_key"] for document in published))
    assert keys == [TOPIC.removeprefix("/topic/"), "other"]
    assert published[0]["properties"]["headers"]["messageClass"] == "sam-check"
    assert (refused.code, "did you mean /topic/x?" in refused.err) == (78, True)
    assert len(server.asked) == before  # nothing goes where nobody can subscribe


@pytest.mark.parametrize("token", [TOKEN, None])
def test_a_door_says_who_may_send(monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_TOKEN", TOKEN)
    with DoorStandIn(outcome_of=lambda sent: stored(sent, stored="broker"), token=token) as door:
        answer = connected(door.url)

    assert answer.code == 0
    assert "confirmed: stored in the broker" in answer.out
    sent_tokens = [TOKEN in request.headers.get("authorization", "") for request in door.asked]
    assert sent_tokens == [True, False]
    assert ("anybody may publish here" in answer.err) is (token is None)
