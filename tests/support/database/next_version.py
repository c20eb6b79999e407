"""The program of a made-up version 0002: a copy of the room `sql` with its files and an upgrade.

Everything else comes from the checkout, whose program is that of version 0001.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import sam_pipeline.sql.database.version
from sam_pipeline.sql.database.script import HERE, present_state

PRESENT, NEXT = "0001", "0002"
DIALECTS = ("postgresql", "sqlite")

FROZEN = '''
"""Version 0001, frozen."""

from pathlib import Path

from alembic import op

from sam_pipeline.sql.database.script import run_script

revision, down_revision = "0001", None

def upgrade():
    dialect = op.get_context().dialect.name
    for file in sorted((Path(__file__).parent / "0001" / dialect).glob("*.sql")):
        run_script(op.get_bind(), file.read_text())
'''
UPGRADE = '''
"""Version 0002."""

import time
from pathlib import Path

from alembic import op

from sam_pipeline.sql.database.script import run_script

revision, down_revision = "0002", "0001"
additive = {additive}

def upgrade():
    file = Path(__file__).parent / "0002" / (op.get_context().dialect.name + ".sql")
    run_script(op.get_bind(), file.read_text())
    time.sleep({hold_s})
'''

NEW_TABLE = {
    "postgresql": """
CREATE TABLE site_notice (
    site text COLLATE "C" PRIMARY KEY,
    notice text NOT NULL
);
COMMENT ON TABLE site_notice IS 'Notices.';
""",
    "sqlite": """
-- Notices.
CREATE TABLE site_notice (
    site text PRIMARY KEY,
    notice text NOT NULL
) STRICT;
""",
}
NEW_VIEW = """
-- Message class: notices.
CREATE VIEW siteNotice AS
SELECT site AS siteName, notice FROM site_notice;
"""
NEW_TRIGGER = {
    "postgresql": """
CREATE FUNCTION siteNotice_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO site_notice VALUES (NEW.siteName, NEW.notice) ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;

CREATE TRIGGER siteNotice_insert INSTEAD OF INSERT ON siteNotice
FOR EACH ROW EXECUTE FUNCTION siteNotice_stage();
""",
    "sqlite": """
-- Stores notices.
CREATE TRIGGER siteNotice_insert INSTEAD OF INSERT ON siteNotice BEGIN
    INSERT INTO site_notice VALUES (NEW.siteName, NEW.notice) ON CONFLICT DO NOTHING;
END;
""",
}
STATEMENTS = ("20_views.sql", r"(c\.holds AS holds)\nFROM", r"\1,\n    c.phone AS phone\nFROM")
# The column `phone` of siteContact, which its old programs do not send. On PostgreSQL also a column
# of the temporary table of results, which sessions of the old version lack.
CHANGES = {
    "both": (("21_views.sql", r"(, source)\n(FROM contact_statement)", r"\1, phone\n\2"),),
    "postgresql": (
        ("10_tables.sql", r"(CREATE TABLE site_contact \([^;]*?)\n\);", r"\1,\n    phone text\n);"),
        STATEMENTS,
        (
            "30_staging.sql",
            r"(receivedAt timestamptz)'\n        ELSE",
            r"\1, remark text'\n        ELSE",
        ),
        (
            "31_metric_output.sql",
            r"    PERFORM close_staging\('metricoutput'\);",
            r"    PERFORM remark FROM pg_temp.staged_metricoutput LIMIT 1;\n\g<0>",
        ),
        (
            "32_statements.sql",
            r"(CREATE FUNCTION siteContact_load.*?messageId END)\n",
            r"\1, s.phone\n",
        ),
        ("32_statements.sql", r"content => '\{contact\}'", "content => '{contact, phone}'"),
        (
            "access/30_grants.sql",
            r"    GRANT INSERT ON metricOutput,",
            r"""    GRANT INSERT ON siteNotice TO sam_loader;
    GRANT SELECT ON siteNotice TO sam_reader;
\g<0>""",
        ),
    ),
    "sqlite": (
        (
            "10_tables.sql",
            r"(CREATE TABLE site_contact \([^;]*?)\n\) STRICT;",
            r"\1,\n    phone text\n) STRICT;",
        ),
        STATEMENTS,
        (
            "32_statements.sql",
            r"(CREATE TRIGGER siteContact_insert .*?)\nEND;\n",
            r"""\1
    UPDATE site_contact SET phone = NEW.phone
    WHERE site_id = (SELECT site_id FROM site WHERE name = NEW.siteName)
        AND holds
        AND NEW.phone IS NOT NULL;
END;
""",
        ),
    ),
}


def write_next_program(folder: Path, *, additive: bool = True, hold_s: float = 0.0) -> str:
    """Write the program of version 0002; returns the PYTHONPATH with which commands are those.

    Its upgrade holds its locks for `hold_s`.
    """
    sql = folder / "sam_pipeline" / "sql"
    shutil.copytree(HERE, sql, ignore=shutil.ignore_patterns("__pycache__"))
    versions = sql / sam_pipeline.sql.database.version.VERSIONS.relative_to(HERE)
    for folder_of_sql, changes in CHANGES.items():
        for name, old, new in changes:
            file = sql / folder_of_sql / name
            text, count = re.subn(old, new, file.read_text(), flags=re.DOTALL)
            assert count == 1, (name, old)
            file.write_text(text)
    for dialect in DIALECTS:
        for name, more in (
            ("10_tables.sql", NEW_TABLE[dialect]),
            ("20_views.sql", NEW_VIEW),
            ("40_upkeep.sql", NEW_TRIGGER[dialect]),
        ):
            with (sql / dialect / name).open("a") as file_of_next:
                file_of_next.write(more)
        frozen = versions / PRESENT / dialect
        frozen.mkdir(parents=True)
        for number, script in enumerate(present_state(dialect)):
            (frozen / f"{number:02}.sql").write_text(script)
        steps = versions / NEXT / f"{dialect}.sql"
        steps.parent.mkdir(exist_ok=True)
        steps.write_text("".join(_steps(dialect, sql)))
    (versions / f"v{PRESENT}.py").write_text(FROZEN)
    (versions / f"v{NEXT}.py").write_text(UPGRADE.format(additive=additive, hold_s=hold_s))
    return str(folder)


def _steps(dialect: str, sql: Path) -> Iterator[str]:
    """The statements that lead from the objects of the checkout to those of the copy."""
    yield f"ALTER TABLE site_contact ADD COLUMN phone text;\n{NEW_TABLE[dialect]}"
    if dialect == "sqlite":
        yield "DROP VIEW siteContact;\nDROP VIEW contact_statement;\n"  # with its trigger
    before = set(_replaceable(present_state(dialect)))
    for statement in _replaceable(present_state(dialect, sql)):
        if statement not in before:
            in_place = dialect == "postgresql" and not statement.startswith("CREATE TRIGGER")
            create = "CREATE OR REPLACE" if in_place else "CREATE"
            yield f"{create}{statement.removeprefix('CREATE')}\n"


def _replaceable(scripts: list[str]) -> list[str]:
    """The statements that create views, functions and triggers, each with its comment."""
    parts = re.split(r"^(?=CREATE )", "\n".join(scripts), flags=re.MULTILINE)
    kinds = ("CREATE VIEW", "CREATE FUNCTION", "CREATE TRIGGER")
    return [re.sub(r"(\n--[^\n]*|\s)+\Z", "", part) for part in parts if part.startswith(kinds)]
