"""Which limit applies to a class or a site."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sam_pipeline.consumer.settings.silence_config import SilenceConfig, silence_problems
from sam_pipeline.consumer.silence.coverage import Coverage
from sam_pipeline.consumer.silence.silences import silences

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
AGO = {f"{number} minutes": NOON - timedelta(minutes=number) for number in (5, 20, 90)}


def silent(
    *rules: SilenceConfig,
    classes: Mapping[str, datetime] = {},
    sites: Mapping[str, datetime | None] = {},
) -> list[tuple[str, str]]:
    found = silences(rules, classes, sites, Coverage(NOON))
    return [(silence.kind, silence.name) for silence in found]


def test_the_first_rule_that_matches_applies() -> None:
    rules = SilenceConfig(10, site="CERN-*"), SilenceConfig(60, site="*")
    sites = {"CERN-A": AGO["20 minutes"], "B": AGO["20 minutes"], "C": AGO["90 minutes"]}

    assert silent(*rules, sites=sites) == [("site", "CERN-A"), ("site", "C")]
    assert silent(*reversed(rules), sites=sites) == [("site", "C")]


def test_a_class_that_never_arrived_is_silent_if_it_is_named() -> None:
    assert silent(SilenceConfig(10, message_class="downtime")) == [("class", "downtime")]
    assert silent(SilenceConfig(10, message_class="*")) == []


def test_names_of_classes_ignore_case_and_those_of_sites_do_not() -> None:
    rule = SilenceConfig(10, message_class="METRICOUTPUT")
    arrived = {"metricOutput": AGO["5 minutes"]}

    assert silent(rule, classes=arrived) == []
    assert silent(rule, classes={"metricOutput": AGO["20 minutes"]}) == [("class", "metricOutput")]
    assert silent(SilenceConfig(10, site="a"), sites={"A": AGO["5 minutes"]}) == [("site", "a")]


def test_without_a_rule_nothing_is_silent() -> None:
    assert silent(classes={"metricOutput": AGO["90 minutes"]}, sites={"A": None}) == []


def test_a_rule_is_about_classes_or_about_sites() -> None:
    rules = SilenceConfig(1, "a"), SilenceConfig(1, "a", "b"), SilenceConfig(1)

    problems = list(silence_problems(rules))

    assert ["2" in problems[0], "3" in problems[1], len(problems)] == [True, True, 2]
