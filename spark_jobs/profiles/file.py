"""Reads a profile, and tells all its problems at once, each with its line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sam_pipeline.schema.program.toml_lines import lines_of
from sam_pipeline.spark_jobs.errors import NoProfile, ProfileError
from sam_pipeline.spark_jobs.profiles.problems import Problems
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.profiles.reader import ProfileReader

_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)
_AT_END = " (at end of document)"


def read_profile(path: Path) -> Profile:
    """The profile in a TOML file.

    Raises:
        NoProfile: there is no such file.
        ProfileError: everything that is wrong with it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NoProfile(f"{path}: {error.strerror}") from None
    text = _decoded(path, data)
    try:
        document, lines = _parsed(path, text), lines_of(text)
        return ProfileReader(Problems(str(path), lines)).profile(document)
    except RecursionError:
        raise ProfileError([f"{path}: its values are nested too deeply"]) from None


def read_profiles(paths: Iterable[Path]) -> list[Profile]:
    """The profiles of several files.

    Raises:
        NoProfile: one of them can't be read.
        ProfileError: everything that is wrong with any of them.
    """
    problems: list[str] = []
    profiles: dict[str, Profile] = {}
    for path in paths:
        try:
            profile = read_profile(path)
        except ProfileError as error:
            problems += error.problems
            continue
        if profile.name in profiles:
            problems.append(f"{path}: name: another profile makes the report {profile.name}")
        profiles[profile.name] = profile
    if problems:
        raise ProfileError(problems)
    return list(profiles.values())


def recorded_profile(document: str) -> Profile:
    """The profile that a run recorded."""
    return ProfileReader(Problems("the recorded profile", {})).profile(json.loads(document))


def _decoded(path: Path, data: bytes) -> str:
    """The text with plain newlines, without the mark that some editors put in front."""
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        words = f"byte {data[error.start]:#04x} is no UTF-8: save the file as UTF-8"
        raise ProfileError([f"{path}:{line}: {words}"]) from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        words = str(error)
    found = _AT_LINE.fullmatch(words)
    if found:
        words, line = found[1], int(found[2])
    elif words.endswith(_AT_END):
        words, line = words.removesuffix(_AT_END), text.rstrip().count("\n") + 1
    else:  # an integer of thousands of digits
        line = 0
    raise ProfileError([f"{path}:{line}: {words}" if line else f"{path}: {words}"])
