"""Reads a document in YAML, of which all values are texts, lists or mappings of texts.

So an id `017` keeps its zero, and `no` is a name. Aliases, with which a small document can
become a large one, and tags are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.formats.whole_file import read_whole

REPEATED = "a repeated key"
"""The only key of a mapping in which a key appears twice, with that key as its value."""

LARGEST_BYTES = 4 * 1024 * 1024
"""The limit on a document, which becomes up to fifty times as large in memory."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader without the guesses what kind of value a text is."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(mapping) == len(node.value):
            return mapping
        [(repeated, _)] = Counter(str(key.value) for key, _ in node.value).most_common(1)
        return {REPEATED: repeated}


def read_yaml(path: Path) -> tuple[Any, Sequence[int]]:
    """The document in a file, and the lines where its entries begin if it is a list.

    Raises:
        BadInput: the file can't be read, is not one document in YAML, or has aliases or tags.
    """
    contents = read_whole(path, LARGEST_BYTES)
    try:
        for event in yaml.parse(contents, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                problem = "has an alias (*): write out what it stands for"
                raise yaml.constructor.ConstructorError(None, None, problem, event.start_mark)
        loader = _Loader(contents)
        try:
            node = loader.get_single_node()
            document = loader.construct_document(node) if node else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}" if mark else f"{path}"
        problem = f"not valid YAML: {error.problem}"
        if isinstance(error, yaml.constructor.ConstructorError):
            problem = str(error.problem)
        raise BadInput(f"{where}: {problem}; nothing was changed") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{path}: not valid YAML in UTF-8: {reason}; nothing was changed") from error
    entries = node.value if isinstance(node, yaml.SequenceNode) else []
    return document, [entry.start_mark.line + 1 for entry in entries]
