-- Who loaded what: a row for each batch that was committed. Open dead letters are counted quickly.

-- The open ones are counted without reading a letter. Names of classes, which others write, may be
-- too long for an index.
CREATE INDEX dead_letter_open ON dead_letter (reason) WHERE state = 'open';

-- Who loaded what: a row for each batch, of its own transaction. brokers is JSON {"broker": messages};
-- rows were stored or there already, dead_letters are new, checks are messages that only prove a
-- path. SQLite has no users.
CREATE TABLE loaded_batch (
    batch_id integer PRIMARY KEY,
    loaded_at integer NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS integer)),
    database_user text,
    consumer text NOT NULL,
    host text NOT NULL,
    process_id integer NOT NULL,
    brokers text NOT NULL,
    messages integer NOT NULL,
    rows integer NOT NULL,
    dead_letters integer NOT NULL,
    checks integer NOT NULL
) STRICT;
-- What was loaded lately, and what is old enough to go.
CREATE INDEX loaded_batch_loaded_at ON loaded_batch (loaded_at);

-- Who loaded what: a row for each batch that was committed, until prune takes it.
CREATE VIEW load_audit AS
SELECT
    batch_id,
    strftime('%Y-%m-%dT%H:%M:%SZ', loaded_at, 'unixepoch') AS loaded_at,
    database_user,
    consumer,
    host,
    process_id,
    brokers,
    messages,
    rows,
    dead_letters,
    checks
FROM loaded_batch;
