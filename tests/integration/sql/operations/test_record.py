"""The operation log: written in the transaction of the change, and a chain in both databases."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.times import parse_time
from sam_pipeline.sql.database.engine import write_transaction, writing
from sam_pipeline.sql.errors import PERMISSION_DENIED, DatabaseRefused
from sam_pipeline.sql.operations.chain import RecordedOperation, broken_links
from sam_pipeline.sql.operations.log import operations
from sam_pipeline.sql.operations.record import record_operation
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as

ARGUMENTS = {"report": 'a "new" report', "reason": "Größe\n2\x00"}


def record(engine: Engine, command: str = "prune") -> None:
    with writing(engine) as connection:
        record_operation(connection, command, ARGUMENTS)


def recorded(engine: Engine) -> list[RecordedOperation]:
    with acting_as("reader", engine) as reader:
        return list(operations(reader))


def test_an_operation_has_a_time_both_logins_and_its_arguments(engine: Engine) -> None:
    began = datetime.now(UTC).replace(microsecond=0)

    with acting_as("reporter", engine) as reporter:
        record(reporter, "seal")

    [operation] = recorded(engine)
    assert (operation.operation_id, operation.command) == (1, "seal")
    assert json.loads(operation.arguments) == ARGUMENTS
    assert began <= parse_time(operation.happened_at) <= datetime.now(UTC)
    assert operation.os_login == login_name()
    on_sqlite = engine.dialect.name == "sqlite"
    assert operation.database_login == ("" if on_sqlite else "reporter_login")


def test_operations_are_a_chain_without_gaps_even_after_a_rollback(engine: Engine) -> None:
    record(engine)
    with pytest.raises(ZeroDivisionError), writing(engine) as connection:
        record_operation(connection, "seal", {})
        raise ZeroDivisionError
    record(engine)

    chain = recorded(engine)

    assert [operation.operation_id for operation in chain] == [1, 2]
    assert list(broken_links(chain)) == []


def test_concurrent_operations_continue_the_chain_one_after_the_other(engine: Engine) -> None:
    threads = [threading.Thread(target=record, args=(engine,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    chain = recorded(engine)

    assert len(chain) == 8
    assert list(broken_links(chain)) == []


@pytest.mark.parametrize("change", ["UPDATE operation SET command = 'x'", "DELETE FROM operation"])
def test_not_even_the_owner_changes_operations(engine: Engine, change: str) -> None:
    record(engine)

    with pytest.raises(DBAPIError, match="never changed"), write_transaction(engine) as connection:
        connection.execute(text(change))

    assert len(recorded(engine)) == 1


@only_on("postgresql")
@pytest.mark.parametrize("role", ["loader", "reporter", "reader"])
def test_no_role_writes_the_table_itself(engine: Engine, role: str) -> None:
    values = "(1, now(), 'x', 'x', 'x', '{}', '', '')"

    with (
        acting_as(role, engine) as acting,
        pytest.raises(DatabaseRefused, match=PERMISSION_DENIED),
        writing(acting) as connection,
    ):
        connection.execute(text(f"INSERT INTO operation VALUES {values}"))
