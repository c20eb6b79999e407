"""The chain of operations shows what was changed, added or removed afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sam_pipeline.sql.operations.chain import START, RecordedOperation, broken_links, digest_of


def chain(length: int) -> list[RecordedOperation]:
    operations: list[RecordedOperation] = []
    previous = START
    for number in range(1, length + 1):
        fields = ("2026-11-20T10:00:00Z", "sam", "jane", "prune", "{}", previous)
        previous = digest_of(str(number), *fields)
        operations.append(RecordedOperation(number, *fields, previous))
    return operations


def broken(operations: Sequence[RecordedOperation]) -> list[int]:
    """The numbers of the operations that are reported."""
    return [int(text.split(":")[0].removeprefix("operation ")) for text in broken_links(operations)]


def test_an_untouched_chain_is_unbroken() -> None:
    assert broken(chain(5)) == broken([]) == []


@pytest.mark.parametrize(
    "column", ["happened_at", "database_login", "os_login", "command", "arguments"]
)
def test_a_changed_column_breaks_the_chain_at_its_operation(column: str) -> None:
    operations = chain(4)
    operations[1] = operations[1]._replace(**{column: "x"})

    assert broken(operations) == [2]


def test_an_operation_that_was_replaced_with_a_valid_digest_breaks_the_next_one() -> None:
    operations = chain(4)
    changed = operations[1]._replace(os_login="joe")
    digest = digest_of(str(changed.operation_id), *changed[1:-1])
    operations[1] = changed._replace(digest=digest)

    assert broken(operations) == [3]
    assert digest_of("ab", "c") != digest_of("a", "bc")  # texts cannot be shifted between fields


def test_a_removed_operation_breaks_the_chain() -> None:
    for removed in range(3):
        operations = chain(4)
        del operations[removed]

        assert broken(operations) == [removed + 2]
