-- The tables beneath the views. They are free to change; what is promised stands in 20_views.sql.
-- Times are epoch seconds; the views show them as text YYYY-MM-DDThh:mm:ssZ. Days are text.
-- Names are stored once and compared byte by byte.
-- Absent parts of a natural key are stored as '' so that they are equal to each other.

-- Names -----------------------------------------------------------------------------------------

-- Names of sites.
CREATE TABLE site (
    site_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

-- Names of hosts: those with endpoints, and those where probes ran.
CREATE TABLE host (
    host_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

-- Names of service flavours.
CREATE TABLE service_flavour (
    service_flavour_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

-- Names of metrics.
CREATE TABLE metric (
    metric_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

-- Names of virtual organisations.
CREATE TABLE vo (
    vo_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

-- Fully qualified attribute names of VO members.
CREATE TABLE fqan (
    fqan_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

-- Federations, regions, VOs and other groups of sites.
CREATE TABLE site_group (
    site_group_id integer PRIMARY KEY,
    group_type text NOT NULL,
    name text NOT NULL,
    UNIQUE (group_type, name)
) STRICT;

-- The four statuses a probe reports; the rank grows with the harm.
CREATE TABLE metric_status (
    status integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

INSERT INTO metric_status (status, name)
VALUES (0, 'OK'), (1, 'WARNING'), (2, 'UNKNOWN'), (3, 'CRITICAL');

-- Results ---------------------------------------------------------------------------------------

-- A service flavour on a host, at any site.
CREATE TABLE endpoint (
    endpoint_id integer PRIMARY KEY,
    host_id integer NOT NULL REFERENCES host,
    service_flavour_id integer NOT NULL REFERENCES service_flavour,
    UNIQUE (host_id, service_flavour_id)
) STRICT;

-- The newest status of a metric of an endpoint, as seen by one VO, and since when it holds; other_at
-- is the newest time with another status. Follows the results by folds.
CREATE TABLE instance_status (
    status_id integer PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    status integer,
    since integer,
    measured_at integer,
    other_at integer,
    summary text,
    UNIQUE (endpoint_id, metric_id, vo_id)
) STRICT;

-- A metric of an endpoint, as seen by one VO and FQAN: what results are results of.
CREATE TABLE metric_instance (
    instance_id integer PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    fqan_id integer NOT NULL REFERENCES fqan,
    status_id integer NOT NULL REFERENCES instance_status,
    UNIQUE (endpoint_id, metric_id, vo_id, fqan_id)
) STRICT;
-- The instances whose newest result is one status.
CREATE INDEX metric_instance_status ON metric_instance (status_id);

-- What a result says about itself that hardly ever changes, stored once. names are all these texts
-- and those of the instance, as JSON: a result finds both by one look-up. All else follows from
-- names by a trigger; no instance: only until it has ended.
CREATE TABLE result_source (
    source_id integer PRIMARY KEY,
    instance_id integer REFERENCES metric_instance,
    service_uri text NOT NULL DEFAULT '',
    service_type text NOT NULL DEFAULT '',
    site_name text NOT NULL DEFAULT '',
    metric_type text NOT NULL DEFAULT '',
    data_type text NOT NULL DEFAULT '',
    monitoring_host text NOT NULL DEFAULT '',
    role text NOT NULL DEFAULT '',
    nagios_name text NOT NULL DEFAULT '',
    encrypted text NOT NULL DEFAULT '',
    names text NOT NULL UNIQUE
) STRICT;

-- SQLite has no functions: a row sent here is what a call with these arguments would be. Its
-- trigger (30_triggers.sql) stores the result; this table stays empty.
CREATE TABLE new_result (
    names text,
    measured_at integer,
    gathered_at text,
    status integer,
    summary text,
    performance_data text,
    message_id text,
    details text
) STRICT;

-- A call as new_result is: makes the metric instance of a source; stays empty.
CREATE TABLE new_instance (
    host_id integer,
    service_flavour_id integer,
    metric_id integer,
    vo_id integer,
    fqan_id integer,
    source_id integer
) STRICT;

-- One result of a probe. No foreign keys and no checks: they would cost as much as the row, and
-- its only writer is the trigger that has just looked everything up.
CREATE TABLE metric_result (
    result_id integer PRIMARY KEY,
    instance_id integer NOT NULL,
    measured_at integer NOT NULL,
    gatherer_id integer NOT NULL,
    status integer NOT NULL,
    source_id integer NOT NULL,
    summary text,
    performance_data text,
    message_id text,
    UNIQUE (instance_id, measured_at, gatherer_id)
) STRICT;
-- Reports read a window of time.
CREATE INDEX metric_result_measured_at ON metric_result (measured_at);

-- The long text of a result, kept apart: no report reads it, and it may be forgotten earlier. It
-- belongs to the result of the same status: a worse one that replaced it has its own.
CREATE TABLE metric_result_detail (
    measured_at integer NOT NULL,
    instance_id integer NOT NULL,
    gatherer_id integer NOT NULL,
    status integer NOT NULL,
    details text NOT NULL,
    PRIMARY KEY (instance_id, measured_at, gatherer_id)
) STRICT;

-- Results that became worse since they were folded. With those beyond folded they are the news that
-- instance_status and changed_day do not follow yet.
CREATE TABLE load_news (
    result_id integer PRIMARY KEY
) STRICT;

-- One row: the newest result that was folded. up_to is the limit of the fold that is under way.
CREATE TABLE folded (
    result_id integer NOT NULL,
    up_to integer NOT NULL
) STRICT;
INSERT INTO folded (result_id, up_to) VALUES (0, 9223372036854775807);

-- A call as new_result is: brings instance_status and changed_day up to so many results that are
-- news, or to all; stays empty.
CREATE TABLE fold_news (
    at_most integer
) STRICT;

-- Topology and downtimes ------------------------------------------------------------------------

-- An endpoint belongs to a site in [valid_from, valid_to); no valid_to: until further notice.
CREATE TABLE endpoint_membership (
    membership_id integer PRIMARY KEY,
    site_id integer NOT NULL REFERENCES site,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    vo_id integer NOT NULL REFERENCES vo,
    valid_from integer NOT NULL,
    valid_to integer,
    service_uri text,
    production text,
    monitored text,
    message_id text,
    UNIQUE (site_id, endpoint_id, vo_id, valid_from)
) STRICT;

-- A site belongs to a group in [valid_from, valid_to).
CREATE TABLE site_group_member (
    member_id integer PRIMARY KEY,
    site_group_id integer NOT NULL REFERENCES site_group,
    site_id integer NOT NULL REFERENCES site,
    valid_from integer NOT NULL,
    valid_to integer,
    weight integer CHECK (weight >= 0),
    message_id text,
    UNIQUE (site_id, site_group_id, valid_from)
) STRICT;

-- An announced downtime [start_time, end_time); an empty one is cancelled. start_key: without an
-- id the epoch second of the start, otherwise 0: a downtime with an id may move.
CREATE TABLE announced_downtime (
    announced_downtime_id integer PRIMARY KEY,
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
    announced_at integer,
    message_id text,
    UNIQUE (downtime_id, site_id, host_id, service_flavour_id, start_key)
) STRICT;

-- What shall not count --------------------------------------------------------------------------

-- A time that shall not count, and who says so; an absent selector, which means any, is empty. Of a
-- monitoring host the second end_time does not count either. Who takes one back leaves the row,
-- with removed_at.
CREATE TABLE exclusion (
    exclusion_id integer PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('monitoring-host', 'metric', 'group')),
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
    CHECK (
        CASE kind
            WHEN 'monitoring-host'
                THEN monitoring_host <> ''
                AND metric_name || site || service_flavour || host_name = ''
            WHEN 'metric' THEN metric_name <> '' AND monitoring_host = ''
            WHEN 'group'
                THEN site <> ''
                AND monitoring_host || metric_name || service_flavour || host_name = ''
        END
    ),
    CHECK ((removed_at IS NULL) = (removed_by IS NULL))
) STRICT;

-- What has changed since reports were made -----------------------------------------------------

-- Days whose results, topology, downtimes or exclusions changed. A run of a report numbers the
-- changes it is going to read; without a number: changed after any run. The first day with results
-- is the first of all.
CREATE TABLE changed_day (
    day text PRIMARY KEY,
    change_no integer
) STRICT, WITHOUT ROWID;
-- The days without a number.
CREATE INDEX changed_day_change_no ON changed_day (change_no);

-- One row: the last number given to changes, which is never given again.
CREATE TABLE change_counter (
    change_no integer NOT NULL
) STRICT;
INSERT INTO change_counter (change_no) VALUES (0);

-- One row at most: results before this day were pruned, and its reports are frozen.
CREATE TABLE horizon (
    day text PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- A call as new_result is: marks the days from first_day to last_day; stays empty.
CREATE TABLE new_change (
    first_day text,
    last_day text
) STRICT;

-- What could not be loaded ----------------------------------------------------------------------

-- A record that could not be loaded, byte by byte, with the headers (JSON) of its message.
-- Record 0 is the whole message.
CREATE TABLE dead_letter (
    dead_letter_id integer PRIMARY KEY,
    message_id text NOT NULL,
    record_number integer NOT NULL,
    message_class text NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    headers text NOT NULL,
    body blob NOT NULL,
    received_at integer NOT NULL,
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replayed', 'dropped')),
    changed_at integer NOT NULL,
    UNIQUE (message_id, record_number)
) STRICT;
-- The open ones are counted without reading a letter. Names of classes, which others write, may be
-- too long for an index.
CREATE INDEX dead_letter_open ON dead_letter (reason) WHERE state = 'open';

-- Who loaded what -------------------------------------------------------------------------------

-- Who loaded what: a row for each batch, in its transaction. brokers is JSON {"broker": messages};
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

-- Reports ---------------------------------------------------------------------------------------
-- Every figure carries the run that made it; published_run says which run readers see.

-- A computation of one report for one day and what it read; results_ignored is JSON {"reason":
-- count}, until is the time of the run where the day was still open, change_no the newest change of
-- changed_day that it has read, newest_result the last result_id. downtimes and exclusions are
-- JSON: those that touch the day, the ones that do not count, too.
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
    downtimes text NOT NULL DEFAULT '[]',
    exclusions text NOT NULL DEFAULT '[]'
) STRICT;
-- The runs of one day.
CREATE INDEX run_report_day ON run (report, day);

-- The run that readers see for a report and day: changed by one statement, so never a mixture.
CREATE TABLE published_run (
    report text NOT NULL,
    day text NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, day)
) STRICT;

-- A month (2026-11) whose published figures stay: its days keep their runs in published_run, and
-- later ones become candidates. sealed_at is the last time it was sealed.
CREATE TABLE seal (
    report text NOT NULL,
    month text NOT NULL CHECK (month GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]'),
    who text NOT NULL,
    sealed_at integer NOT NULL,
    PRIMARY KEY (report, month)
) STRICT;

-- The newest run of a sealed day, which the next seal publishes: superseded from its beginning, but
-- not swept.
CREATE TABLE candidate_run (
    report text NOT NULL,
    day text NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, day)
) STRICT;

-- Figures of an endpoint at a site, one day.
CREATE TABLE endpoint_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    site text NOT NULL,
    service_flavour text NOT NULL,
    host_name text NOT NULL,
    availability real,
    reliability real,
    ok_s integer NOT NULL,
    warning_s integer NOT NULL,
    critical_s integer NOT NULL,
    unknown_s integer NOT NULL,
    missing_s integer NOT NULL,
    downtime_s integer NOT NULL,
    excluded_s integer NOT NULL,
    PRIMARY KEY (run_id, site, service_flavour, host_name)
) STRICT;

-- Figures of a service flavour at a site, one day.
CREATE TABLE service_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    site text NOT NULL,
    service_flavour text NOT NULL,
    availability real,
    reliability real,
    ok_s integer NOT NULL,
    warning_s integer NOT NULL,
    critical_s integer NOT NULL,
    unknown_s integer NOT NULL,
    missing_s integer NOT NULL,
    downtime_s integer NOT NULL,
    excluded_s integer NOT NULL,
    PRIMARY KEY (run_id, site, service_flavour)
) STRICT;

-- Figures of a function of a site, one day.
CREATE TABLE function_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    site text NOT NULL,
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
    PRIMARY KEY (run_id, site, function)
) STRICT;

-- Figures of a site, one day.
CREATE TABLE site_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    site text NOT NULL,
    availability real,
    reliability real,
    ok_s integer NOT NULL,
    warning_s integer NOT NULL,
    critical_s integer NOT NULL,
    unknown_s integer NOT NULL,
    missing_s integer NOT NULL,
    downtime_s integer NOT NULL,
    excluded_s integer NOT NULL,
    PRIMARY KEY (run_id, site)
) STRICT;

-- Weighted means of a group of sites, and how many of its sites had a value, one day.
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

-- The sites a run counted in a group, with their weights.
CREATE TABLE group_site (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    group_type text NOT NULL,
    group_name text NOT NULL,
    site text NOT NULL,
    weight integer NOT NULL,
    PRIMARY KEY (run_id, group_type, group_name, site)
) STRICT;

-- A status held in [start_time, end_time) of the day; absent key parts are empty. Nothing is unique
-- and there is no foreign key: a run writes hundreds of thousands, and each once.
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

-- The timelines of one site.
CREATE INDEX timeline_segment_site ON timeline_segment (run_id, site, level);

-- A figure that differs from the run before; names is JSON.
CREATE TABLE report_change_row (
    change_id integer PRIMARY KEY,
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    level text NOT NULL,
    names text NOT NULL,
    old text,
    new text,
    reason text NOT NULL
) STRICT;
-- The changes of one run.
CREATE INDEX report_change_row_run ON report_change_row (run_id);
