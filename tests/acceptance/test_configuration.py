"""The configuration as the commands see it: its place, its variables, `config`.

For the reading of files and variables see tests/unit/schema/settings.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from tests.support.commands import PROGRAMS, RESULT, Answer
from tests.support.invoke import invoke

AS_ANYBODY = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
)
"""Root may read everything, unless it gives these capabilities up."""
SKIPPED = "this location of the configuration is skipped"
NO_PERMISSION, CONFIG = 77, 78
SHOW = {
    "sam-publish": "publisher.brokers",
    "sam-consume": "consumer.brokers",
    "sam-db": "database.url",
    "sam-report": "report.profiles",
}
"""A key that `config` of each program prints."""

Command = Callable[..., Answer]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The working directory, without a sam.toml."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SAM_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path / "state")}


@pytest.fixture
def command(here: Path, environment: dict[str, str]) -> Command:
    """Runs a program in this process."""

    def run(program: str, *arguments: str, **variables: str) -> Answer:
        return invoke(program, *arguments, cwd=here, env={**environment, **variables})

    return run


@pytest.fixture
def process(here: Path, environment: dict[str, str]) -> Command:
    """Runs a program without the privileges of root, after other shell commands."""

    def run(program: str, *arguments: str, before: str = ":", **variables: str) -> Answer:
        shell = ["sh", "-c", f'{before} && exec "$@"', "sh"]
        done = subprocess.run(
            [*shell, *AS_ANYBODY, str(PROGRAMS / program), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=here,
            env={**environment, **variables},
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


def test_a_home_directory_that_cannot_be_read_is_skipped_with_one_warning(
    process: Command, locked: Path, tmp_path: Path
) -> None:
    published = process(*RESULT, "--broker", f"spool://{tmp_path}/broker", HOME=str(locked))
    plugin = process("check_sam_consumer", HOME=str(locked))

    assert (published.code, taken(tmp_path)) == (0, 1), str(published)
    assert plugin.code == 3, str(plugin)
    for answer in (published, plugin):
        (line,) = answer.err.splitlines()
        assert f"{locked}/.config/sam/sam.toml: permission denied" in line
        assert SKIPPED in line


def test_results_are_published_from_a_directory_that_was_removed(
    process: Command, tmp_path: Path
) -> None:
    broker = ("--broker", f"spool://{tmp_path}/broker")
    relative = {"STATE_DIRECTORY": "", "SAM_PUBLISHER_SPOOL": "relative"}
    removed = 'mkdir x && cd x && rmdir "$PWD"'

    plugin = process("sam-publish", "run", *broker, "--", "sh", "-c", "exit 2", before=removed)
    result = process(*RESULT, *broker, before=removed, **relative)

    assert (plugin.code, plugin.err.count(SKIPPED)) == (2, 1), str(plugin)
    assert (result.code, "no spool: relative" in result.err) == (0, True), str(result)
    assert taken(tmp_path) == 2


def test_a_named_file_or_fragment_that_cannot_be_read_is_an_error(
    process: Command, locked: Path, here: Path
) -> None:
    named = str(locked / "sam.toml")
    answers = [
        process("sam-db", "--config", named, "config"),
        process("sam-consume", "check", SAM_CONFIG=named),
        process(*RESULT, SAM_CONFIG=named),
    ]
    (here / "sam.toml").touch()
    (here / "conf.d").mkdir()
    (here / "conf.d" / "a.toml").touch(0o000)
    answers.append(process(*RESULT))

    for answer, file in zip(answers, [named] * 3 + [f"{here}/conf.d/a.toml"], strict=True):
        assert answer.code == NO_PERMISSION, str(answer)
        assert f"{file}: permission denied" in answer.err


@pytest.mark.parametrize("program", SHOW)
def test_config_show_has_the_origin_of_each_value_and_hides_passwords(
    command: Command, tmp_path: Path, here: Path, program: str
) -> None:
    file, fragment = here / "sam.toml", here / "conf.d" / "10-all.toml"
    fragment.parent.mkdir()
    fragment.write_text(
        f'[publisher]\nbrokers = ["spool://{tmp_path}/a"]\n[report]\nprofiles = ["a.toml"]\n'
        f'[consumer]\nbrokers = ["spool://{tmp_path}/a"]\n'
        '[database]\nurl = "postgresql://u:hidden@h/sam"\n'
    )
    fragment.chmod(0o600)
    file.write_text('[publisher]\ntimeout = "3s"\n')
    file.chmod(0o600)
    names = ("SAM_PUBLISHER_PASSWORD", "SAM_PUBLISHER_TOKEN", "SAM_CONSUMER_PASSWORD")
    known = dict.fromkeys(names, "hidden")

    shown = command(program, "config", "--origin", "--json", **known)
    foreign = {"SAM_EXPERIMENT": "nova", "SAM_CLI_TELEMETRY": "0", "SAM_GROUP": "nova"}
    near = command(program, "config", SAM_PUBLSHER_BROKERS="x", **foreign, **known)
    file.write_text(fragment.read_text())
    twice = command(program, "config")

    assert shown.code == 0, str(shown)
    assert "hidden" not in f"{shown}{near}{twice}"
    origins = {item["key"]: item["origin"] for item in shown.json["settings"]}
    assert origins[SHOW[program]].startswith(f"{fragment}:")
    assert (near.code, "SAM_PUBLISHER_BROKERS" in near.err) == (0, "publish" in program)
    assert not [name for name in foreign if name in near.err]
    assert (twice.code, twice.err.count(" is also set at ")) == (CONFIG, 4)


@pytest.mark.parametrize(
    ("line", "site", "vo", "host"),
    [
        ("result --metric m --status OK --site OTHER", "OTHER", "ops", "ce09"),
        ("run --vo atlas -- true", "SITE-A", "atlas", "ce09"),
        ("send record.txt", "SITE-B", "ops", "ce01"),
    ],
)
def test_values_that_results_share_are_configured_once(
    command: Command, tmp_path: Path, here: Path, line: str, site: str, vo: str, host: str
) -> None:
    (here / "sam.toml").write_text(
        f'[publisher]\nbrokers = ["spool://{tmp_path}/broker"]\n'
        '[publisher.record]\nsite = "SITE-A"\nvo = "ops"\nflavour = "CE"\nhost = "ce09"\n'
    )
    (here / "record.txt").write_text(
        "metricName: m\nmetricStatus: OK\nhostname: ce01\nSITENAME: SITE-B\nvoName:\n"
        f"timestamp: {format_time(datetime.now(UTC))}\nEOT\n"
    )

    answer = command("sam-publish", *line.split())

    assert answer.code == 0, str(answer)
    queue = DirectoryQueue(tmp_path / "broker")
    [body] = [queue.read(name).body.decode() for name in queue.names()]
    wanted = f"siteName: {site}\nvoName: {vo}\nserviceFlavour: CE\nhostName: {host}".splitlines()
    assert [text for text in wanted if f"{text}\n" not in body] == []
    (here / "sam.toml").write_text('[publisher]\nrecord.flavor = "x"')
    answer = command("sam-publish", *line.split())
    assert "did you mean flavour" in answer.err, str(answer)
