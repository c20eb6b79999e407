"""`sam-db import` on an SQLite file: its arguments, output and errors."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    INTERRUPTED,
    NO_INPUT,
    NO_PERMISSION,
    OK,
    USAGE,
)
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.records.classes import DOWNTIME, SITE_GROUP
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.checkpoint import NOT_RESUMABLE
from sam_pipeline.sql.imports.records import content_id, limits_of_history
from sam_pipeline.sql.imports.table import read_header
from tests.support.builders import NOW, metric_result
from tests.support.database.sam_db import Output, refusal

GROUPS = "siteName,groupName,groupType,validFrom\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_database: Path) -> Path:
    """The working directory of the commands, with a database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAM_DATABASE_URL", f"sqlite:///{tmp_path}/sam.db")
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}/state")
    shutil.copy(empty_database, tmp_path)
    return tmp_path


def count(view: str) -> int:
    with closing(sqlite3.connect("sam.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {view}").fetchone()[0])


def write(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def results(*hosts: str, **changes: str) -> str:
    return "".join(write_wlcg(metric_result(hostName=host, **changes)) for host in hosts)


def test_records_of_several_files_and_forms_become_rows(capsys: Output) -> None:
    text = write("a.txt", results("a", "b"))
    packed = write("b.gz", gzip.compress(json.dumps([metric_result(hostName="c")]).encode()))

    assert main(["import", "records", text, packed]) == OK

    out = capsys.readouterr().out
    assert out.startswith("3 records: 3 rows, 0 duplicates, 0 refused, 0 new dead letters; ")
    assert count("metricOutput") == 3


def test_the_summary_is_one_object_in_json(capsys: Output) -> None:
    file = write("a.txt", results("a", "b", colour="blue") + results("c", metricStatus="FINE"))

    assert main(["import", "records", "--json", file]) == BAD_DATA

    answer = json.loads(capsys.readouterr().out)
    assert answer.pop("seconds") >= 0
    assert answer == {
        "files": ["a.txt"],
        "records": 3,
        "rows": 2,
        "duplicates": 0,
        "refused": 1,
        "resumed": 0,
        "dead_letters": {"bad-status": 1},
        "ignored_keys": {"colour": 2},
        "dry_run": False,
        "problems": [],
    }


def test_a_repeat_counts_bad_records_and_makes_no_second_dead_letter(capsys: Output) -> None:
    file = write("a.txt", results("a") + results("b", metricStatus="FINE"))
    main(["import", "records", file])

    assert main(["import", "records", file]) == BAD_DATA

    assert "1 refused, 0 new dead letters" in capsys.readouterr().out
    assert count("dead_letter") == 1


def test_the_same_record_in_another_file_is_the_same_dead_letter() -> None:
    bad = results("b", metricStatus="FINE")

    main(["import", "records", write("a.txt", bad)])
    main(["import", "records", write("b.txt.gz", gzip.compress(f"{results('a')}\n{bad}".encode()))])

    assert (count("metricOutput"), count("dead_letter")) == (1, 1)


def test_a_dry_run_lists_bad_records_and_writes_nothing(place: Path, capsys: Output) -> None:
    file = write("a.txt", results("a") + results("b", metricStatus="FINE"))

    assert main(["import", "records", "--dry-run", file]) == BAD_DATA

    problem, summary = capsys.readouterr().out.splitlines()
    assert problem.startswith("a.txt:11: bad-status: metricStatus 'FINE'")
    assert summary.startswith("2 records: 1 row would be stored")
    assert (count("metricOutput"), count("dead_letter")) == (0, 0)
    assert not (place / "state").exists()


def test_standard_input_is_imported(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    with open(write("a.txt", results("a"))) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)

        assert main(["import", "records", "-"]) == OK

    assert count("metricOutput") == 1


def test_a_named_pipe_is_opened_once() -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_text(results("a")))
    writer.start()

    assert main(["import", "records", "pipe"]) == OK

    writer.join()
    assert count("metricOutput") == 1


def test_a_file_that_is_named_twice_is_imported_once(capsys: Output) -> None:
    file = write("a.txt", results("a"))

    assert main(["import", "records", file, file]) == OK

    assert capsys.readouterr().out.startswith("1 record: 1 row, 0 duplicates")


def test_an_interrupted_import_says_that_it_can_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    file = write("a.txt", results("a"))
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "show", interrupt)
        assert main(["import", "records", file]) == INTERRUPTED
    assert "interrupted: 1 record imported" in capsys.readouterr().err

    assert main(["import", "records", "--json", file]) == OK

    answer = json.loads(capsys.readouterr().out)
    assert (answer["records"], answer["rows"], answer["resumed"]) == (1, 1, 1)


def test_a_missing_file_is_reported_before_any_is_imported(capsys: Output) -> None:
    assert main(["import", "records", write("a.txt", results("a")), "b.txt"]) == NO_INPUT

    assert "b.txt: no such file or directory; no file was imported" in capsys.readouterr().err
    assert count("metricOutput") == 0


def test_an_unreadable_file_has_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # root may read everything
    monkeypatch.setattr("sam_pipeline.schema.records.input_file.open", refuse, raising=False)

    assert main(["import", "records", "a.txt"]) == NO_PERMISSION
    assert main(["import", "csv", "--class", "siteGroup", "a.csv"]) == NO_PERMISSION

    assert "a.txt: permission denied" in capsys.readouterr().err


def test_a_truncated_gzip_is_reported_and_imported_up_to_its_end(capsys: Output) -> None:
    packed = gzip.compress(results(*(f"ce{number}" for number in range(5000))).encode())
    file = write("a.gz", packed[: len(packed) // 2])

    assert main(["import", "records", file, "--json"]) == BAD_DATA

    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert problem.startswith("a.gz: the gzip data are")
    assert 0 < count("metricOutput") < 5000
    assert count("dead_letter") == 0


def test_history_is_accepted_and_the_future_is_not(capsys: Output) -> None:
    old = results("a", timestamp="2004-02-29T12:00:00Z")
    wrong = results("b", timestamp="1999-12-31T12:00:00Z", metricStatus="OK")
    ahead = results("c", timestamp="2999-01-01T00:00:00Z")

    main(["import", "records", "--json", write("a.txt", old + wrong + ahead)])

    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"] == 1
    assert answer["dead_letters"] == {"too-old": 1, "in-the-future": 1}


def test_the_age_can_be_limited() -> None:
    file = write("a.txt", results("a", timestamp="2004-02-29T12:00:00Z"))

    assert main(["import", "records", "--age-limit", "1000", file]) == BAD_DATA

    assert limits_of_history(NOW, timedelta(days=1000)).past == timedelta(days=1000)


def test_an_unknown_class_makes_no_dead_letters() -> None:
    file = write("a.txt", results("a"))

    assert main(["import", "records", "--class", "metricOutptu", file]) == USAGE

    assert count("dead_letter") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["records"],
        ["records", "--age-limit", "-3", "a.txt"],
        ["csv", "a.csv"],
        ["csv", "--class", "metricOutput", "a.csv"],
        ["csv", "--class", "siteGroup", "--delimiter", "::", "a.csv"],
        [],
    ],
)
def test_bad_options_are_refused(arguments: list[str], capsys: Output) -> None:
    assert "error: " in refusal(capsys, "import", *arguments)


def test_an_unusable_state_directory_does_not_stop_an_import(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/dev/null/state")

    assert main(["import", "records", write("a.txt", results("a"))]) == OK

    assert NOT_RESUMABLE in capsys.readouterr().err
    assert count("metricOutput") == 1


def test_an_id_depends_only_on_class_and_record() -> None:
    assert content_id("metricOutput", b"a\n") == content_id("METRICOUTPUT", b"\na")
    assert content_id("metricOutput", b"a") != content_id("metricOutput", b"b")
    assert content_id("metricOutput", b"a") != content_id("downtime", b"a")


def test_a_table_becomes_rows(capsys: Output) -> None:
    lines = 'A,"North, ""upper""\nand lower",federation,2026-11-01\n'
    header = GROUPS.replace("siteName", "\ufeffSITENAME")
    file = write("g.csv", header + lines.replace("2026-11-01", "2026-11-01T00:00:00Z"))

    assert main(["import", "csv", "--class", "SITEGROUP", file]) == BAD_DATA
    assert "g.csv:2: control-character: groupName" in capsys.readouterr().err
    write("g.csv", header + 'A,"North, ""upper""",federation,2026-11-01T00:00:00Z\n')
    assert main(["import", "csv", "--class", "SITEGROUP", file]) == OK

    assert capsys.readouterr().out == "g.csv: 1 line: 1 row, 0 duplicates\n"
    with closing(sqlite3.connect("sam.db")) as connection:
        assert connection.execute("SELECT siteName, groupName FROM siteGroup").fetchall() == [
            ("A", 'North, "upper"')
        ]


BAD_TABLE = (
    GROUPS
    + "A,North,federation,2026-11-01T00:00:00Z\n"
    + "\n"
    + "B,North,federation\n"
    + 'C,"no"rth,federation,2026-11-01T00:00:00Z\n'
    + "D,North,federation,yesterday\n"
    + "E,,federation,2026-11-01T00:00:00Z\n"
)


def test_all_bad_lines_are_listed_and_nothing_is_loaded(capsys: Output) -> None:
    file = write("g.csv", BAD_TABLE.encode() + b"F,\xff,federation,2026-11-01T00:00:00Z\n")

    assert main(["import", "csv", "--class", "siteGroup", file, "--json"]) == BAD_DATA

    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert [bad["line"] for bad in answer["bad"]] == [4, 5, 6, 7, 8]
    assert re.findall(r"^sam-db: error: g.csv:(\d+): ", captured.err, re.MULTILINE) == [*"45678"]
    assert (answer["lines"], answer["rows"], count("siteGroup")) == (6, 0, 0)
    assert "not in UTF-8" in captured.err


def test_keep_going_loads_the_good_lines(capsys: Output) -> None:
    file = write("g.csv", BAD_TABLE)

    assert main(["import", "csv", "--class", "siteGroup", "--keep-going", file]) == BAD_DATA

    assert capsys.readouterr().out == "g.csv: 4 of 5 lines are bad; 1 row, 0 duplicates\n"
    assert (count("siteGroup"), count("dead_letter")) == (1, 0)


@pytest.mark.parametrize(("delimiter", "sign"), [(";", ";"), ("tab", "\t")])
def test_other_delimiters_are_accepted(delimiter: str, sign: str) -> None:
    table = (GROUPS + "A,North,federation,2026-11-01T00:00:00Z\n").replace(",", sign)

    arguments = ["--class", "siteGroup", "--delimiter", delimiter, write("g.csv", table)]
    assert main(["import", "csv", *arguments]) == OK

    assert count("siteGroup") == 1


def test_all_problems_of_a_header_are_reported() -> None:
    with pytest.raises(BadInput) as caught:
        read_header(["sitename", "group_name", "SITENAME", "x"], SITE_GROUP, "g.csv", ",")

    lines = [line.split(": ", 2)[2] for line in str(caught.value).splitlines()]
    columns = "siteName, groupName, groupType, weight, validFrom, validTo"
    assert lines == [
        "unknown column 'group_name'; did you mean groupName?",
        f"unknown column 'x'; the columns are {columns}",
        "column siteName is repeated",
        "missing: groupName, groupType, validFrom",
        "nothing was imported",
    ]


def test_a_header_of_one_column_hints_at_the_delimiter() -> None:
    with pytest.raises(BadInput, match="see --delimiter"):
        read_header(["siteName;groupName"], SITE_GROUP, "g.csv", ",")


def test_a_downtime_needs_a_host_or_a_site() -> None:
    header = ["startTime", "endTime", "classification", "severity"]

    with pytest.raises(BadInput, match="missing: hostName or siteName"):
        read_header(header, DOWNTIME, "d.csv", ",")

    assert read_header([*header, "siteName"], DOWNTIME, "d.csv", ",")[-1] == "siteName"


def test_an_empty_table_is_refused(capsys: Output) -> None:
    assert main(["import", "csv", "--class", "siteGroup", write("g.csv", "")]) == BAD_DATA

    assert "missing: siteName, groupName, groupType, validFrom" in capsys.readouterr().err


def test_a_table_is_read_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.write(writer, (GROUPS + "A,North,federation,2026-11-01T00:00:00Z\n").encode())
    os.close(writer)
    with open(reader) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)

        assert main(["import", "csv", "--class", "siteGroup", "-"]) == OK

    assert count("siteGroup") == 1


def test_contacts_of_sites_are_imported_as_records_and_as_a_table() -> None:
    records = write("c.txt", "siteName: A\ncontact: Ann\ntimestamp: 2026-11-01T00:00:00Z\nEOT\n")
    table = write("c.csv", "siteName,contact,timestamp\nA,Bob,2026-11-02T00:00:00Z\n")

    assert main(["import", "records", "--class", "siteContact", records]) == OK
    assert main(["import", "csv", "--class", "siteContact", table]) == OK

    with closing(sqlite3.connect("sam.db")) as connection:
        rows = connection.execute("SELECT site, contact FROM report_site_contact").fetchall()
    assert rows == [("A", "Bob")]
