-- The tables behind the views: names and results. They may change in any version; the interface is
-- 20_views.sql.
-- Times are epoch seconds; the views show them as text YYYY-MM-DDThh:mm:ssZ. Days are text.
-- Names are stored once and compared byte by byte.
-- Missing parts of a natural key are stored as '', so that they compare equal.

-- Versions --------------------------------------------------------------------------------------

-- The versions that the schema has had, and the oldest version whose programs work with each: the
-- one before if the version is additive, else the version itself. Upgrades add the rows.
CREATE TABLE compatibility (
    version text PRIMARY KEY,
    oldest_program text NOT NULL
) STRICT;

-- One row: which database this is, wherever it is moved to. An archive is of one database.
CREATE TABLE database_identity (
    database_id text PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO database_identity (database_id) VALUES (lower(hex(randomblob(16))));

-- Names -----------------------------------------------------------------------------------------

-- Names of sites.
CREATE TABLE site (
    site_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE
) STRICT;

-- Names of the hosts of endpoints.
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

-- Who sends messages: identities, and the names that the policy had for them when they last sent
-- something; without a policy the name is the identity.
CREATE TABLE publisher (
    publisher_id integer PRIMARY KEY,
    identity text NOT NULL UNIQUE,
    name text NOT NULL
) STRICT;

-- The four statuses that a probe can report, ranked by severity.
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

-- The newest status of a metric of an endpoint, as seen by one VO, and since when it has held.
-- other_at is the newest time at which another status held. interval_s is the usual time between two
-- results, learned from the given number of intervals (at most 100). Folds update it.
CREATE TABLE instance_status (
    status_id integer PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    status integer,
    since integer,
    measured_at integer,
    other_at integer,
    interval_s real,
    intervals integer NOT NULL DEFAULT 0,
    summary text,
    UNIQUE (endpoint_id, metric_id, vo_id)
) STRICT;

-- A metric of an endpoint, as seen by one VO and FQAN. Each result belongs to one instance.
CREATE TABLE metric_instance (
    instance_id integer PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    fqan_id integer NOT NULL REFERENCES fqan,
    status_id integer NOT NULL REFERENCES instance_status,
    UNIQUE (endpoint_id, metric_id, vo_id, fqan_id)
) STRICT;
-- Finds the instances that contribute to a row of instance_status.
CREATE INDEX metric_instance_status ON metric_instance (status_id);

-- Attributes of results that hardly ever change, among them the publisher, each combination stored
-- once. names is a JSON array of them and of the names of the instance, so that one look-up finds
-- both. A trigger derives the other columns from names; until it has run there is no instance_id and
-- no publisher_id.
CREATE TABLE result_source (
    source_id integer PRIMARY KEY,
    instance_id integer REFERENCES metric_instance,
    publisher_id integer REFERENCES publisher,
    service_uri text NOT NULL DEFAULT '',
    service_type text NOT NULL DEFAULT '',
    site_name text NOT NULL DEFAULT '',
    metric_type text NOT NULL DEFAULT '',
    data_type text NOT NULL DEFAULT '',
    role text NOT NULL DEFAULT '',
    nagios_name text NOT NULL DEFAULT '',
    encrypted text NOT NULL DEFAULT '',
    names text NOT NULL UNIQUE
) STRICT;

-- The host on which a probe ran, and the monitoring host that it ran for: part of the key of a
-- result, so that excluding one monitoring host leaves the results of the others.
CREATE TABLE gatherer (
    gatherer_id integer PRIMARY KEY,
    gathered_at text NOT NULL,
    monitoring_host text NOT NULL,
    UNIQUE (gathered_at, monitoring_host)
) STRICT;

-- SQLite has no functions: inserting a row here is a call with the columns as arguments. A trigger
-- (31_metric_output.sql) stores the result, and the table stays empty.
CREATE TABLE new_result (
    names text,
    measured_at integer,
    gathered_at text,
    monitoring_host text,
    status integer,
    summary text,
    performance_data text,
    message_id text,
    received_at integer,
    details text
) STRICT;

-- A call, like new_result: creates the metric instance of a source. Stays empty.
CREATE TABLE new_instance (
    host_id integer,
    service_flavour_id integer,
    metric_id integer,
    vo_id integer,
    fqan_id integer,
    source_id integer
) STRICT;

-- One result of a probe. Different results with the same instance, time and gatherer stand side by side,
-- numbered from 0 by ordinal. It has no foreign keys and no checks, which would cost as much as the
-- row itself: its only writer is the trigger that has just looked up all ids.
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
    received_at integer NOT NULL DEFAULT (unixepoch()),
    ordinal integer NOT NULL DEFAULT 0,
    has_details integer NOT NULL,
    UNIQUE (instance_id, measured_at, gatherer_id, ordinal)
) STRICT;
-- For reports, which read a range of times.
CREATE INDEX metric_result_measured_at ON metric_result (measured_at);

-- The long text of a result that has_details, stored separately because no report reads it and it may
-- be pruned earlier.
CREATE TABLE metric_result_detail (
    measured_at integer NOT NULL,
    instance_id integer NOT NULL,
    gatherer_id integer NOT NULL,
    ordinal integer NOT NULL DEFAULT 0,
    details text NOT NULL,
    PRIMARY KEY (instance_id, measured_at, gatherer_id, ordinal)
) STRICT;

-- Other publishers that have sent a stored result, each with the first message in which it did: if the
-- publisher of the result is revoked, the next one has sent it.
CREATE TABLE result_repeat (
    instance_id integer NOT NULL,
    measured_at integer NOT NULL,
    gatherer_id integer NOT NULL,
    ordinal integer NOT NULL,
    source_id integer NOT NULL,
    message_id text,
    received_at integer NOT NULL,
    PRIMARY KEY (instance_id, measured_at, gatherer_id, ordinal, source_id)
) STRICT;

-- A call, like new_result, by an update of its only row, which costs nothing where it is not made: a
-- result whose key was known. outcome is 0 if the call was not made, 1 if the result is a duplicate, 2
-- if it was stored. duplicates is the number of duplicates ever, which the loader counts.
CREATE TABLE known_key (
    known_key_id integer PRIMARY KEY,
    outcome integer NOT NULL,
    duplicates integer NOT NULL,
    names text,
    measured_at integer,
    gathered_at text,
    monitoring_host text,
    status integer,
    summary text,
    performance_data text,
    message_id text,
    received_at integer,
    details text
) STRICT;
INSERT INTO known_key (known_key_id, outcome, duplicates) VALUES (1, 0, 0);

-- Results to fold again. Together with the results newer than the one in folded, they are not yet
-- included in instance_status and changed_day.
CREATE TABLE load_news (
    result_id integer PRIMARY KEY
) STRICT;

-- One row: the newest result that was folded. up_to is the limit of the fold in progress.
CREATE TABLE folded (
    result_id integer NOT NULL,
    up_to integer NOT NULL
) STRICT;
INSERT INTO folded (result_id, up_to) VALUES (0, 9223372036854775807);

-- A call, like new_result: brings instance_status and changed_day up to date with the oldest
-- at_most unfolded results, or with all of them if it is NULL. Stays empty.
CREATE TABLE fold_news (
    at_most integer
) STRICT;
