"""The tables `[[consumer.silence]]`: after what time it is an alarm that nothing arrives."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from sam_pipeline.schema.settings.key import Settings, config_key, expected

MAX_MINUTES = 7 * 24 * 60
_WILDCARDS = "*?["


class SilenceConfig(Settings):
    """A limit for classes or for sites, by their names."""

    minutes: float = config_key(
        "the time without a message after which it is an alarm; at most a week",
        expected(f"0.01 to {MAX_MINUTES}", lambda minutes: 0.01 <= minutes <= MAX_MINUTES),
    )
    message_class: str = config_key(
        "the name of a class, or a pattern such as `*`", default="", key="class"
    )
    site: str = config_key(
        "the name of a site, or a pattern such as `CERN-*` for sites of the topology", default=""
    )

    def matches(self, name_of: str, name: str) -> bool:
        """Whether it is about this `class` or `site`; names of classes ignore case."""
        if name_of == "class":
            return fnmatchcase(name.lower(), self.message_class.lower())
        return fnmatchcase(name, self.site)

    def exact_name(self, name_of: str) -> str:
        """The `class` or `site`, if the rule is about a single one."""
        pattern = self.message_class if name_of == "class" else self.site
        return "" if any(sign in pattern for sign in _WILDCARDS) else pattern


def silence_problems(rules: tuple[SilenceConfig, ...]) -> Iterator[str]:
    """What is wrong with the tables, each by itself."""
    for number, rule in enumerate(rules, 1):
        if bool(rule.message_class) == bool(rule.site):
            yield f"silence: table {number} needs either class or site"
