"""What no consumer could load is refused by the sender, with exit code 65 or 78 and a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.stand_in import HOST
from tests.support.commands import RESULT, Workplace, embedded, embedded_workplace
from tests.support.faketime import under
from tests.support.reports.stored import query

BAD_DATA, UNAVAILABLE, CONFIG = 65, 69, 78
RECORD = (
    "hostName: ce02.example.org\nserviceFlavour: CE\nmetricName: org.example.Ping\n"
    "metricStatus: OK\ntimestamp: 2026-11-20T12:00:00Z\n"
)
ENDPOINT = "siteName: S\nhostName: ce01.example.org\nserviceFlavour: CE\n"


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """A workplace whose broker is a spool."""
    return embedded_workplace(tmp_path)


def nothing_stored(workplace: Workplace) -> bool:
    return workplace.spooled("outbox") == workplace.spooled("spool") == 0


@pytest.mark.parametrize(
    ("destination", "hint"),
    [
        ("/topics/grid.probe.metricOutput", "did you mean /topic/grid.probe.metricOutput?"),
        ("topic/grid.x", "did you mean /topic/grid.x?"),
        ("foo", "/topic/NAME"),
        ("/topic/", "its name is empty"),
        ("/topic/site.*", "wildcard"),
    ],
)
def test_a_destination_to_which_nobody_can_subscribe_is_refused_before_anything_is_sent(
    tmp_path: Path, destination: str, hint: str
) -> None:
    with FakeBroker() as broker:
        workplace = Workplace(tmp_path, broker.url, "sqlite:///unused").write_configuration()
        answer = workplace.run(*RESULT, "--destination", destination)

    assert answer.code == BAD_DATA
    assert hint in answer.err
    assert broker.taken == []
    assert workplace.spooled("outbox") == 0


def test_a_configured_destination_to_which_nobody_can_subscribe_is_a_configuration_error(
    workplace: Workplace,
) -> None:
    text = (workplace.directory / "sam.toml").read_text()
    workplace.write("sam.toml", text.replace("[publisher]\n", '[publisher]\ndestination = "foo"\n'))

    answers = [
        workplace.run(*command)
        for command in (RESULT, ("sam-publish", "check"), ("sam-publish", "check", "--connect"))
    ]

    for answer in answers:
        assert answer.code == CONFIG, str(answer)
        assert "did you mean /topic/foo?" in answer.err
    assert nothing_stored(workplace)


def test_publisher_and_consumer_refuse_the_same_destination_in_the_same_words(
    tmp_path: Path,
) -> None:
    workplace = Workplace(tmp_path, "stomp://msg.example.org", "sqlite:///unused")
    workplace = replace(workplace, destination_prefix="/topics/grid.probe").write_configuration()

    published = workplace.run(*RESULT, "--destination", "/topics/grid.probe.metricOutput")
    consumed = workplace.run("sam-consume", "run", "--drain")

    words = (
        "'/topics/grid.probe.metricOutput' is not a destination: expected /topic/NAME or"
        " /queue/NAME (did you mean /topic/grid.probe.metricOutput?)"
    )
    assert (published.code, consumed.code) == (BAD_DATA, CONFIG)
    assert words in published.err
    assert words in consumed.err


def test_results_with_5_mb_of_details_become_rows_with_shortened_details(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    details = "x" * 5_000_000

    answers = [
        workplace.succeed(*RESULT, "--details", "-", stdin=details),
        workplace.succeed("sam-publish", "send", stdin=f"{RECORD}detailsData: {details}\nEOT\n"),
    ]

    workplace.succeed("sam-consume", "run", "--drain")
    rows = query(workplace.database, "SELECT detailsData FROM metricOutput")
    assert len(rows) == 2
    for row in rows:
        assert 4_000_000 < len(row["detailsData"]) < 5_000_000
        assert row["detailsData"].endswith(" bytes were left out here]")
    for answer in answers:
        (line,) = answer.err.splitlines()
        assert "bytes of its details were left out" in line


def test_a_large_result_for_a_servlet_alone_is_shortened_to_what_the_servlet_takes(
    tmp_path: Path,
) -> None:
    with HttpStandIn(lambda _: reply(200, b"Message sent", messageID="1")) as server:
        url = f"activemq-rest+http://{HOST}:{server.port}/api/message"
        workplace = Workplace(tmp_path, url, "sqlite:///unused").write_configuration()
        answer = workplace.succeed(*RESULT, "--details", "-", stdin="a b\n" * 60_000)

    assert "published " in answer.out
    assert "bytes of its details were left out" in answer.err
    (body,) = [asked.form["body"] for asked in server.asked if b"metricStatus" in asked.body]
    assert body.endswith(" bytes were left out here]\nEOT\n")
    assert workplace.spooled("outbox") == 0


@pytest.mark.parametrize("size", [5_000_000, 300_000_000])
def test_raw_bytes_above_the_limit_are_refused_and_never_spooled(
    workplace: Workplace, size: int
) -> None:
    with (workplace.directory / "large").open("wb") as file:
        file.truncate(size)
    small = workplace.write("small", "sky: blue\nEOT\n")

    answer = workplace.run("sam-publish", "send", "--raw", "large", small)

    assert answer.code == BAD_DATA
    assert "large:1: record refused, too-large: " in answer.err
    assert str(size) in answer.err
    assert workplace.spooled("outbox") == 0
    assert workplace.spooled("spool") == 1


def test_40_mb_of_details_are_shortened_while_no_broker_is_there(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path, "stomp://127.0.0.1:1", "sqlite:///unused")
    workplace.write_configuration()

    answer = workplace.succeed(*RESULT, "--details", "-", stdin="x" * 40_000_000)

    assert "spooled " in answer.out
    workplace.succeed("sam-publish", "spool", "verify")
    assert workplace.succeed("sam-publish", "spool", "status", "--json").json["messages"] == 1


def test_what_has_no_details_to_leave_out_is_refused(workplace: Workplace) -> None:
    large = f"{RECORD}performanceData: {'x' * 5_000_000}\nEOT\n"

    answer = workplace.run("sam-publish", "send", stdin=f"{RECORD}EOT\n{large}{RECORD}EOT\n")

    assert answer.code == BAD_DATA
    assert "<stdin>:7: record refused, too-large: " in answer.err
    assert "(metricOutput, 2 records)" in answer.out


def test_records_of_built_in_classes_are_refused_with_file_and_line(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    good = f"{ENDPOINT}validFrom: 2026-01-31\nEOT\n"
    bad = f"{ENDPOINT}EOT\n{ENDPOINT}validFrom: soon\nEOT\n"
    file = workplace.write("endpoints.txt", good + bad)

    answer = workplace.run("sam-publish", "send", "--class", "serviceEndpoint", file)

    assert answer.code == BAD_DATA
    assert "endpoints.txt:6: record refused, missing-key: serviceEndpoint needs validFrom" in (
        answer.err
    )
    assert "endpoints.txt:10: record refused, bad-time: validFrom" in answer.err
    workplace.succeed("sam-consume", "run", "--drain")
    [row] = query(workplace.database, "SELECT validFrom FROM serviceEndpoint")
    assert str(row["validFrom"]).startswith("2026-01-31")


def test_a_result_of_a_clock_that_was_never_set_is_not_confirmed(workplace: Workplace) -> None:
    unset = under("1970-01-02 00:00:00", workplace)

    answers = [
        unset.run(*RESULT),
        unset.run("sam-publish", "send", stdin="hostName: ce01\nEOT\n"),
    ]

    for answer in answers:
        assert answer.code == UNAVAILABLE, str(answer)
        assert "the clock of this host shows 1970-01-0" in answer.err
    assert nothing_stored(workplace)


@pytest.mark.parametrize("timestamp", ["2038-01-19T03:14:07Z", "1970-01-01T00:00:00Z"])
def test_a_timestamp_that_consumers_refuse_is_refused(workplace: Workplace, timestamp: str) -> None:
    answer = workplace.run(*RESULT, "--timestamp", timestamp)

    assert answer.code == BAD_DATA
    assert timestamp in answer.err
    assert nothing_stored(workplace)


def test_an_element_to_where_nobody_can_subscribe_is_set_aside_with_the_reason(
    tmp_path: Path,
) -> None:
    with FakeBroker() as broker:
        workplace = Workplace(tmp_path, broker.url, "sqlite:///unused").write_configuration()
        spooling = ("--broker", f"spool://{tmp_path / 'outbox'}")
        workplace.succeed(*RESULT, *spooling)
        (element,) = (tmp_path / "outbox").glob("*/*")
        wrong = element.read_text().replace('"/topic/', '"/topics/')
        workplace.write(f"outbox/{element.parent.name}/{element.name[:-1]}f", wrong)

        answer = workplace.run("sam-publish", "spool", "drain")

    assert answer.code == BAD_DATA
    assert len(broker.taken) == 1
    assert "did you mean /topic/grid.probe.metricOutput?" in answer.err
    assert workplace.spooled("outbox") == 0
    (reason,) = (tmp_path / "outbox.bad").glob("*.reason")
    assert "/topics/grid.probe.metricOutput" in reason.read_text()
