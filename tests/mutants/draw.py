"""Errors drawn by chance: another operator, another constant, the opposite condition."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tests.mutants.mutant import Mutant, NotFound

SHARES = {"schema": 18, "publisher": 17, "consumer": 18, "sql": 19, "spark_jobs": 25}
"""How many to draw in each room."""
OPERATORS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip


def draw(root: Path, seed: int) -> Iterator[Mutant]:
    """The mutants of a seed, in the order of the rooms."""
    chance = random.Random(seed)
    for room, count in SHARES.items():
        found = []
        for path in sorted((root / room).rglob("*.py")):
            text = path.read_text()
            file = str(path.relative_to(root))
            for line, replacement, why in errors_in(text):
                mutant = Mutant(file, line, replacement, why, drawn=True)
                try:
                    mutant.mutated(root)
                except (NotFound, SyntaxError):
                    continue
                found.append(mutant)
        chance.shuffle(found)
        one_a_line = {(mutant.file, mutant.text): mutant for mutant in found}
        yield from sorted(list(one_a_line.values())[:count], key=lambda mutant: mutant.file)


def errors_in(text: str) -> Iterator[tuple[str, str, str]]:
    """Each possible error in a module: the stripped line, its replacement, and what changed."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
            for part in body:
                if part.lineno != part.end_lineno:
                    continue
                source = lines[part.lineno - 1].encode()
                start, end = part.col_offset, part.end_col_offset or 0
                for new, why in replacements(part):
                    line = source.decode().strip()
                    yield line, (source[:start] + new.encode() + source[end:]).decode().strip(), why


def replacements(node: ast.expr) -> Iterator[tuple[str, str]]:
    """The wrong versions of an expression, and what is wrong."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in OPERATORS:
            new = OPERATORS[type(operator)]
            yield f"{ast.unparse(left)} {new} {ast.unparse(right)}", f"the comparison is {new}"
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            if not any(isinstance(part, ast.JoinedStr) for part in ast.walk(node)):
                new = OPERATORS[type(operator)]
                yield f"({ast.unparse(left)} {new} {ast.unparse(right)})", f"the operator is {new}"
        case ast.BoolOp(operator, values):
            new = OPERATORS[type(operator)]
            yield f"({f' {new} '.join(map(ast.unparse, values))})", f"the operator is {new}"
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.unparse(operand), "the condition is the opposite"
        case ast.Constant(bool() as value):
            yield str(not value), f"{not value} for {value}"
        case ast.Constant(int() as value):
            yield str(value + 1), f"{value + 1} for {value}"


def as_toml(mutants: Iterable[Mutant]) -> str:
    """The file of these mutants; `tests/mutants/drawn.toml` lacks those that change nothing."""
    lines = []
    for file, group in groupby(mutants, key=lambda mutant: mutant.file):
        lines.append(f"\n{json.dumps([file])[1:-1].join('[]')}")
        for mutant in group:
            key, *value = (
                json.dumps(part) for part in (mutant.text, mutant.replacement, mutant.why)
            )
            lines.append(f"{key} = [{', '.join(value)}]")
    return "\n".join([*lines, ""]).lstrip()
