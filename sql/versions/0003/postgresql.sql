-- Who loaded what: a row for each batch that was committed. Open dead letters are counted quickly.

CREATE INDEX dead_letter_open ON dead_letter (reason) WHERE state = 'open';
COMMENT ON INDEX dead_letter_open IS
    'The open ones are counted without reading a letter. Names of classes, which others write, may '
    'be too long for an index.';

CREATE TABLE loaded_batch (
    batch_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    loaded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    database_user text NOT NULL DEFAULT session_user,
    consumer text NOT NULL,
    host text NOT NULL,
    process_id integer NOT NULL,
    brokers text NOT NULL,
    messages integer NOT NULL,
    rows integer NOT NULL,
    dead_letters integer NOT NULL,
    checks integer NOT NULL
);
COMMENT ON TABLE loaded_batch IS
    'Who loaded what: a row for each batch, of its own transaction. brokers is JSON '
    '{"broker": messages}; rows were stored or there already, dead_letters are new, checks are '
    'messages that only prove a path. Time and user are not the loader''s to tell.';
CREATE INDEX loaded_batch_loaded_at ON loaded_batch (loaded_at);
COMMENT ON INDEX loaded_batch_loaded_at IS 'What was loaded lately, and what is old enough to go.';

CREATE VIEW load_audit AS
SELECT
    batch_id,
    loaded_at,
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
COMMENT ON VIEW load_audit IS
    'Who loaded what: a row for each batch that was committed, until prune takes it.';
