"""A constraint that is checked only at the commit, and one row among many that violates it."""

from __future__ import annotations

import json
from pathlib import Path

from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.sql.database.engine import make_engine
from tests.support.consumer.site import make_site
from tests.support.database.own_class import make_class

DEFERRED = """
    CREATE FUNCTION not_negative() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.minutes < 0 THEN
            RAISE check_violation USING MESSAGE = 'minutes is ' || NEW.minutes;
        END IF;
        RETURN NEW;
    END $$;
    CREATE CONSTRAINT TRIGGER not_negative AFTER INSERT ON "kept waiting"
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION not_negative();
    GRANT INSERT ON waiting TO sam_loader;
"""


def test_a_row_that_is_refused_at_the_commit_is_the_only_dead_letter(
    tmp_path: Path, postgres_url: str
) -> None:
    site = make_site(tmp_path, postgres_url, [f"spool://{tmp_path}/spool"])
    engine = make_engine(postgres_url)
    make_class(engine, "waiting", ce="text NOT NULL", minutes="integer")
    engine.dispose()
    site.execute(DEFERRED)
    for start in range(0, 200, 50):
        numbers = [number if number != 121 else -1 for number in range(start, start + 50)]
        records = [{"ce": f"ce{number}", "minutes": number} for number in numbers]
        site.fill(new_message("waiting", json.dumps(records), content_type="application/json"))

    assert site.drain().code == 65

    assert site.scalar("SELECT count(*) FROM waiting") == 199
    assert str(site.scalar("SELECT error FROM dead_letter")).startswith(
        "waiting: 23514: minutes is -1"
    )
