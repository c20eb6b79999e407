"""A profile as a TOML file."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.worlds.model import Profile, Threshold


def to_toml(profile: Profile) -> str:
    return "\n".join(_lines(profile)) + "\n"


def _lines(profile: Profile) -> Iterator[str]:
    yield f"name = {_value(profile.name)}"
    yield f"validity_s = {_seconds(profile.validity_s)}"
    yield f"metrics_operation = {_value(profile.metrics_operation)}"
    yield f"functions_operation = {_value(profile.functions_operation)}"
    if profile.vo is not None:
        yield f"vo = {_value(profile.vo)}"
    if profile.fqan is not None:
        yield f"fqan = {_value(profile.fqan)}"
    yield f"downtimes = {_value(profile.downtimes)}"
    if profile.notice_s:
        yield f'notice = "{profile.notice_s // 60}m"'
    if profile.weights:
        yield f"weights = {_value(profile.weights)}"
    for key in ("sites", "groups"):
        if patterns := getattr(profile, key):
            yield f"{key} = {_value(patterns)}"
    if profile.validity_of:
        yield "\n[validity]"
        for metric, seconds in profile.validity_of.items():
            yield f"{_value(metric)} = {_seconds(seconds)}"
    for name, flavour in profile.flavours.items():
        yield f"\n[flavours.{name}]"
        yield f"metrics = {_value(flavour.metrics)}"
        yield f"endpoints_operation = {_value(flavour.endpoints_operation)}"
    for name, function in profile.functions.items():
        yield f"\n[functions.{name}]"
        yield f"flavours = {_value(function.flavours)}"
        yield f"flavours_operation = {_value(function.flavours_operation)}"
    for name, table in profile.operations.items():
        yield f"\n[operations.{name}]"
        yield f"table = {_value(table)}"
    for threshold in profile.thresholds:
        yield "\n[[thresholds]]"
        yield from _threshold(threshold)


def _threshold(threshold: Threshold) -> Iterator[str]:
    for key in ("metric", "label", "warning", "critical", "host", "flavour"):
        if value := getattr(threshold, key):
            yield f"{key} = {_value(value)}"


def _seconds(validity: int | None) -> str:
    return '"off"' if validity is None else str(validity)


def _value(value: str | tuple[str, ...] | tuple[tuple[str, ...], ...]) -> str:
    return json.dumps(value)  # texts and arrays of texts read the same in TOML
