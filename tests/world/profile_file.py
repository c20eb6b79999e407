"""A profile as the file that people write."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.world.model import Profile


def to_toml(profile: Profile) -> str:
    return "\n".join(_lines(profile)) + "\n"


def _lines(profile: Profile) -> Iterator[str]:
    yield f"name = {_value(profile.name)}"
    yield 'validity_s = "off"'
    yield f"metrics_operation = {_value(profile.metrics_operation)}"
    yield f"functions_operation = {_value(profile.functions_operation)}"
    if profile.vo is not None:
        yield f"vo = {_value(profile.vo)}"
    yield f"downtimes = {_value(profile.downtimes)}"
    for name, flavour in profile.flavours.items():
        yield f"\n[flavours.{name}]"
        yield f"metrics = {_value(flavour.metrics)}"
        yield f"endpoints_operation = {_value(flavour.endpoints_operation)}"
    for name, function in profile.functions.items():
        yield f"\n[functions.{name}]"
        yield f"flavours = {_value(function.flavours)}"
        yield f"flavours_operation = {_value(function.flavours_operation)}"


def _value(value: str | tuple[str, ...]) -> str:
    return json.dumps(value)  # a string or an array of strings reads the same in TOML
