"""Reads profiles, and reports all their problems at once, each with its line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from sam_pipeline.schema.settings.toml_lines import lines_of
from sam_pipeline.spark_jobs.errors import NoProfile, ProfileError
from sam_pipeline.spark_jobs.profiles.problems import Problems
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.profiles.reader import ProfileReader

_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)
_AT_END = " (at end of document)"


def read_profile(path: Path) -> Profile:
    """The profile in a TOML file.

    Raises:
        NoProfile: the file does not exist or cannot be read.
        ProfileError: all problems of the profile.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NoProfile(f"{path}: {error.strerror}") from None
    try:
        # Some editors start a file with a byte order mark.
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte {data[error.start]:#04x}"
        raise ProfileError(
            [f"{path}:{line}: {byte} is not UTF-8: save the file as UTF-8"]
        ) from None
    try:
        document = tomllib.loads(text)
        return ProfileReader(Problems(str(path), lines_of(text))).profile(document)
    except RecursionError:
        raise ProfileError([f"{path}: its values are nested too deeply"]) from None
    except ValueError as error:  # from tomllib, or for an integer with thousands of digits
        message, where = str(error), f"{path}"
        if match := _AT_LINE.fullmatch(message):
            message, where = match[1], f"{path}:{match[2]}"
        elif message.endswith(_AT_END):
            lines = text.rstrip().count("\n") + 1
            message, where = message.removesuffix(_AT_END), f"{path}:{lines}"
        raise ProfileError([f"{where}: {message}"]) from None


def read_profiles(paths: Iterable[Path]) -> list[Profile]:
    """The profiles of several files.

    Raises:
        NoProfile: one of the files does not exist or cannot be read.
        ProfileError: all problems of all profiles.
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
            problems.append(f"{path}: name: another profile defines the report {profile.name}")
        profiles[profile.name] = profile
    if problems:
        raise ProfileError(problems)
    return list(profiles.values())


def recorded_profile(document: str) -> Profile:
    """The profile that a run recorded."""
    return ProfileReader(Problems("the recorded profile", {})).profile(json.loads(document))
