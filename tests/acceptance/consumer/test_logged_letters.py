"""The log of the consumer tells of dead letters and broken classes, and counts what was there."""

from __future__ import annotations

from pathlib import Path

from sam_pipeline.schema.messages.message import new_message
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.builders import metric_message, metric_result
from tests.support.commands import Workplace, embedded
from tests.support.consumer.site import eventually, fill_spool
from tests.support.reports.stored import execute

BAD_DATA = 65


def test_thousands_of_messages_of_garbage_are_one_or_two_lines_in_the_log(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    spool = tmp_path / "spool"
    fill_spool(spool, [new_message("metricOutput", f"garbage {n}") for n in range(3000)])

    drained = workplace.run("sam-consume", "run", "--drain")

    assert drained.code == BAD_DATA, str(drained)
    lines = [line for line in drained.err.splitlines() if " WARNING " in line]
    assert 1 <= len(lines) <= 3, drained.err  # flood and one reason, in a minute or two
    assert all(f"spool://{spool}" in line and "metricOutput" in line for line in lines)


def test_the_drain_counts_rows_duplicates_and_dead_letters_apart(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    good, bad = metric_result(), metric_result(metricStatus="FINE")
    fill_spool(tmp_path / "spool", [metric_message(good, bad), *[metric_message(good)] * 3])

    drained = workplace.run("sam-consume", "run", "--drain")

    assert drained.code == BAD_DATA
    assert "1 row, 3 duplicates, 1 dead letter (bad-status: 1)" in drained.out


def test_a_dead_letter_names_the_broker_it_came_from_and_the_login_of_its_sender(
    tmp_path: Path,
) -> None:
    workplace = embedded(tmp_path)
    spool = tmp_path / "spool"
    fill_spool(spool, [new_message("metricOutput", "garbage", headers={"JMSXUserID": "probe"})])
    workplace.run("sam-consume", "run", "--drain")

    [letter] = workplace.run("sam-consume", "dead-letter", "list", "--json").json
    table = workplace.run("sam-consume", "dead-letter", "list").out
    shown = workplace.run("sam-consume", "dead-letter", "show", str(letter["dead_letter_id"])).out

    assert (letter["broker"], letter["login"]) == (f"spool://{spool}", "probe")
    assert f"spool://{spool} as probe" in table
    assert f"broker: spool://{spool}\nlogin: probe\n" in shown


def test_a_broken_class_is_an_error_in_the_log_and_a_line_tells_when_it_works_again(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    workplace = Workplace(
        tmp_path, broker=f"spool://{tmp_path}/spool", database=fresh_database(postgres)
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    execute(workplace.database, "REVOKE INSERT ON metricOutput FROM sam_loader")
    log = tmp_path / "running.log"
    with workplace.running("sam-consume", "run"):
        fill_spool(tmp_path / "spool", [metric_message(), metric_message()])
        eventually(lambda: " ERROR " in log.read_text())
        execute(workplace.database, "GRANT INSERT ON metricOutput TO sam_loader")
        eventually(lambda: "works again" in log.read_text())

    [error] = [line for line in log.read_text().splitlines() if " ERROR " in line]
    assert "class metricOutput is broken: metricoutput: 42501: permission denied" in error
