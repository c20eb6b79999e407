"""The variables SAM_SECTION_KEY of the environment, which override keys of the file.

Imported only if the environment has a variable whose name begins with SAM_.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.settings.key import SECTIONS, Settings, is_table, suggestion, type_name

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


def read_variables(settings: type[Settings], environ: Mapping[str, str]) -> VariableFindings:
    """The variables of a section; those of secrets are only named, their values not read."""
    keys, ours = settings.KEYS, f"SAM_{settings.SECTION}_".upper()
    variables = {name: ours + name.upper() for name in settings.SECRETS}
    variables.update({name: ours + key.name.upper() for name, key in keys.items()})
    names = {name: variable for name, variable in variables.items() if environ.get(variable)}
    values: dict[str, Any] = {}
    problems = []
    for name in (name for name in names if name in keys):
        variable = names[name]
        try:
            value, read = _from_text(keys[name].kind, environ[variable]), keys[name].read
            values[name] = read(value, Path()) if read else value
        except _OnlyInFile:
            advice = suggestion(variable, {*variables.values()} - {variable})
            problems.append(f"{variable}: can only be set in the file{advice}")
        except ValueError as error:
            is_list = f"{variable}S" in variables.values()
            hint = f" (did you mean {variable}S?)" if is_list else ""
            problems.append(f"{variable}: {error}{hint}")
    for text in set(_near_misses(ours, variables.values(), environ)) - _warned:
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


def _near_misses(ours: str, known: Collection[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Variables that are not ours, but nearly; `known` are those of the section.

    Other software also uses variables that begin with SAM_: SAM_EXPERIMENT, SAM_CLI_TELEMETRY.
    """
    sections = tuple(f"SAM_{section}_".upper() for section in SECTIONS)
    for name in environ:
        is_ours = name.startswith(ours)
        if name in known or not name.startswith("SAM_") or name == "SAM_CONFIG":
            continue
        if is_ours or not name.startswith(sections):  # else the reader of the section checks it
            near = did_you_mean(name, [*known, "SAM_CONFIG"], cutoff=0.5 if is_ours else ALIKE)
            if near or is_ours:
                yield f"{name}: no program reads this variable{near and f' ({near})'}"
