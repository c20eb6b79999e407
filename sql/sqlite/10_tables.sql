-- The other tables: statements, exclusions, dead letters, the audit, reports and the archive. See
-- 05_results.sql.

-- Statements ------------------------------------------------------------------------------------
-- Statements about endpoints, groups, contacts and downtimes: rows are added, and their content is
-- never changed. Of the statements about one key one holds (see 32_statements.sql).
--
-- said_at is the time that orders them, received_at that of arrival. source is NULL for a message,
-- else 'hand', 'file' or 'feed NAME'. A statement with withdrawn_at never holds. It is about a site
-- and a key; rank orders statements, together with statement_id; content is all that is said about
-- a key, and said all in which a publisher may repeat itself.

-- An endpoint belongs to a site during [valid_from, valid_to). Without valid_to it belongs there
-- until further notice. grid_site is the site that others know it by, where a VO names sites of its
-- own.
CREATE TABLE endpoint_membership (
    statement_id integer PRIMARY KEY,
    site_id integer NOT NULL REFERENCES site,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    vo_id integer NOT NULL REFERENCES vo,
    valid_from integer NOT NULL,
    valid_to integer,
    service_uri text,
    grid_site text,
    production text,
    monitored text,
    said_at integer NOT NULL,
    source text,
    message_id text,
    publisher_id integer NOT NULL REFERENCES publisher,
    received_at integer NOT NULL,
    withdrawn_at integer,
    holds integer NOT NULL DEFAULT 0,
    key text AS (json_array(endpoint_id, vo_id, valid_from)),
    rank text AS (format('%d%012d%s', source IS 'hand', said_at, coalesce(message_id, ''))),
    content text AS (json_array(valid_to, service_uri, grid_site, production, monitored)),
    said text AS (json_array(publisher_id, source, withdrawn_at, content))
) STRICT;
-- Finds the statements about a key.
CREATE INDEX endpoint_membership_key ON endpoint_membership (site_id, key);

-- A site belongs to a group during [valid_from, valid_to).
CREATE TABLE site_group_member (
    statement_id integer PRIMARY KEY,
    site_id integer NOT NULL REFERENCES site,
    site_group_id integer NOT NULL REFERENCES site_group,
    valid_from integer NOT NULL,
    valid_to integer,
    weight integer CHECK (weight >= 0),
    said_at integer NOT NULL,
    source text,
    message_id text,
    publisher_id integer NOT NULL REFERENCES publisher,
    received_at integer NOT NULL,
    withdrawn_at integer,
    holds integer NOT NULL DEFAULT 0,
    key text AS (json_array(site_group_id, valid_from)),
    rank text AS (format('%d%012d%s', source IS 'hand', said_at, coalesce(message_id, ''))),
    content text AS (json_array(valid_to, weight)),
    said text AS (json_array(publisher_id, source, withdrawn_at, content))
) STRICT;
-- Finds the statements about a key.
CREATE INDEX site_group_member_key ON site_group_member (site_id, key);

-- The contact of a site. An empty contact was removed.
CREATE TABLE site_contact (
    statement_id integer PRIMARY KEY,
    site_id integer NOT NULL REFERENCES site,
    contact text NOT NULL CHECK (length(contact) <= 255),
    said_at integer NOT NULL,
    source text,
    message_id text,
    publisher_id integer NOT NULL REFERENCES publisher,
    received_at integer NOT NULL,
    withdrawn_at integer,
    holds integer NOT NULL DEFAULT 0,
    key text AS (''),
    rank text AS (format('%d%012d%s', source IS 'hand', said_at, coalesce(message_id, ''))),
    content text AS (contact),
    said text AS (json_array(publisher_id, source, withdrawn_at, content))
) STRICT;
-- Finds the statements about a key.
CREATE INDEX site_contact_key ON site_contact (site_id, key);

-- A downtime announced for [start_time, end_time); if that is empty, the downtime is cancelled.
-- start_key is the epoch second of the start for a downtime without an id, and 0 for one with an
-- id, which may therefore move. announced_at is when people could know: at the arrival, unless a feed
-- or a trusted publisher knows better.
CREATE TABLE announced_downtime (
    statement_id integer PRIMARY KEY,
    downtime_id text NOT NULL,
    site_id integer NOT NULL REFERENCES site,
    host_id integer NOT NULL REFERENCES host,
    service_flavour_id integer NOT NULL REFERENCES service_flavour,
    start_key integer NOT NULL,
    start_time integer NOT NULL,
    end_time integer NOT NULL CHECK (end_time >= start_time),
    classification text NOT NULL,
    severity text NOT NULL,
    description text,
    announced_at integer NOT NULL,
    said_at integer NOT NULL,
    source text,
    message_id text,
    publisher_id integer NOT NULL REFERENCES publisher,
    received_at integer NOT NULL,
    withdrawn_at integer,
    holds integer NOT NULL DEFAULT 0,
    key text AS (json_array(host_id, service_flavour_id, start_key, downtime_id)),
    rank text AS (format('%d%012d%s', source IS 'hand', said_at, coalesce(message_id, ''))),
    content text AS (json_array(start_time, end_time, classification, severity, description)),
    said text AS (json_array(publisher_id, source, withdrawn_at, content))
) STRICT;
-- Finds the statements about a key.
CREATE INDEX announced_downtime_key ON announced_downtime (site_id, key);

-- A call, like new_result: marks the days on which a statement that holds from now on differs from
-- the one that has held; old_start is NULL if there was none. is_downtime: it counts on each day that
-- it overlaps, not only on those at whose beginning it is valid. Stays empty.
CREATE TABLE new_holder (
    is_downtime integer,
    start integer,
    stop integer,
    old_start integer,
    old_stop integer,
    has_same_facts integer
) STRICT;

-- Exclusions ------------------------------------------------------------------------------------

-- A period that does not count in reports, and who excluded it. An empty selector matches
-- everything. For a monitoring host the second of end_time is excluded as well. A removed exclusion
-- keeps its row, with removed_at set.
CREATE TABLE exclusion (
    exclusion_id integer PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('monitoring-host', 'metric', 'site')),
    monitoring_host text NOT NULL DEFAULT '',
    metric_name text NOT NULL DEFAULT '',
    site text NOT NULL DEFAULT '',
    service_flavour text NOT NULL DEFAULT '',
    host_name text NOT NULL DEFAULT '',
    start_time integer NOT NULL,
    end_time integer NOT NULL CHECK (end_time > start_time),
    reason text NOT NULL,
    who text NOT NULL,
    added_at integer NOT NULL,
    removed_at integer,
    removed_by text,
    removed_because text,
    CHECK (
        CASE kind
            WHEN 'monitoring-host'
                THEN monitoring_host <> ''
                AND metric_name || site || service_flavour || host_name = ''
            WHEN 'metric' THEN metric_name <> '' AND monitoring_host = ''
            WHEN 'site'
                THEN site <> ''
                AND monitoring_host || metric_name || service_flavour || host_name = ''
        END
    ),
    CHECK (
        (removed_at IS NULL) = (removed_by IS NULL)
        AND (removed_at IS NULL) = (removed_because IS NULL)
    )
) STRICT;

-- Changes since the last reports ----------------------------------------------------------------

-- Days whose results, topology, downtimes or exclusions have changed. A run of a report numbers the
-- changes that it is about to read; NULL marks a change that no run has read yet. results_no numbers
-- those of results alone. The earliest day is the first one with results.
CREATE TABLE changed_day (
    day text PRIMARY KEY,
    change_no integer,
    results_no integer
) STRICT, WITHOUT ROWID;
-- Finds the days without a number.
CREATE INDEX changed_day_change_no ON changed_day (change_no);

-- One row: the last change number assigned. Numbers are never reused.
CREATE TABLE change_counter (
    change_no integer NOT NULL
) STRICT;
INSERT INTO change_counter (change_no) VALUES (0);

-- At most one row: results before this day have been pruned, and the reports of those days are
-- frozen.
CREATE TABLE horizon (
    day text PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- A call, like new_result: marks the days from first_day to last_day as changed. Stays empty.
CREATE TABLE new_change (
    first_day text,
    last_day text
) STRICT;

-- Dead letters ----------------------------------------------------------------------------------

-- A record that could not be loaded, byte for byte, with the headers of its message as JSON. Record
-- number 0 stands for the whole message. broker is the broker, spool or file it came from, and login
-- the login that the broker named as its sender; claimed_host, claimed_program and claimed_user are
-- where the sender says that it made the message. A compressed body is in the format of zlib, and
-- body_bytes its size without that. The digest (SHA-256, of the uncompressed body) is part of the
-- key, because senders choose message ids: other bytes under a known id are another letter.
CREATE TABLE dead_letter (
    dead_letter_id integer PRIMARY KEY,
    message_id text NOT NULL,
    record_number integer NOT NULL,
    message_class text NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    broker text,
    login text,
    publisher_id integer REFERENCES publisher,
    claimed_host text,
    claimed_program text,
    claimed_user text,
    headers text NOT NULL,
    body blob NOT NULL,
    body_bytes integer NOT NULL,
    compressed integer NOT NULL DEFAULT 0 CHECK (compressed IN (0, 1)),
    body_digest blob NOT NULL,
    received_at integer NOT NULL,
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replayed', 'dropped')),
    changed_at integer NOT NULL,
    UNIQUE (message_id, record_number, body_digest)
) STRICT;
-- Counts open dead letters without reading them. The message class is not a key: senders choose its
-- name, which may be too long for an index.
CREATE INDEX dead_letter_open ON dead_letter (reason) WHERE state = 'open';

-- Audit -----------------------------------------------------------------------------------------

-- Audit of loaders: one row for each of their transactions, inserted in it. brokers is JSON
-- {"broker": messages}, and publishers {"identity": [accepted records, refused records]}. rows counts
-- rows that were stored, duplicates those that changed nothing, dead_letters new dead letters,
-- repeated_dead_letters those that were already there, summarised_dead_letters those that exceeded a
-- limit and are counted in a summary only, and checks messages that only prove that a path works.
-- SQLite has no users.
CREATE TABLE loaded_batch (
    batch_id integer PRIMARY KEY,
    loaded_at integer NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS integer)),
    database_user text,
    consumer text NOT NULL,
    host text NOT NULL,
    process_id integer NOT NULL,
    brokers text NOT NULL,
    publishers text NOT NULL DEFAULT '{}',
    messages integer NOT NULL,
    rows integer NOT NULL,
    duplicates integer NOT NULL DEFAULT 0,
    dead_letters integer NOT NULL,
    repeated_dead_letters integer NOT NULL DEFAULT 0,
    summarised_dead_letters integer NOT NULL DEFAULT 0,
    checks integer NOT NULL
) STRICT;
-- Finds recent batches, and those that are old enough to be pruned.
CREATE INDEX loaded_batch_loaded_at ON loaded_batch (loaded_at);

-- What operators did to the data, inserted in the same transaction. arguments is JSON
-- {"name": "value"}. digest covers all other columns, and so, through previous_digest, all operations
-- before. SQLite has no users: database_login is empty.
CREATE TABLE operation (
    operation_id integer PRIMARY KEY,
    happened_at integer NOT NULL,
    database_login text NOT NULL,
    os_login text NOT NULL,
    command text NOT NULL,
    arguments text NOT NULL,
    previous_digest text NOT NULL,
    digest text NOT NULL
) STRICT;

-- Reports ---------------------------------------------------------------------------------------
-- Each figure belongs to the run that computed it; readers see the runs in published_run.

-- A computation of one report for one day, and what it read. until is the time of the run if the
-- day was not over yet; results_ignored is JSON {"reason": count}; change_no is the newest change
-- of changed_day that the run has read, and newest_result the last result_id. It counts results of
-- look_back days before its own. downtimes and exclusions are JSON and list all that overlap the day,
-- including those that do not count.
CREATE TABLE run (
    run_id integer PRIMARY KEY,
    report text NOT NULL,
    day text NOT NULL,
    started_at integer NOT NULL,
    finished_at integer,
    state text NOT NULL CHECK (state IN ('running', 'published', 'superseded', 'failed')),
    until integer,
    results_read integer,
    results_ignored text,
    instances integer,
    results_digest text,
    topology_digest text,
    downtimes_digest text,
    profile_digest text,
    input_digest text,
    profile text,
    software_version text,
    who text,
    change_no integer NOT NULL DEFAULT 0,
    exclusions_digest text NOT NULL DEFAULT '',
    newest_result integer NOT NULL DEFAULT 0,
    look_back integer NOT NULL DEFAULT 1,
    downtimes text NOT NULL DEFAULT '[]',
    exclusions text NOT NULL DEFAULT '[]'
) STRICT;
-- Finds the runs of one day.
CREATE INDEX run_report_day ON run (report, day);

-- The run that readers see for a report and day. It is replaced by a single statement, so that
-- readers never see a mixture of two runs.
CREATE TABLE published_run (
    report text NOT NULL,
    day text NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, day)
) STRICT;

-- A month (2026-11) whose published figures are final: its days keep their runs in published_run,
-- and later runs become candidates. Sealing it again adds a revision, which publishes the candidates.
CREATE TABLE seal (
    report text NOT NULL,
    month text NOT NULL CHECK (month GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]'),
    revision integer NOT NULL CHECK (revision >= 1),
    who text NOT NULL,
    reason text NOT NULL,
    sealed_at integer NOT NULL,
    PRIMARY KEY (report, month, revision)
) STRICT;

-- The runs that a revision published, one for each day with figures. Their figures are never swept.
CREATE TABLE revision_run (
    report text NOT NULL,
    month text NOT NULL,
    revision integer NOT NULL,
    day text NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, month, revision, day),
    FOREIGN KEY (report, month, revision) REFERENCES seal
) STRICT;

-- The newest run of a day in a sealed month, which the next seal publishes. It is superseded from
-- the start, but it is not swept.
CREATE TABLE candidate_run (
    report text NOT NULL,
    day text NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, day)
) STRICT;

-- Figures of an endpoint, service flavour or function at a site, or of a site, for one day. Unused
-- parts of the key are empty.
CREATE TABLE figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    level text NOT NULL CHECK (level IN ('endpoint', 'service', 'function', 'site')),
    site text NOT NULL,
    service_flavour text NOT NULL,
    host_name text NOT NULL,
    function text NOT NULL,
    availability real,
    reliability real,
    ok_s integer NOT NULL,
    warning_s integer NOT NULL,
    critical_s integer NOT NULL,
    unknown_s integer NOT NULL,
    missing_s integer NOT NULL,
    downtime_s integer NOT NULL,
    excluded_s integer NOT NULL,
    PRIMARY KEY (run_id, level, site, service_flavour, host_name, function)
) STRICT;

-- Weighted means of a group of sites for one day, and how many of its sites had a value. They are
-- NULL if no site had one, or all weights are 0.
CREATE TABLE group_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    group_type text NOT NULL,
    group_name text NOT NULL,
    availability real,
    reliability real,
    sites_expected integer NOT NULL,
    sites_known integer NOT NULL,
    PRIMARY KEY (run_id, group_type, group_name)
) STRICT;

-- The sites of a group that a run expected, with their weights in its means. All have a figure.
CREATE TABLE group_site (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    group_type text NOT NULL,
    group_name text NOT NULL,
    site text NOT NULL,
    weight integer NOT NULL,
    PRIMARY KEY (run_id, group_type, group_name, site)
) STRICT;

-- A status that held during [start_time, end_time) of the day. Unused parts of the key are empty.
-- There is neither a unique nor a foreign key: a run writes hundreds of thousands of rows, and each
-- of them only once.
CREATE TABLE timeline_segment (
    run_id integer NOT NULL,
    level text NOT NULL
        CHECK (level IN ('metric', 'endpoint', 'service', 'function', 'site')),
    site text NOT NULL,
    service_flavour text NOT NULL,
    host_name text NOT NULL,
    metric_name text NOT NULL,
    function text NOT NULL,
    start_time integer NOT NULL,
    end_time integer NOT NULL CHECK (end_time > start_time),
    status text NOT NULL
) STRICT;

-- Finds the timelines of one site.
CREATE INDEX timeline_segment_site ON timeline_segment (run_id, site, level);

-- A figure that differs from that of the previous run, old_run_id; names is JSON.
CREATE TABLE report_change_row (
    change_id integer PRIMARY KEY,
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    old_run_id integer,
    level text NOT NULL,
    names text NOT NULL,
    old text,
    new text,
    reason text NOT NULL
) STRICT;
-- Finds the changes of one run.
CREATE INDEX report_change_row_run ON report_change_row (run_id);

-- Archive ---------------------------------------------------------------------------------------

-- The newest version of a day in the archive: change_no is the newest change of changed_day that it
-- includes, and verified_at when its files were last found to be intact, NULL if they were not
-- checked since they were written. A record for `sam-db prune`; the archive does not need it.
CREATE TABLE archived_day (
    day text PRIMARY KEY,
    version integer NOT NULL CHECK (version >= 1),
    change_no integer NOT NULL,
    archived_at integer NOT NULL,
    verified_at integer
) STRICT, WITHOUT ROWID;

-- The days that a run read from the archive instead of from this database, and their versions.
CREATE TABLE run_archive (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    day text NOT NULL,
    version integer NOT NULL CHECK (version >= 1),
    PRIMARY KEY (run_id, day)
) STRICT, WITHOUT ROWID;
-- Finds the versions of a day that runs have read.
CREATE INDEX run_archive_day ON run_archive (day);
