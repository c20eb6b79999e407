"""sam.toml, the environment and flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.settings import files, section
from sam_pipeline.schema.settings.reader import fields_of
from sam_pipeline.spark_jobs.config import ReportConfig
from sam_pipeline.sql.database.config import DatabaseConfig
from tests.services import PRIVILEGED, missing


@dataclass(frozen=True)
class Part:
    destination: str
    message_class: str | None = field(default=None, metadata={"key": "class"})


@dataclass(frozen=True)
class Settings:
    name: str
    brokers: tuple[str, ...] = ()
    timeout_s: float = field(
        default=10.0, metadata={"check": lambda value: None if value > 0 else "must be positive"}
    )
    spool: Path | None = None
    subscription: tuple[Part, ...] = ()
    words: dict[str, str] = field(default_factory=dict)
    eager: bool = False


def load(path: Path | None = None, env: dict[str, str] | None = None, **flags: object) -> Settings:
    environ = {"HOME": "/nowhere", **(env or {})}
    return section.load(Settings, "consumer", str(path) if path else None, environ, **flags)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sam.toml"
    path.write_text(
        '[consumer]\nname = "a"\nbrokers = ["x", "y"]\nspool = "in/spool"\n'
        '[[consumer.subscription]]\ndestination = "/topic/x"\nclass = "metricOutput"\n'
    )
    return path


def test_the_file_gives_values_and_relative_paths_are_relative_to_it(file: Path) -> None:
    settings = load(file)

    assert settings.brokers == ("x", "y")
    assert settings.spool == file.parent / "in" / "spool"
    assert settings.subscription == (Part("/topic/x", "metricOutput"),)
    assert settings.timeout_s == 10.0


def test_a_flag_overrides_the_environment_which_overrides_the_file(file: Path) -> None:
    env = {"SAM_CONSUMER_NAME": "b", "SAM_CONSUMER_BROKERS": "p, q", "SAM_CONSUMER_EAGER": "yes"}

    assert load(file, env).name == "b"
    assert load(file, env).brokers == ("p", "q")
    assert load(file, env).eager is True
    assert load(file, env, name="c", brokers=None).name == "c"


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sam.toml"
    path.write_text(
        "[consumr]\n[consumer]\nbroker = 1\ntimeout_s = -1\nspool = 7\n[[consumer.subscription]]\n"
    )

    with pytest.raises(ConfigError) as caught:
        load(path, {"SAM_CONSUMER_EAGER": "perhaps"})

    problems = "\n".join(caught.value.problems)
    assert "unknown section [consumr] (did you mean consumer?)" in problems
    assert "unknown key broker (did you mean brokers?)" in problems
    assert "timeout_s: must be positive" in problems
    assert "spool: expected a path, not 7" in problems
    assert "destination is missing" in problems
    assert "SAM_CONSUMER_EAGER: expected true or false" in problems
    assert "name is missing" in problems
    assert str(path) in problems


def test_a_named_file_must_exist_but_no_file_is_needed(tmp_path: Path) -> None:
    assert load(env={"SAM_CONSUMER_NAME": "a"}).name == "a"
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(env={"SAM_CONFIG": str(tmp_path / "none.toml")})


def test_a_named_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a regular file") as caught:
        load(tmp_path)

    assert caught.value.exit_code == 78


def test_a_default_file_that_cannot_be_read_is_skipped_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sam.toml").mkdir()
    file = tmp_path / "home" / ".config" / "sam" / "sam.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[consumer]\nname = "a"\n')
    environ = {"HOME": str(tmp_path / "home")}

    found = [files.find_file(None, environ) for _ in range(2)]

    assert found == [file, file]
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path}/sam.toml: not a regular file")


def test_a_working_directory_that_was_removed_is_skipped_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "_skipped", set())
    directory = tmp_path / "removed"
    directory.mkdir()
    monkeypatch.chdir(directory)
    directory.rmdir()

    assert load(env={"SAM_CONSUMER_NAME": "a"}).name == "a"
    assert [line.partition(":")[0] for line in caplog.messages] == ["./sam.toml"]


def test_a_home_directory_that_is_not_a_directory_has_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)

    assert load(env={"SAM_CONSUMER_NAME": "a", "HOME": "/dev/null"}).name == "a"
    assert caplog.messages == []


def test_a_missing_key_is_reported_with_the_places_that_were_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    file.write_text("[consumer]\n")

    with pytest.raises(ConfigError) as without_file:
        load(env={"XDG_CONFIG_HOME": "/x"})
    with pytest.raises(ConfigError) as with_file:
        load(file)

    missing, searched = without_file.value.problems
    assert missing == "[consumer] name is missing"
    assert f"{elsewhere}/sam.toml, /x/sam/sam.toml, /etc/sam/sam.toml" in searched
    assert len(with_file.value.problems) == 1


def test_unknown_variables_are_problems_that_name_the_nearest_one() -> None:
    env = {
        "SAM_CONSUMER_NAM": "a",
        "SAM_CONSUMER_NAME": "a",
        "SAM_DATABASE_URI": "x",
        "SAM_PUBLSHER_SPOOL": "x",
        "SAM_0123456789": "",
        "SAMPLE": "x",
        "SAM_PUBLISHER_ANYTHING": "checked by the publisher",
        "SAM_CONSUMER_PASSWORD": "secret",
    }

    with pytest.raises(ConfigError) as caught:
        load(env=env)

    assert caught.value.problems == (
        "SAM_CONSUMER_NAM: unknown variable (did you mean SAM_CONSUMER_NAME?)",
        "SAM_DATABASE_URI: unknown variable (did you mean SAM_DATABASE_URL?)",
        "SAM_PUBLSHER_SPOOL: unknown variable (did you mean SAM_PUBLISHER_SPOOL?)",
        "SAM_0123456789: unknown variable: names with SAM_ are reserved",
    )


def test_every_variable_of_the_small_sections_is_known_to_all_programs() -> None:
    sections = {"database": DatabaseConfig, "report": ReportConfig}
    variables = {
        f"SAM_{section}_{field.key}".upper()
        for section, config_class in sections.items()
        for field in fields_of(config_class)
    }

    assert load(env={"SAM_CONSUMER_NAME": "a", **dict.fromkeys(variables, "x")}).name == "a"


def test_a_path_below_an_unknown_home_directory_is_a_problem(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('[consumer]\nname = "a"\nspool = "~nobody-of-this-name/spool"\n')

    with pytest.raises(ConfigError, match=r"sam\.toml:3: .* home directory is unknown"):
        load(file)


def test_a_file_that_is_not_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "sam.toml"
    path.write_text("[consumer\n")

    with pytest.raises(ConfigError, match=r"sam\.toml:1: Expected"):
        load(path)


def test_each_problem_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "sam.toml"
    path.write_text(
        "# timeout_s = 1\n[publisher]\ntimeout_s = 2\n\n[consumr] # typo\n"
        '[consumer]\nbrokers = [\n  "timeout_s = 3",\n]\nname = 1\n  "timeout_s"  = -1\n'
        "broker = 4\n"
        '[[consumer.subscription]]\ndestination = "/topic/a"\n'
        "[[consumer.subscription]]\ndestination = 7\nclas = 1\n"
    )

    with pytest.raises(ConfigError) as caught:
        load(path, {"SAM_CONSUMER_SPOOL": ""}, spool=None)

    assert sorted(caught.value.problems) == [
        f"{path}:10: [consumer] name: expected a string, not 1",
        f"{path}:11: [consumer] timeout_s: must be positive",
        f"{path}:12: [consumer] unknown key broker (did you mean brokers?)",
        f"{path}:16: [consumer] subscription[2] destination: expected a string, not 7",
        f"{path}:17: [consumer] subscription[2] unknown key clas (did you mean class?)",
        f"{path}:5: unknown section [consumr] (did you mean consumer?)",
    ]


def test_a_problem_of_a_variable_or_an_option_names_it_and_not_the_file(file: Path) -> None:
    with pytest.raises(ConfigError) as of_variable:
        load(file, {"SAM_CONSUMER_TIMEOUT_S": "-2"})
    with pytest.raises(ConfigError) as of_option:
        load(file, {"SAM_CONSUMER_TIMEOUT_S": "2"}, timeout_s=-3.0)

    assert of_variable.value.problems == ("SAM_CONSUMER_TIMEOUT_S: must be positive",)
    assert of_option.value.problems == ("command line: timeout_s: must be positive",)


def test_valid_values_can_be_read_despite_invalid_ones(file: Path) -> None:
    file.write_text(file.read_text().replace('"a"', "7", 1))

    examined = section.examine(Settings, "consumer", str(file), {"SAM_CONSUMER_EAGER": "yes"})

    assert examined.problems == (f"{file}:2: [consumer] name: expected a string, not 7",)
    assert examined.bad == {"name"}
    assert examined.values["brokers"] == ("x", "y")
    assert examined.locate("brokers") == f"{file}:3: [consumer] brokers"
    assert examined.locate("eager") == "SAM_CONSUMER_EAGER"
    assert examined.locate("timeout_s") == f"{file}:1: [consumer] timeout_s"


def test_the_state_directory_is_that_of_systemd_or_xdg() -> None:
    assert files.state_dir({"STATE_DIRECTORY": "/a:/b"}) == Path("/a")
    assert files.state_dir({"XDG_STATE_HOME": "/x"}) == Path("/x/sam")
    assert files.state_dir({"HOME": "/h"}) == Path("/h/.local/state/sam")


@pytest.mark.parametrize(
    "text", ['words = { a = "b" }', 'words.a = "b"', '[consumer.words]\na = "b"']
)
def test_a_table_of_texts_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sam.toml"
    path.write_text(f'[consumer]\nname = "a"\n{text}\n')

    assert load(path).words == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "stem"),
    [
        ('words = "a"', "expected a table of strings, not 'a'"),
        (
            'words = { a = 1, b = "c", d = [] }',
            "expected a string for each name, not a = 1, d = []",
        ),
        ("words.a = 1", "expected a string for each name, not a = 1"),
        ("[consumer.words]\na = 1", "expected a string for each name, not a = 1"),
    ],
)
def test_a_table_with_other_values_is_a_problem_with_its_line(
    tmp_path: Path, text: str, stem: str
) -> None:
    path = tmp_path / "sam.toml"
    path.write_text(f'[consumer]\nname = "a"\n{text}\n')

    with pytest.raises(ConfigError) as caught:
        load(path)

    assert caught.value.problems == (f"{path}:3: [consumer] words: {stem}",)


def test_a_table_of_texts_can_only_be_set_in_the_file(file: Path) -> None:
    with pytest.raises(ConfigError, match="SAM_CONSUMER_WORDS: can only be set in the file"):
        load(file, {"SAM_CONSUMER_WORDS": "a=b"})


SECRETS = {
    "database": 'url = "postgresql+psycopg2://sam:hidden@db.example.org/sam"',
    "publisher": 'url = "postgresql://db.example.org/sam?user=sam&password=hidden"',
    "report": 'proxy = "probe:hidden@proxy.example.org:3128"',
    "consumer": 'name = "a"\nbrokers = ["stomp://one", "stomp://sam:hidden@two"]',
    "consumer.subscription": 'destination = "/topic/x"\nPassword = "hidden"',
}
NOT_SECRET = """
[database]
url = "postgresql+psycopg2://sam@db.example.org/sam?sslmode=verify-full"
[publisher]
brokers = ["stomp://sam@msg.example.org:61613", "spool:///var/spool/a:b@c"]
password_file = "broker-password"
[consumer]
name = "a"
words = { token = "metricName" }
"""


@pytest.mark.parametrize("section", SECRETS)
def test_a_file_with_a_secret_that_others_may_read_is_refused(tmp_path: Path, section: str) -> None:
    path = tmp_path / "sam.toml"
    begin = '[consumer]\nname = "a"\n[[consumer.subscription]]\n'
    header = begin if "." in section else f"[{section}]\n"
    path.write_text(header + SECRETS[section])
    path.chmod(0o644)

    with pytest.raises(ConfigError) as caught:
        load(path)

    (problem,) = [line for line in caught.value.problems if "chmod 600" in line]
    assert problem.startswith(f"{path}:")
    assert section.partition(".")[0] in problem
    assert "0644" in problem
    assert "hidden" not in str(caught.value)


def test_a_file_without_secrets_may_be_read_by_all(tmp_path: Path) -> None:
    path = tmp_path / "sam.toml"
    path.write_text(NOT_SECRET)
    path.chmod(0o644)

    assert load(path).name == "a"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
def test_a_file_with_a_secret_that_only_its_owner_may_read_is_accepted(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "sam.toml"
    path.write_text(f"[consumer]\nname = 'a'\n[database]\n{SECRETS['database']}\n")
    path.chmod(mode)
    if mode == 0o640 and path.stat().st_uid != 0:
        missing("the privilege to own files as root", PRIVILEGED)

    assert load(path).name == "a"


def test_a_file_named_by_the_environment_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text(f"[consumer]\nname = 'a'\n[database]\n{SECRETS['database']}\n")
    path.chmod(0o604)

    with pytest.raises(ConfigError, match="0604"):
        load(env={"SAM_CONFIG": str(path), "SAM_DATABASE_URL": "sqlite:////var/lib/sam/sam.db"})
