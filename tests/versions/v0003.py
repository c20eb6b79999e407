"""Version 0003: who loaded what."""

from __future__ import annotations

from sqlalchemy import Engine, text

from sql.engine import writing
from tests.versions import v0002

BATCH = text("""
    INSERT INTO loaded_batch (
        consumer, host, process_id, brokers, messages, rows, dead_letters, checks
    )
    VALUES ('site-a', 'db.example.org', 42, '{"stomp://a.example.org:61613": 3}', 3, 5, 1, 0)
""")


def fill(engine: Engine) -> None:
    """As version 0002, with a batch that was loaded."""
    v0002.fill(engine)
    with writing(engine) as connection:
        connection.execute(BATCH)
