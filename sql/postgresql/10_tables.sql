-- The other tables: statements, exclusions, dead letters, the audit, reports and the archive. See
-- 05_results.sql.

-- Statements ------------------------------------------------------------------------------------
-- Statements about endpoints, groups, contacts and downtimes: rows are added, and their content is
-- never changed. Of the statements about one key one holds (see store_statements()).
--
-- said_at is the time that orders them, received_at that of arrival. source is NULL for a message,
-- else 'hand', 'file' or 'feed NAME'. A statement with withdrawn_at never holds.

CREATE SEQUENCE statement_number;
COMMENT ON SEQUENCE statement_number IS 'The order in which statements arrived.';

CREATE TABLE endpoint_membership (
    statement_id bigint NOT NULL,
    valid_from timestamptz NOT NULL,
    said_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    site_id integer NOT NULL REFERENCES site,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    vo_id integer NOT NULL REFERENCES vo,
    publisher_id integer NOT NULL REFERENCES publisher,
    holds boolean NOT NULL,
    valid_to timestamptz,
    withdrawn_at timestamptz,
    service_uri text COLLATE "C",
    grid_site text COLLATE "C",
    production text COLLATE "C",
    monitored text COLLATE "C",
    source text COLLATE "C",
    message_id text COLLATE "C"
);
COMMENT ON TABLE endpoint_membership IS
    'An endpoint belongs to a site during [valid_from, valid_to). Without valid_to it belongs '
    'there until further notice. grid_site is the site that others know it by, where a VO names '
    'sites of its own.';
-- Finds the statements about a key; the rest of it would make the index twice as large.
CREATE INDEX endpoint_membership_key ON endpoint_membership (endpoint_id, site_id);

CREATE TABLE site_group_member (
    statement_id bigint NOT NULL,
    valid_from timestamptz NOT NULL,
    said_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    site_id integer NOT NULL REFERENCES site,
    site_group_id integer NOT NULL REFERENCES site_group,
    publisher_id integer NOT NULL REFERENCES publisher,
    weight integer CHECK (weight >= 0),
    holds boolean NOT NULL,
    valid_to timestamptz,
    withdrawn_at timestamptz,
    source text COLLATE "C",
    message_id text COLLATE "C"
);
COMMENT ON TABLE site_group_member IS 'A site belongs to a group during [valid_from, valid_to).';
-- Finds the statements about a key.
CREATE INDEX site_group_member_key ON site_group_member (site_id, site_group_id, valid_from);

CREATE TABLE site_contact (
    statement_id bigint NOT NULL,
    said_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    site_id integer NOT NULL REFERENCES site,
    publisher_id integer NOT NULL REFERENCES publisher,
    holds boolean NOT NULL,
    withdrawn_at timestamptz,
    contact text COLLATE "C" NOT NULL CHECK (length(contact) <= 255),
    source text COLLATE "C",
    message_id text COLLATE "C"
);
COMMENT ON TABLE site_contact IS 'The contact of a site. An empty contact was removed.';
-- Finds the statements about a key.
CREATE INDEX site_contact_key ON site_contact (site_id);

CREATE TABLE announced_downtime (
    statement_id bigint NOT NULL,
    start_key bigint NOT NULL,
    start_time timestamptz NOT NULL,
    end_time timestamptz NOT NULL CHECK (end_time >= start_time),
    said_at timestamptz NOT NULL,
    announced_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    site_id integer NOT NULL REFERENCES site,
    host_id integer NOT NULL REFERENCES host,
    service_flavour_id integer NOT NULL REFERENCES service_flavour,
    publisher_id integer NOT NULL REFERENCES publisher,
    holds boolean NOT NULL,
    withdrawn_at timestamptz,
    downtime_id text COLLATE "C" NOT NULL,
    classification text COLLATE "C" NOT NULL,
    severity text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    source text COLLATE "C",
    message_id text COLLATE "C"
);
COMMENT ON TABLE announced_downtime IS
    'A downtime announced for [start_time, end_time); if that is empty, the downtime is '
    'cancelled. start_key is the epoch second of the start for a downtime without an id, and 0 '
    'for one with an id, which may therefore move. announced_at is when people could know: at the '
    'arrival, unless a feed or a trusted publisher knows better.';
-- Finds the statements about a key.
CREATE INDEX announced_downtime_key
    ON announced_downtime (site_id, host_id, service_flavour_id, start_key, downtime_id);

-- Exclusions ------------------------------------------------------------------------------------

CREATE TABLE exclusion (
    exclusion_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('monitoring-host', 'metric', 'site')),
    monitoring_host text COLLATE "C" NOT NULL DEFAULT '',
    metric_name text COLLATE "C" NOT NULL DEFAULT '',
    site text COLLATE "C" NOT NULL DEFAULT '',
    service_flavour text COLLATE "C" NOT NULL DEFAULT '',
    host_name text COLLATE "C" NOT NULL DEFAULT '',
    start_time timestamptz NOT NULL,
    end_time timestamptz NOT NULL CHECK (end_time > start_time),
    reason text NOT NULL,
    who text NOT NULL,
    added_at timestamptz NOT NULL,
    removed_at timestamptz,
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
);
COMMENT ON TABLE exclusion IS
    'A period that does not count in reports, and who excluded it. An empty selector matches '
    'everything. For a monitoring host the second of end_time is excluded as well. A removed '
    'exclusion keeps its row, with removed_at set.';

-- Changes since the last reports ----------------------------------------------------------------

CREATE TABLE changed_day (
    day date PRIMARY KEY,
    change_no bigint,
    results_no bigint
);
COMMENT ON TABLE changed_day IS
    'Days whose results, topology, downtimes or exclusions have changed. A run of a report '
    'numbers the changes that it is about to read; NULL marks a change that no run has read yet. '
    'results_no numbers those of results alone. The earliest day is the first one with results.';
-- Finds the days without a number.
CREATE INDEX changed_day_change_no ON changed_day (change_no);

CREATE TABLE change_counter (
    change_no bigint NOT NULL
);
COMMENT ON TABLE change_counter IS
    'One row: the last change number assigned. Numbers are never reused.';
INSERT INTO change_counter (change_no) VALUES (0);

CREATE TABLE horizon (
    day date PRIMARY KEY
);
COMMENT ON TABLE horizon IS
    'At most one row: results before this day have been pruned, and the reports of those days are '
    'frozen.';

-- Dead letters ----------------------------------------------------------------------------------

CREATE TABLE dead_letter (
    dead_letter_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id text COLLATE "C" NOT NULL,
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
    body bytea NOT NULL,
    body_bytes integer NOT NULL,
    compressed boolean NOT NULL DEFAULT false,
    body_digest bytea NOT NULL,
    received_at timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replayed', 'dropped')),
    changed_at timestamptz NOT NULL,
    UNIQUE (message_id, record_number, body_digest)
);
COMMENT ON TABLE dead_letter IS
    'A record that could not be loaded, byte for byte, with the headers of its message as JSON. '
    'Record number 0 stands for the whole message. broker is the broker, spool or file it came '
    'from, and login the login that the broker named as its sender; claimed_host, claimed_program and '
    'claimed_user are where the sender says that it made the message. A compressed body is in the '
    'format of zlib, and body_bytes its size without that. The digest (SHA-256, of the uncompressed '
    'body) is part of the key, because senders choose message ids: other bytes under a known id are '
    'another letter.';
ALTER TABLE dead_letter ALTER body SET STORAGE EXTERNAL;  -- not compressed a second time
-- Counts open dead letters without reading them. The message class is not a key: senders choose
-- its name, which may be too long for an index.
CREATE INDEX dead_letter_open ON dead_letter (reason) WHERE state = 'open';

-- Audit -----------------------------------------------------------------------------------------

CREATE TABLE loaded_batch (
    batch_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    loaded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    database_user text NOT NULL DEFAULT session_user,
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
);
COMMENT ON TABLE loaded_batch IS
    'Audit of loaders: one row for each of their transactions, inserted in it. brokers is JSON '
    '{"broker": messages}, and publishers {"identity": [accepted records, refused records]}. rows '
    'counts rows that were stored, duplicates those that changed nothing, dead_letters new dead '
    'letters, repeated_dead_letters those that were already there, summarised_dead_letters those '
    'that exceeded a limit and are counted in a summary only, and checks messages that only prove '
    'that a path works. The database sets time and user.';
-- Finds recent batches, and those that are old enough to be pruned.
CREATE INDEX loaded_batch_loaded_at ON loaded_batch (loaded_at);

CREATE TABLE operation (
    operation_id bigint PRIMARY KEY,
    happened_at timestamptz NOT NULL,
    database_login text NOT NULL,
    os_login text NOT NULL,
    command text NOT NULL,
    arguments text NOT NULL,
    previous_digest text NOT NULL,
    digest text NOT NULL
);
COMMENT ON TABLE operation IS
    'What operators did to the data, inserted by record_operation() in the same transaction. '
    'arguments is JSON {"name": "value"}. The program states os_login, the database sets the rest. '
    'digest covers all other columns, and so, through previous_digest, all operations before.';

-- Reports ---------------------------------------------------------------------------------------
-- Each figure belongs to the run that computed it; readers see the runs in published_run.

CREATE TABLE run (
    run_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    report text COLLATE "C" NOT NULL,
    day date NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    state text NOT NULL CHECK (state IN ('running', 'published', 'superseded', 'failed')),
    until timestamptz,
    results_read bigint,
    results_ignored text,
    instances bigint,
    results_digest text,
    topology_digest text,
    downtimes_digest text,
    profile_digest text,
    input_digest text,
    profile text,
    software_version text,
    who text,
    change_no bigint NOT NULL DEFAULT 0,
    exclusions_digest text NOT NULL DEFAULT '',
    newest_result bigint NOT NULL DEFAULT 0,
    look_back integer NOT NULL DEFAULT 1,
    downtimes text NOT NULL DEFAULT '[]',
    exclusions text NOT NULL DEFAULT '[]'
);
COMMENT ON TABLE run IS
    'A computation of one report for one day, and what it read. until is the time of the run if '
    'the day was not over yet; results_ignored is JSON {"reason": count}; change_no is the newest '
    'change of changed_day that the run has read, and newest_result the last result_id. It counts '
    'results of look_back days before its own. downtimes and exclusions are JSON and list all that '
    'overlap the day, including those that do not count.';
-- Finds the runs of one day.
CREATE INDEX run_report_day ON run (report, day);

CREATE TABLE published_run (
    report text COLLATE "C" NOT NULL,
    day date NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, day)
);
COMMENT ON TABLE published_run IS
    'The run that readers see for a report and day. It is replaced by a single statement, so that '
    'readers never see a mixture of two runs.';

CREATE TABLE seal (
    report text COLLATE "C" NOT NULL,
    month text COLLATE "C" NOT NULL CHECK (month ~ '^\d{4}-\d\d$'),
    revision integer NOT NULL CHECK (revision >= 1),
    who text NOT NULL,
    reason text NOT NULL,
    sealed_at timestamptz NOT NULL,
    PRIMARY KEY (report, month, revision)
);
COMMENT ON TABLE seal IS
    'A month (2026-11) whose published figures are final: its days keep their runs in '
    'published_run, and later runs become candidates. Sealing it again adds a revision, which '
    'publishes the candidates.';

CREATE TABLE revision_run (
    report text COLLATE "C" NOT NULL,
    month text COLLATE "C" NOT NULL,
    revision integer NOT NULL,
    day date NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, month, revision, day),
    FOREIGN KEY (report, month, revision) REFERENCES seal
);
COMMENT ON TABLE revision_run IS
    'The runs that a revision published, one for each day with figures. Their figures are never '
    'swept.';

CREATE TABLE candidate_run (
    report text COLLATE "C" NOT NULL,
    day date NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, day)
);
COMMENT ON TABLE candidate_run IS
    'The newest run of a day in a sealed month, which the next seal publishes. It is superseded '
    'from the start, but it is not swept.';

CREATE TABLE figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    level text COLLATE "C" NOT NULL CHECK (level IN ('endpoint', 'service', 'function', 'site')),
    site text COLLATE "C" NOT NULL,
    service_flavour text COLLATE "C" NOT NULL,
    host_name text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    availability numeric(8, 5),
    reliability numeric(8, 5),
    ok_s integer NOT NULL,
    warning_s integer NOT NULL,
    critical_s integer NOT NULL,
    unknown_s integer NOT NULL,
    missing_s integer NOT NULL,
    downtime_s integer NOT NULL,
    excluded_s integer NOT NULL,
    PRIMARY KEY (run_id, level, site, service_flavour, host_name, function)
);
COMMENT ON TABLE figure IS
    'Figures of an endpoint, service flavour or function at a site, or of a site, for one day. '
    'Unused parts of the key are empty.';

CREATE TABLE group_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    group_type text COLLATE "C" NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    availability numeric(8, 5),
    reliability numeric(8, 5),
    sites_expected integer NOT NULL,
    sites_known integer NOT NULL,
    PRIMARY KEY (run_id, group_type, group_name)
);
COMMENT ON TABLE group_figure IS
    'Weighted means of a group of sites for one day, and how many of its sites had a value. They are '
    'NULL if no site had one, or all weights are 0.';

CREATE TABLE group_site (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    group_type text COLLATE "C" NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    site text COLLATE "C" NOT NULL,
    weight integer NOT NULL,
    PRIMARY KEY (run_id, group_type, group_name, site)
);
COMMENT ON TABLE group_site IS
    'The sites of a group that a run expected, with their weights in its means. All have a figure.';

CREATE TABLE timeline_segment (
    run_id integer NOT NULL,
    level text COLLATE "C" NOT NULL
        CHECK (level IN ('metric', 'endpoint', 'service', 'function', 'site')),
    site text COLLATE "C" NOT NULL,
    service_flavour text COLLATE "C" NOT NULL,
    host_name text COLLATE "C" NOT NULL,
    metric_name text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    start_time timestamptz NOT NULL,
    end_time timestamptz NOT NULL CHECK (end_time > start_time),
    status text NOT NULL
);
COMMENT ON TABLE timeline_segment IS
    'A status that held during [start_time, end_time) of the day. Unused parts of the key are '
    'empty. There is neither a unique nor a foreign key: a run writes hundreds of thousands of '
    'rows, and each of them only once.';
-- Finds the timelines of one site.
CREATE INDEX timeline_segment_site ON timeline_segment (run_id, site, level);

CREATE TABLE report_change_row (
    change_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    old_run_id integer,
    level text COLLATE "C" NOT NULL,
    names text NOT NULL,
    old text,
    new text,
    reason text NOT NULL
);
COMMENT ON TABLE report_change_row IS
    'A figure that differs from that of the previous run, old_run_id; names is JSON.';
-- Finds the changes of one run.
CREATE INDEX report_change_row_run ON report_change_row (run_id);

-- Archive ---------------------------------------------------------------------------------------

CREATE TABLE archived_day (
    day date PRIMARY KEY,
    version integer NOT NULL CHECK (version >= 1),
    change_no bigint NOT NULL,
    archived_at timestamptz NOT NULL,
    verified_at timestamptz
);
COMMENT ON TABLE archived_day IS
    'The newest version of a day in the archive: change_no is the newest change of changed_day that '
    'it includes, and verified_at when its files were last found to be intact, NULL if they were '
    'not checked since they were written. A record for `sam-db prune`; the archive does not need it.';

CREATE TABLE run_archive (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    day date NOT NULL,
    version integer NOT NULL CHECK (version >= 1),
    PRIMARY KEY (run_id, day)
);
COMMENT ON TABLE run_archive IS
    'The days that a run read from the archive instead of from this database, and their versions.';
-- Finds the versions of a day that runs have read.
CREATE INDEX run_archive_day ON run_archive (day);
