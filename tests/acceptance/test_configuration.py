"""The configuration as the commands see it: its place, its variables, `config show`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from tests.support.commands import PROGRAMS, RESULT, Answer, Workplace
from tests.support.page import Page, shell

AS_ANYBODY = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
)
"""Root may read everything, unless it gives these capabilities up."""
SKIPPED = "this location of the configuration is skipped"
SHOW = {
    "sam-publish": "publisher.brokers",
    "sam-consume": "consumer.brokers",
    "sam-db": "database.url",
    "sam-report": "report.profiles",
}
"""A key that `config show` of each program prints."""

Command = Callable[..., Answer]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SAM_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path / "state")}


@pytest.fixture
def command(tmp_path: Path, environment: dict[str, str]) -> Command:
    """Runs an installed program in a directory without sam.toml, after other shell commands."""
    (tmp_path / "here").mkdir()

    def run(program: str, *arguments: str, before: str = ":", **variables: str) -> Answer:
        shell = ["sh", "-c", f'{before} && exec "$@"', "sh"]
        line = [*shell, *AS_ANYBODY, str(PROGRAMS / program), *arguments]
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path / "here",
            env={**environment, **variables},
            check=False,
        )
        return Answer((program, *arguments), done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A directory that this account may not look into."""
    directory = tmp_path / "locked"
    directory.mkdir(mode=0o000)
    yield directory
    directory.chmod(0o700)


def taken(tmp_path: Path) -> int:
    return DirectoryQueue(tmp_path / "broker").count()


@pytest.mark.parametrize("program", [*SHOW, "check_sam_consumer"])
def test_a_home_directory_of_another_account_is_skipped_with_one_warning(
    command: Command, locked: Path, program: str
) -> None:
    show = ("config", "show") if program in SHOW else ()

    answer = command(program, *show, HOME=str(locked), SAM_CONSUMER_BROKERS="spool:///nowhere")

    assert answer.code in (0, 3), str(answer)
    assert "no state of a daemon" in answer.out or program in SHOW
    (line,) = answer.err.splitlines()
    assert f"{locked}/.config/sam/sam.toml: permission denied" in line
    assert SKIPPED in line


def test_a_result_is_published_from_a_home_directory_that_cannot_be_read(
    command: Command, locked: Path, tmp_path: Path
) -> None:
    answer = command(*RESULT, "--broker", f"spool://{tmp_path}/broker", HOME=str(locked))

    assert answer.code == 0, str(answer)
    assert answer.out.startswith("published ")
    assert taken(tmp_path) == 1


@pytest.mark.parametrize("before", ["chmod 0 .", 'rmdir "$PWD"'])
def test_a_plugin_is_published_from_a_directory_that_cannot_be_read_or_was_removed(
    command: Command, tmp_path: Path, before: str
) -> None:
    broker = ("--broker", f"spool://{tmp_path}/broker")

    answer = command("sam-publish", "run", *broker, "--", "sh", "-c", "exit 2", before=before)

    (tmp_path / "here").exists() and (tmp_path / "here").chmod(0o700)
    assert answer.code == 2, str(answer)
    assert answer.err.count(SKIPPED) == 1
    assert "sam.toml" in answer.err
    assert taken(tmp_path) == 1


@pytest.mark.parametrize("variable", ["SAM_PUBLISHER_SPOOL", "XDG_STATE_HOME"])
def test_a_relative_spool_below_a_removed_directory_does_not_lose_the_result(
    command: Command, tmp_path: Path, variable: str
) -> None:
    broker = ("--broker", f"spool://{tmp_path}/broker")
    relative = {"STATE_DIRECTORY": "", variable: "relative"}

    answer = command(*RESULT, *broker, before='rmdir "$PWD"', **relative)

    assert answer.code == 0, str(answer)
    assert "no spool: relative" in answer.err
    assert taken(tmp_path) == 1


@pytest.mark.parametrize("program", SHOW)
@pytest.mark.parametrize("by_option", [True, False])
def test_a_named_configuration_that_cannot_be_read_is_an_error(
    command: Command, locked: Path, program: str, by_option: bool
) -> None:
    named = str(locked / "sam.toml")
    option, variable = (["--config", named], {}) if by_option else ([], {"SAM_CONFIG": named})

    answer = command(program, *option, "config", "show", **variable)

    assert answer.code == 77, str(answer)
    assert answer.err.startswith(f"{program}: error: {named}: permission denied")


@pytest.mark.parametrize("line", ["sam-publish check", "sam-consume check", "sam-db current"])
def test_a_named_configuration_that_cannot_be_read_is_not_checked(
    command: Command, locked: Path, line: str
) -> None:
    answer = command(*line.split(), SAM_CONFIG=str(locked / "sam.toml"))

    assert answer.code == 77, str(answer)
    assert answer.err.count("permission denied") == 1


def test_a_misspelt_variable_is_an_error_and_nothing_is_sent(
    command: Command, tmp_path: Path
) -> None:
    misspelt = {"SAM_PUBLISHER_BROKER": f"spool://{tmp_path}/broker", "SAM_PUBLISHER_CLAS": "x"}

    answer = command(*RESULT, **misspelt)

    assert answer.code == 78, str(answer)
    assert (
        "SAM_PUBLISHER_BROKER: can only be set in the file (did you mean SAM_PUBLISHER_BROKERS?)"
        in answer.err
    )
    assert "SAM_PUBLISHER_CLAS: unknown variable (did you mean SAM_PUBLISHER_CLASS?)" in answer.err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("arguments", [("run", "--drain"), ("check",), ("status",)])
def test_misspelt_variables_of_all_sections_of_the_consumer_are_reported_at_once(
    command: Command, arguments: tuple[str, ...]
) -> None:
    answer = command(
        "sam-consume", *arguments, SAM_CONSUMER_BROKER="x", SAM_DATABASE_URI="sqlite:///x"
    )

    assert answer.code == 78, str(answer)
    assert answer.err.count("did you mean SAM_CONSUMER_BROKERS?") == 1
    assert answer.err.count("did you mean SAM_DATABASE_URL?") == 1


@pytest.mark.parametrize("program", SHOW)
def test_every_program_knows_the_variables_of_the_others_and_refuses_unknown_ones(
    command: Command, program: str
) -> None:
    known = {
        "SAM_DATABASE_URL": "sqlite:////tmp/sam.db",
        "SAM_REPORT_PROFILES": "",
        "SAM_PUBLISHER_PASSWORD": "hidden",
        "SAM_PUBLISHER_PROXY_PASSWORD": "hidden",
        "SAM_CONSUMER_PASSWORD": "hidden",
        "SAM_CONSUMER_BROKERS": "spool:///nowhere",
        "SAM_CONFIG": "",
    }

    good = command(program, "config", "show", **known)
    bad = command(program, "config", "show", SAM_PUBLSHER_BROKERS="x", SAM_SITE="y", **known)

    assert (good.code, good.err) == (0, ""), str(good)
    assert "hidden" not in good.out
    assert bad.code == 78
    assert "SAM_PUBLSHER_BROKERS: unknown variable (did you mean SAM_PUBLISHER_BROKERS?)" in bad.err
    assert "SAM_SITE: unknown variable" in bad.err


def test_a_result_without_any_broker_is_spooled_with_a_hint(
    command: Command, tmp_path: Path
) -> None:
    answer = command(*RESULT)
    quiet = command(*RESULT, "-q")

    assert answer.code == 0
    assert answer.out.startswith("spooled ")
    (hint,) = answer.err.splitlines()
    assert "no broker is configured" in hint
    assert f"no configuration file was found (searched: {tmp_path}/here/sam.toml, " in hint
    assert "/etc/sam/sam.toml" in hint
    assert (quiet.code, quiet.err) == (0, "")


@pytest.mark.parametrize(
    "line", ["sam-publish check", "sam-consume run", "sam-consume check", "sam-db check"]
)
def test_a_missing_key_is_reported_with_the_places_that_were_searched(
    command: Command, tmp_path: Path, line: str
) -> None:
    answer = command(*line.split())

    assert answer.code == 78, str(answer)
    assert " is missing" in answer.err
    assert answer.err.count(f"searched: {tmp_path}/here/sam.toml, ") == 1


def test_config_show_tells_where_each_value_comes_from_and_hides_passwords(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "here" / "sam.toml"
    file.write_text(
        '[publisher]\nuser = "probe"\nbrokers = ["stomp://a:hidden@b"]\ntimeout_s = "x"\n'
        '[consumer]\nname = "site-a"\nbrokers = ["stomp://a:hidden@b"]\n'
        '[[consumer.subscription]]\ndestination = "/topic/a"\n'
        '[report]\nprofiles = ["a.toml"]\n'
    )
    file.chmod(0o600)
    variables = {"SAM_PUBLISHER_TOKEN": "hidden", "SAM_DATABASE_URL": "postgresql://u:hidden@h/sam"}

    answers = {
        program: command(program, "config", "show", "--origin", **variables) for program in SHOW
    }
    options = ("--origin", "--json", "--timeout", "3")
    as_json = command("sam-publish", "config", "show", *options, **variables)

    for program, key in SHOW.items():
        answer = answers[program]
        assert answer.code == (78 if program in ("sam-publish", "sam-consume") else 0), str(answer)
        assert key in answer.out
        assert "hidden" not in answer.out + answer.err
    shown = answers["sam-publish"]
    rows = {row[0]: row[1:] for row in map(str.split, shown.out.splitlines()) if row}
    assert shown.out.startswith(f"configuration file: {file}\n")
    assert rows["publisher.user"] == ["probe", f"{file}:2"]
    assert rows["publisher.brokers"][1] == f"{file}:3"
    assert rows["publisher.timeout_s"] == ["invalid", f"{file}:4"]
    assert rows["publisher.token"] == ["***", "SAM_PUBLISHER_TOKEN"]
    assert rows["publisher.order"] == ["listed", "default"]
    assert rows["publisher.spool"] == [str(tmp_path / "state" / "spool"), "default"]
    assert f"{file}:4: [publisher] timeout_s: expected a number" in shown.err
    assert "consumer.subscription[1].destination  /topic/a" in answers["sam-consume"].out
    assert "SAM_DATABASE_URL" in answers["sam-db"].out
    document = json.loads(as_json.out)
    settings = {item["key"]: item for item in document["settings"]}
    assert document["files"] == [str(file)]
    assert settings["publisher.timeout_s"]["value"] == 3
    assert settings["publisher.timeout_s"]["origin"] == "command line"
    assert {problem.partition(": ")[0] for problem in document["problems"]} == {
        f"{file}:3",
        f"{file}:4",
    }


@pytest.mark.parametrize("program", SHOW)
def test_each_program_reads_the_fragments_and_names_them(
    command: Command, tmp_path: Path, program: str
) -> None:
    fragment = tmp_path / "here" / "conf.d" / "10-all.toml"
    fragment.parent.mkdir()
    fragment.write_text(
        f'[publisher]\nbrokers = ["spool://{tmp_path}/a"]\n[report]\nprofiles = ["a.toml"]\n'
        f'[consumer]\nbrokers = ["spool://{tmp_path}/a"]\n[database]\nurl = "sqlite:///a.db"\n'
    )
    (tmp_path / "here" / "sam.toml").write_text("[publisher]\ntimeout_s = 3\n")

    shown = command(program, "config", "show", "--origin", "--json")
    (tmp_path / "here" / "sam.toml").write_text(fragment.read_text())
    twice = command(program, "config", "show")

    origins = {item["key"]: item["origin"] for item in json.loads(shown.out)["settings"]}
    assert shown.code == 0, str(shown)
    assert origins[SHOW[program]].startswith(f"{fragment}:")
    assert twice.code == 78
    assert twice.err.count(f"{fragment}:2: [publisher] brokers is also set at ") == 1
    assert twice.err.count(" is also set at ") == 4


def test_the_spool_and_the_database_of_a_fragment_are_relative_to_it(
    command: Command, tmp_path: Path
) -> None:
    fragments = tmp_path / "here" / "conf.d"
    fragments.mkdir()
    (tmp_path / "here" / "sam.toml").write_text("")
    (fragments / "a.toml").write_text(
        '[publisher]\nspool = "spool"\n[database]\nurl = "sqlite:///sam.db"\n'
    )

    answers = [
        command("sam-publish", *RESULT[1:]),
        command("sam-db", "upgrade"),
        command("sam-db", "current"),
    ]

    assert [answer.code for answer in answers] == [0, 0, 0], "\n".join(map(str, answers))
    assert DirectoryQueue(fragments / "spool").count() == 1
    assert (fragments / "sam.db").exists()


def test_a_fragment_that_this_account_may_not_read_is_an_error(
    command: Command, tmp_path: Path
) -> None:
    fragments = tmp_path / "here" / "conf.d"
    fragments.mkdir()
    (tmp_path / "here" / "sam.toml").write_text("")
    (fragments / "a.toml").write_text("")
    (fragments / "a.toml").chmod(0o000)

    answer = command(*RESULT)

    assert answer.code == 77, str(answer)
    assert f"{fragments}/a.toml: permission denied" in answer.err


def test_the_page_on_the_configuration_does_what_it_says(tmp_path: Path) -> None:
    page = Page("docs/configuration.md")
    workplace = Workplace(
        tmp_path, broker=f"spool://{tmp_path}/broker", database=f"sqlite:///{tmp_path}/sam.db"
    ).write_configuration()

    answers = [shell(workplace, script) for script in page.texts("sh")]

    assert [answer.code for answer in answers] == [0, 0], "\n".join(map(str, answers))
    for line in page.texts("text")[0].splitlines():
        key, value, origin = line.split()
        shown = rf"^{re.escape(key)} +{value} +{tmp_path}/{origin.removeprefix('/etc/sam/')}$"
        assert re.search(shown, answers[0].out, re.MULTILINE)
    assert page.unused("sh", "text", "toml") == []


def test_a_relay_is_checked_without_a_database(command: Command, tmp_path: Path) -> None:
    source = f"spool://{tmp_path}/in"
    target = tmp_path / "here" / "out"
    target.mkdir(mode=0o500)

    good = command(
        "sam-consume", "check", "--to", f"spool://{tmp_path}/out", SAM_CONSUMER_BROKERS=source
    )
    unusable = command(
        "sam-consume", "check", "--to", f"spool://{target}", SAM_CONSUMER_BROKERS=source
    )
    circular = command("sam-consume", "check", "--to", source, SAM_CONSUMER_BROKERS=source)
    usage = command(
        "sam-consume", "check", "--to", "ams+https://a/v1/projects/p", SAM_CONSUMER_BROKERS=source
    )

    assert (good.code, good.out) == (0, "no problem found\n"), str(good)
    assert unusable.code == 78
    assert str(target) in unusable.err
    assert circular.code == 78
    assert "one of the brokers to read from" in circular.err
    assert usage.code == 64


@pytest.fixture
def with_defaults(tmp_path: Path) -> Path:
    """The queue that results go to, by a configuration with values that they share."""
    queue = tmp_path / "broker"
    (tmp_path / "sam.toml").write_text(
        f'[publisher]\nbrokers = ["spool://{queue}"]\n'
        '[publisher.record]\nsite = "SITE-A"\nvo = "ops"\nflavour = "CE"\nhost = "ce09"\n'
    )
    return queue


def only_body(queue: Path) -> str:
    (name,) = DirectoryQueue(queue).names()
    return DirectoryQueue(queue).read(name).body.decode()


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            "result --metric m --status OK --site OTHER",
            ["siteName: OTHER", "voName: ops", "serviceFlavour: CE", "hostName: ce09"],
        ),
        (
            "run --vo atlas -- true",
            ["siteName: SITE-A", "voName: atlas", "serviceFlavour: CE", "hostName: ce09"],
        ),
        (
            "send record.txt",
            ["siteName: SITE-B", "voName: ops", "serviceFlavour: CE", "hostName: ce01"],
        ),
    ],
)
def test_values_that_results_share_are_configured_once(
    command: Command, tmp_path: Path, with_defaults: Path, arguments: str, lines: list[str]
) -> None:
    (tmp_path / "here" / "record.txt").write_text(
        "metricName: m\nmetricStatus: OK\nhostname: ce01\nSITENAME: SITE-B\nvoName:\n"
        f"timestamp: {format_time(datetime.now(UTC))}\nEOT\n"
    )

    answer = command("sam-publish", "--config", str(tmp_path / "sam.toml"), *arguments.split())

    assert answer.code == 0, str(answer)
    body = only_body(with_defaults)
    assert [line for line in lines if f"{line}\n" not in body] == []


def test_a_result_needs_a_flavour_from_an_option_or_the_configuration(command: Command) -> None:
    answer = command("sam-publish", "result", "--metric", "m", "--status", "OK", "--host", "ce01")

    assert answer.code == 64, str(answer)
    assert "--flavour" in answer.err
    assert "--host" not in answer.err


def test_an_unknown_key_of_shared_values_is_an_error_with_the_nearest_one(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "here" / "sam.toml"
    file.write_text('[publisher]\n[publisher.record]\nflavor = "CE"\nstatus = "OK"\n')

    answer = command(*RESULT)

    assert answer.code == 78, str(answer)
    assert f"{file}:2: [publisher] record: unknown key flavor (did you mean flavour" in answer.err
    assert "unknown key status" in answer.err
