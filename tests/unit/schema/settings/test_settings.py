"""sam.toml and its fragments `conf.d/*.toml`, the environment, flags, and what is shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.settings import files, section
from sam_pipeline.schema.settings.key import Settings, config_key
from sam_pipeline.schema.settings.show import as_text, masked, settings_of


class Part(Settings):
    url: str = config_key("")
    file: Path | None = config_key("", default=None)
    message_class: str | None = config_key("", default=None, key="class")


class Inside(Settings):
    size: int = config_key("", default=1)
    file: Path | None = config_key("", default=None)


class Section(Settings):
    SECTION = "consumer"
    SECRETS = ("password", "proxy_password")

    name: str = config_key("")
    brokers: tuple[str, ...] = config_key("", default=())
    timeout_s: float = config_key(
        "", lambda value: None if value > 0 else "must be positive", default=10.0
    )
    spool: Path | None = config_key("", default=None)
    profiles: tuple[Path, ...] = config_key("", default=())
    part: tuple[Part, ...] = config_key("", default=())
    inside: Inside = config_key("", default=Inside())
    words: dict[str, str] = config_key("", default={})
    eager: bool = config_key("", default=False)


class Place:
    """A directory with a sam.toml and fragments."""

    def __init__(self, directory: Path) -> None:
        self.main = directory / "sam.toml"
        self.fragments = directory / "conf.d"

    def write(self, main: str = "", **fragments: str) -> None:
        self.main.write_text(main)
        self.fragments.mkdir(exist_ok=True)
        for name, text in fragments.items():
            (self.fragments / f"{name}.toml").write_text(text)

    def load(self, env: dict[str, str] | None = None, **flags: object) -> Section:
        return load(str(self.main), env, **flags)

    def problems(self, env: dict[str, str] | None = None, **flags: object) -> list[str]:
        """The problems, with short names of files."""
        problems = refused(str(self.main), env, **flags)
        return [problem.replace(f"{self.main.parent}/", "") for problem in problems]


def load(path: str | None = None, env: dict[str, str] | None = None, **flags: object) -> Section:
    environ = {"HOME": "/nowhere", **(env or {})}
    return section.load(Section, path, environ, **flags)


def refused(*arguments: object, **flags: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(*arguments, **flags)  # type: ignore[arg-type]
    return caught.value.problems


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_flag_overrides_the_environment_which_overrides_the_file(place: Place) -> None:
    place.write('[consumer]\nname = "a"\nbrokers = ["x", "y"]\nspool = "in/spool"\n')
    env = {"SAM_CONSUMER_NAME": "b", "SAM_CONSUMER_BROKERS": "p, q", "SAM_CONSUMER_EAGER": "yes"}

    of_file, of_variables = place.load(), place.load(env)

    assert (of_file.name, of_file.brokers, of_file.timeout_s) == ("a", ("x", "y"), 10.0)
    assert of_file.spool == place.main.parent / "in" / "spool"
    assert (of_variables.name, of_variables.brokers) == ("b", ("p", "q"))
    assert of_variables.eager is True
    assert place.load(env, name="c", brokers=None).name == "c"
    # A problem of a variable or an option names it, and not the file.
    bad = {"SAM_CONSUMER_TIMEOUT_S": "-2"}
    assert place.problems(bad) == ["SAM_CONSUMER_TIMEOUT_S: must be positive"]
    assert place.problems(bad, timeout_s=-3.0) == ["command line: timeout_s: must be positive"]


def test_tables_are_merged_and_arrays_of_tables_joined_in_the_order_of_names(place: Place) -> None:
    place.write(
        '[consumer]\nname = "a"\nspool = "main"\ninside.size = 2\n'
        '[[consumer.part]]\nurl = "1"\nclass = "metricOutput"\nfile = "main"\n',
        b='consumer.words.x = "b"\n[[consumer.part]]\nurl = "3"\n',
        a='[consumer]\nbrokers = ["x"]\nprofiles = ["a", "/b"]\nwords = { y = "a" }\n'
        '[[consumer.part]]\nurl = "2"\nfile = "a"\n',
        c='[consumer.inside]\nfile = "here"\n[database]\nurl = "sqlite://"\n',
    )

    merged = place.load()

    assert (merged.name, merged.brokers, merged.words) == ("a", ("x",), {"x": "b", "y": "a"})
    # A relative path is relative to the file that names it.
    assert merged.spool == place.main.parent / "main"
    assert merged.profiles == (place.fragments / "a", Path("/b"))
    assert merged.inside == Inside(size=2, file=place.fragments / "here")
    assert merged.part == (
        Part(url="1", file=place.main.parent / "main", message_class="metricOutput"),
        Part(url="2", file=place.fragments / "a"),
        Part(url="3"),
    )
    read = [file.path.name for file in files.read_configuration(place.main).files]
    assert read == ["sam.toml", "a.toml", "b.toml", "c.toml"]


def test_all_problems_are_reported_at_once_each_with_its_file_and_line(place: Place) -> None:
    place.write(
        "# timeout_s = 1\n[publisher]\ntimeout_s = 2\n\n[consumr] # typo\n"
        '[consumer]\nbrokers = [\n  "timeout_s = 3",\n]\nname = 1\n  "timeout_s"  = -1\n'
        "broker = 4\n"
        '[[consumer.part]]\nurl = "/topic/a"\n[[consumer.part]]\nurl = 7\nclas = 1\n',
        a='[consumer]\nspool = 1\n\n[[consumer.part]]\nurl = "3"\n[[consumer.part]]\nurl = 4\n',
        b="[consumer.inside]\n\nsize = true\n[[consumer.part]]\nfile = 'x'\n",
        c='consumer.profiles = ["~no-such-user/x"]\nconsumer.words = { a = 1, b = "" }',
    )

    assert sorted(place.problems({"SAM_CONSUMER_EAGER": "perhaps"})) == [
        "SAM_CONSUMER_EAGER: expected true or false, not 'perhaps'",
        "conf.d/a.toml:2: [consumer] spool: expected a path, not 1",
        "conf.d/a.toml:7: [consumer] part[4] url: expected a string, not 4",
        "conf.d/b.toml:3: [consumer.inside] size: expected a whole number, not True",
        "conf.d/b.toml:4: [consumer] part[5] url is missing",
        "conf.d/c.toml:1: [consumer] profiles: ~no-such-user/x: the home directory is unknown",
        "conf.d/c.toml:2: [consumer] words: expected a string for each name, not a = 1",
        "sam.toml:10: [consumer] name: expected a string, not 1",
        "sam.toml:11: [consumer] timeout_s: must be positive",
        "sam.toml:12: [consumer] unknown key broker (did you mean brokers?)",
        "sam.toml:16: [consumer] part[2] url: expected a string, not 7",
        "sam.toml:17: [consumer] part[2] unknown key clas (did you mean class?)",
        "sam.toml:5: unknown section [consumr] (did you mean consumer?)",
    ]


def test_a_key_given_twice_names_both_files_and_lines(place: Place) -> None:
    place.write(
        '[consumer]\nname = "a"\nbrokers = ["x"]\n[consumer.inside]\nsize = 1\n',
        a='[consumer]\nbrokers = ["x"]\nspool = "/s"\n[consumer.inside]\n\nsize = 1\n',
        b='consumer.spool = "/t"\nconsumer.part = []\n[[consumer.inside]]\nsize = 3\n',
        c='consumer.part = [{ url = "x" }]',
    )

    assert [problem.partition(": remove")[0] for problem in place.problems()] == [
        "conf.d/a.toml:2: [consumer] brokers is also set at sam.toml:3",
        "conf.d/a.toml:6: [consumer.inside] size is also set at sam.toml:5",
        "conf.d/b.toml:1: [consumer] spool is also set at conf.d/a.toml:3",
        "conf.d/b.toml:3: [consumer] inside is also set at sam.toml:4",
        "conf.d/c.toml:1: [consumer] part is also set at conf.d/b.toml:2",
    ]


def test_all_files_that_cannot_be_read_are_reported_with_all_other_problems(place: Place) -> None:
    place.write(
        "[consumer]\nnam = 'a'\n", broken="[consumer]\n\nname = \n", good="consumer.nam = 1"
    )
    (place.fragments / "bytes.toml").write_bytes(b"[consumer]\nname = '\xe9'\n")
    (place.fragments / "directory.toml").mkdir()
    (place.fragments / "link.toml").symlink_to("nowhere")
    os.mkfifo(place.fragments / "pipe.toml")

    problems = place.problems()

    # The name that is missing may be in a file that can't be read.
    places = " ".join(problem.partition(": ")[0] for problem in problems)
    assert places == (
        "conf.d/broken.toml:3 conf.d/bytes.toml:2 conf.d/directory.toml conf.d/good.toml:1"
        " conf.d/link.toml conf.d/pipe.toml sam.toml:2"
    )
    assert problems[4].endswith("is a link to nowhere, which does not exist")
    place.main.write_text("[consumer\n")
    assert place.problems()[0].startswith("sam.toml:1: Expected")
    assert "conf.d/broken.toml:3" in place.problems()[1]


def test_only_toml_files_beside_a_sam_toml_are_fragments(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write('consumer.name = "a"', a="consumer.eager = true")
    for name in (".a.toml", "a.toml.rpmnew", "a.toml.dpkg-old", "a.toml~", "#a.toml#", "README"):
        (place.fragments / name).write_text("not TOML")

    assert place.load().eager is True
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda path: ["removed-while-it-is-read.toml"])
        assert place.load().eager is False
    place.main = place.main.rename(place.main.with_name("owner.toml"))
    assert place.load().eager is False


def test_a_named_file_must_be_readable_and_without_any_the_searched_places_are_reported(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(env={"SAM_CONSUMER_NAME": "a", "HOME": "/dev/null"}).name == "a"
    none = str(tmp_path / "none.toml")
    for arguments in ((none,), (None, {"SAM_CONFIG": none})):
        assert "no such file or directory" in refused(*arguments)[0]
    assert "not a regular file" in refused(str(tmp_path))[0]

    monkeypatch.chdir(tmp_path)
    missing_key, searched = refused(None, {"XDG_CONFIG_HOME": "/x"})
    assert missing_key == "[consumer] name is missing"
    assert f"{tmp_path}/sam.toml, /x/sam/sam.toml, /etc/sam/sam.toml" in searched
    place.write("[consumer]\n")
    assert place.problems() == ["sam.toml:1: [consumer] name is missing"]
    assert files.state_dir({"STATE_DIRECTORY": "/a:/b"}) == Path("/a")
    assert files.state_dir({"XDG_STATE_HOME": "/x"}) == Path("/x/sam")
    assert files.state_dir({"HOME": "/h"}) == Path("/h/.local/state/sam")


SECRET = 'url = "postgresql+psycopg2://sam:hidden@db.example.org/sam"'
SECRETS = {
    "database": SECRET,
    "publisher": 'url = "postgresql://db.example.org/sam?user=sam&password=hidden"',
    "report": 'proxy = "probe:hidden@proxy.example.org:3128"',
    "consumer": 'name = "a"\nbrokers = ["stomp://one", "stomp://sam:hidden@two"]',
    "[consumer.part]": 'url = "/topic/x"\nPassword = "hidden"',
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


@pytest.mark.parametrize("fragment", [False, True])
def test_a_secret_that_others_may_read_is_refused(place: Place, fragment: bool) -> None:
    for name, secret in SECRETS.items():
        place.write(**{"main": "", "a" if fragment else "main": f"[{name}]\n{secret}"})
        for file in (place.main, *place.fragments.iterdir()):
            file.chmod(0o644)
        problems = place.problems()
        (problem,) = [line for line in problems if "chmod 600" in line]
        assert problem.startswith("conf.d/a.toml:" if fragment else "sam.toml:")
        assert "0644" in problem and "hidden" not in str(problems)


def test_files_without_secrets_may_be_read_by_all(place: Place) -> None:
    def load_with(mode: int, main: str, fragment: str = "") -> str:
        place.write(main, a=fragment)
        place.main.chmod(mode)
        (place.fragments / "a.toml").chmod(0o644)
        return place.load({"SAM_DATABASE_URL": "sqlite:////var/lib/sam/sam.db"}).name

    secret, name = f"[database]\n{SECRET}\n", 'consumer.name = "a"\n'
    assert load_with(0o644, NOT_SECRET) == load_with(0o600, secret, name) == "a"
    # A service may read a file of root by its group.
    for mode in (0o600, 0o400, *([0o640] if os.geteuid() == 0 else [])):
        assert load_with(mode, name + secret) == "a"
    place.main.chmod(0o604)
    assert "0604" in place.problems()[0]


MASKED = {
    "stomp://probe:hidden@msg.example.org": "stomp://probe:***@msg.example.org",
    "stomp://probe:hid/den@hidden@h:61613/x": "stomp://probe:***@h:61613/x",
    "stomp://probe:hidden://hidden@h": "stomp://probe:***@h",
    "probe:hidden@proxy.example.org:3128": "probe:***@proxy.example.org:3128",
    "postgresql://h/sam?user=a&PASSWORD=hidden&x=1": "postgresql://h/sam?user=a&PASSWORD=***&x=1",
    **{url: url for url in ("stomp://h:61613", "stomp://probe@msg", "spool:///spool/a:b@c")},
}


def test_passwords_of_urls_are_masked() -> None:
    for value, shown in MASKED.items():
        assert masked("brokers", value) == shown
        assert masked("brokers", (value,)) == [shown]
    assert masked("password", "hidden") == "***"
    assert masked("password_file", Path("/etc/sam/password")) == "/etc/sam/password"


def test_each_setting_has_its_value_and_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "sam.toml"
    file.write_text(
        "[consumer]\ntimeout_s = 'x'\nspool = 'in'\nwords.site = 'a'\n"
        "[[consumer.part]]\nurl = '1'\n[consumer.inside]\nsize = 3\n"
    )
    environ = {"SAM_CONSUMER_PASSWORD": "hidden", "SAM_CONSUMER_NAME": "from-variable"}

    found = section.examine(Section, str(file), environ)
    shown = {
        key.removeprefix("consumer."): (as_text(value), origin.replace(f"{file}:", "line "))
        for key, value, origin in settings_of(found)
    }

    assert shown == {
        "name": ("from-variable", "SAM_CONSUMER_NAME"),
        "brokers": ("-", "default"),
        "timeout_s": ("invalid", "line 2"),
        "spool": (str(tmp_path / "in"), "line 3"),
        "profiles": ("-", "default"),
        "part[1].url": ("1", "line 6"),
        "part[1].file": ("-", "default"),
        "part[1].class": ("-", "default"),
        "inside.size": ("3", "line 8"),
        "inside.file": ("-", "default"),
        "words.site": ("a", "line 4"),
        "eager": ("false", "default"),
        "password": ("***", "SAM_CONSUMER_PASSWORD"),
        "proxy_password": ("-", "default"),
    }
