"""Versions that are neighbours: a loader during an upgrade, and which program works with which."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

import sam_pipeline.sql.database.version
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.sql.database.engine import make_engine, reading, reading_at_once
from sam_pipeline.sql.database.version import (
    current_schema,
    follow_schema,
    session_version,
    upgrade,
    upgrade_script,
)
from sam_pipeline.sql.errors import DatabaseAway, SchemaMismatch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold
from sam_pipeline.sql.loading.load import load
from tests.support.builders import metric_message, metric_result
from tests.support.database.dialects import only_on
from tests.support.database.next_version import write_next_program
from tests.support.database.sam_db import url_of
from tests.support.database.sql_rows import query
from tests.support.database.upgrade_process import upgrade_at_once

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ADDITIVE = 'revision, down_revision, additive = "0002", "0001", True\ndef upgrade(): pass\n'
THIRD = 'revision, down_revision, additive = "0003", "0002", True\ndef upgrade(): pass\n'


def contact(site: str, **more: str) -> Message:
    row = {"siteName": site, "contact": "Jane", "timestamp": "2026-11-18T00:00:00Z", **more}
    return new_message("siteContact", "".join(f"{k}: {v}\n" for k, v in row.items()) + "EOT\n")


def test_a_loader_that_meets_an_upgrade_goes_on_with_the_new_columns(
    own_engine: Engine, tmp_path: Path
) -> None:
    follow_schema(own_engine)
    catalogue = Catalogue(own_engine)
    result = metric_result(timestamp="2026-11-20T08:00:00Z")
    load(own_engine, catalogue, [contact("S"), metric_message(result)], NOW)
    fold(own_engine)
    with reading_at_once(own_engine):
        pass

    [applied] = upgrade_at_once([url_of(own_engine)], write_next_program(tmp_path))
    with reading_at_once(own_engine) as connection:
        assert session_version(connection) == "0002"
    later = metric_result(timestamp="2026-11-20T09:00:00Z")
    loaded = load(own_engine, catalogue, [contact("T", phone="+41"), metric_message(later)], NOW)
    fold(own_engine)

    assert applied == ["0002"]
    assert (loaded.rows, dict(loaded.dead_letters), dict(loaded.ignored_keys)) == (2, {}, {})
    assert query(own_engine, "SELECT siteName, phone FROM siteContact ORDER BY siteName") == [
        ("S", None),
        ("T", "+41"),
    ]
    assert query(own_engine, "SELECT count(*) FROM metricOutput") == [(2,)]


def test_messages_that_only_test_the_path_need_no_views(own_engine: Engine) -> None:
    follow_schema(own_engine)

    loaded = load(own_engine, Catalogue(own_engine), [new_message("sam-check", "")], NOW)

    assert loaded.checks == 1


@pytest.fixture
def become(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this program that of the last of these versions; the later ones have no objects."""
    present = sam_pipeline.sql.database.version.VERSIONS / "v0001.py"

    def become(*later: str) -> None:
        versions = tmp_path / f"versions-{len(list(tmp_path.iterdir()))}"
        versions.mkdir()
        (versions / "v0001.py").write_text(present.read_text())
        for number, text in enumerate(later, 2):
            (versions / f"v000{number}.py").write_text(text)
        monkeypatch.setattr(sam_pipeline.sql.database.version, "VERSIONS", versions)

    return become


def test_only_neighbours_work_together(bare_engine: Engine, become: Callable[..., None]) -> None:
    upgrade(bare_engine)
    become(ADDITIVE)
    assert suits(bare_engine)
    become(ADDITIVE, THIRD)
    assert not suits(bare_engine)

    upgrade(bare_engine)

    assert suits(bare_engine)
    become(ADDITIVE)
    assert suits(bare_engine)
    become()
    assert not suits(bare_engine)
    with pytest.raises(SchemaMismatch, match=r"0003 is newer.* 0001"):
        upgrade(bare_engine)


def test_a_version_that_does_not_say_so_is_not_additive(
    bare_engine: Engine, become: Callable[..., None]
) -> None:
    upgrade(bare_engine)
    become(ADDITIVE.replace("True", "False"))
    assert not suits(bare_engine)

    upgrade(bare_engine)

    become()
    assert not suits(bare_engine)


def suits(engine: Engine) -> bool:
    schema = current_schema(engine)
    return schema is not None and schema.suits


def test_the_sql_for_a_dba_records_the_oldest_program(become: Callable[..., None]) -> None:
    become(ADDITIVE)

    script = upgrade_script("postgresql", "0001")

    assert "INSERT INTO compatibility VALUES ('0002', '0001')" in script
    assert script.index("LOCK TABLE alembic_version") < script.index("INSERT INTO compatibility")


@only_on("postgresql", "own_url")
def test_an_upgrade_waits_for_transactions_of_programs(
    own_engine: Engine, become: Callable[..., None]
) -> None:
    become(ADDITIVE)
    follow_schema(own_engine)
    upgrading = make_engine(f"{url_of(own_engine)}?options=-c%20lock_timeout%3D200ms")

    with reading(own_engine), pytest.raises(DatabaseAway, match="lock timeout"):
        upgrade(upgrading)

    assert upgrade(upgrading) == ["0002"]
    upgrading.dispose()
