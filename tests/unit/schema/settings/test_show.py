"""The settings that `config show` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sam_pipeline.schema.settings.section import examine
from sam_pipeline.schema.settings.show import Part, as_text, masked, settings_of


@dataclass(frozen=True)
class Table:
    destination: str
    rename: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Inner:
    size: int = 1
    word: str = ""


@dataclass(frozen=True)
class Shown:
    name: str
    size: int = 7
    spool: Path | None = None
    words: dict[str, str] = field(default_factory=dict)
    table: tuple[Table, ...] = ()
    inner: Inner = field(default_factory=Inner)
    flag: bool = field(default=False, metadata={"key": None})


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
        "[consumer]\nsize = 'x'\nspool = 'in'\nwords.site = 'a'\n"
        "[[consumer.table]]\ndestination = 'd'\n[[consumer.table]]\nrename = { a = 'b' }\n"
        "[consumer.inner]\nsize = 3\n"
    )
    environ = {"SAM_CONSUMER_PASSWORD": "hidden", "SAM_CONSUMER_NAME": "from-variable"}

    found = examine(Shown, "consumer", str(file), environ)
    settings = [
        (key, as_text(value), origin.replace(f"{file}:", "line "))
        for key, value, origin in settings_of(Part("consumer", Shown, found))
    ]

    assert settings == [
        ("consumer.name", "from-variable", "SAM_CONSUMER_NAME"),
        ("consumer.size", "invalid", "line 2"),
        ("consumer.spool", str(tmp_path / "in"), "line 3"),
        ("consumer.words.site", "a", "line 4"),
        ("consumer.table[1].destination", "d", "line 6"),
        ("consumer.table[1].rename", "-", "default"),
        ("consumer.inner.size", "3", "line 10"),
        ("consumer.inner.word", "-", "default"),
        ("consumer.password", "***", "SAM_CONSUMER_PASSWORD"),
        ("consumer.proxy_password", "-", "default"),
    ]


def test_a_required_key_that_is_not_set_is_missing() -> None:
    found = examine(Shown, "report", None, {"HOME": "/nowhere"})
    (name, *others) = settings_of(Part("report", Shown, found))
    assert name == ("report.name", None, "missing")
    assert {setting.origin for setting in others} == {"default"}
