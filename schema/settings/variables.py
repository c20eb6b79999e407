"""The variables SAM_SECTION_KEY of the environment, which override keys of the file.

Imported only if the environment has a variable whose name begins with SAM_.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, get_args, get_origin

from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.settings.key import Settings, is_table, suggestion, type_name

_SHARED_VARIABLES = (
    "SAM_CONFIG",
    "SAM_DATABASE_URL",
    "SAM_REPORT_PROFILES",
    "SAM_REPORT_SOURCE",
    "SAM_REPORT_START_TIMEOUT_S",
)
_PREFIXES = ("SAM_PUBLISHER_", "SAM_CONSUMER_", "SAM_ARCHIVE_")
"""Variables of these sections are checked by the program that reads the section."""
_warned: set[str] = set()
"""Each is mentioned once."""
ALIKE = 0.85
"""How similar a variable without our prefix must be to one of ours."""

logger = lazy_logger(__name__)


class VariableFindings(NamedTuple):
    """The good `values` of variables by attribute, and the problems of the others."""

    values: dict[str, Any]
    names: dict[str, str]
    """By attribute: the variable that is set, be it good or bad; also for secrets."""
    problems: list[str]


def read_variables(
    settings: type[Settings], section: str, secrets: Collection[str], environ: Mapping[str, str]
) -> VariableFindings:
    """The variables of a section; those of `secrets` are only named, their values not read."""
    keys = settings.KEYS
    variables = {name: f"SAM_{section}_{name}".upper() for name in secrets}
    variables.update({name: f"SAM_{section}_{key.name}".upper() for name, key in keys.items()})
    names = {name: variable for name, variable in variables.items() if environ.get(variable)}
    values: dict[str, Any] = {}
    problems = []
    for name in (name for name in names if name in keys):
        variable = names[name]
        try:
            values[name] = _from_text(keys[name].kind, environ[variable])
        except _OnlyInFile:
            advice = suggestion(variable, {*variables.values()} - {variable})
            problems.append(f"{variable}: can only be set in the file{advice}")
        except ValueError as error:
            is_list = f"{variable}S" in variables.values()
            hint = f" (did you mean {variable}S?)" if is_list else ""
            problems.append(f"{variable}: {error}{hint}")
    for text in set(_near_misses(variables.values(), section, environ)) - _warned:
        _warned.add(text)
        logger.warning("%s", text)
    return VariableFindings(values, names, problems)


class _OnlyInFile(Exception):
    """A variable can't hold a table."""


def _from_text(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple and not is_table(get_args(kind)[0]):
        parts = filter(None, map(str.strip, text.split(",")))
        return tuple(_from_text(get_args(kind)[0], part) for part in parts)
    if get_origin(kind) in (tuple, dict) or is_table(kind):
        raise _OnlyInFile
    if kind is bool:
        values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in values:
            raise ValueError(f"expected true or false, not {text!r}")
        return values[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"expected {type_name(kind)}, not {text!r}") from None


def _near_misses(known: Collection[str], section: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Variables that are not ours, but nearly; `known` are those of the section.

    Other software also uses variables that begin with SAM_: SAM_EXPERIMENT, SAM_CLI_TELEMETRY.
    """
    ours = f"SAM_{section}_".upper()
    others = tuple(prefix for prefix in _PREFIXES if prefix != ours)
    for name in environ:
        if not name.startswith("SAM_") or name.startswith(others):
            continue
        if name not in known and name not in _SHARED_VARIABLES:
            candidates = [*known, *_SHARED_VARIABLES]
            is_ours = name.startswith(ours)
            near = did_you_mean(name, candidates, cutoff=0.5 if is_ours else ALIKE)
            if near or is_ours:
                yield f"{name}: no program reads this variable{near and f' ({near})'}"
