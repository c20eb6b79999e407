-- The tables behind the views: names and results. They may change in any version; the interface is
-- 20_views.sql.
-- Names are stored once and compared byte by byte (COLLATE "C": fast, and the same as in SQLite).
-- Missing parts of a natural key are stored as '', so that they compare equal.

-- Versions --------------------------------------------------------------------------------------

CREATE TABLE compatibility (
    version text PRIMARY KEY,
    oldest_program text NOT NULL
);
COMMENT ON TABLE compatibility IS
    'The versions that the schema has had, and the oldest version whose programs work with each: '
    'the one before if the version is additive, else the version itself. Upgrades add the rows.';

CREATE TABLE database_identity (
    database_id text COLLATE "C" PRIMARY KEY
);
COMMENT ON TABLE database_identity IS
    'One row: which database this is, wherever it is moved to. An archive is of one database.';
INSERT INTO database_identity (database_id) VALUES (CAST(gen_random_uuid() AS text));

-- Names -----------------------------------------------------------------------------------------

CREATE TABLE site (
    site_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE site IS 'Names of sites.';

CREATE TABLE host (
    host_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE host IS 'Names of the hosts of endpoints.';

CREATE TABLE service_flavour (
    service_flavour_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE service_flavour IS 'Names of service flavours.';

CREATE TABLE metric (
    metric_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE metric IS 'Names of metrics.';

CREATE TABLE vo (
    vo_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE vo IS 'Names of virtual organisations.';

CREATE TABLE fqan (
    fqan_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE fqan IS 'Fully qualified attribute names of VO members.';

CREATE TABLE site_group (
    site_group_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_type text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    UNIQUE (group_type, name)
);
COMMENT ON TABLE site_group IS 'Federations, regions, VOs and other groups of sites.';

CREATE TABLE publisher (
    publisher_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    EXCLUDE USING hash (identity WITH =)
);
COMMENT ON TABLE publisher IS
    'Who sends messages: identities, and the names that the policy had for them when they last sent '
    'something; without a policy the name is the identity. An identity is unique by a hash, which '
    'accepts texts of any length.';

CREATE TABLE metric_status (
    status smallint PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE metric_status IS 'The four statuses that a probe can report, ranked by severity.';

INSERT INTO metric_status (status, name)
VALUES (0, 'OK'), (1, 'WARNING'), (2, 'UNKNOWN'), (3, 'CRITICAL');

-- Results ---------------------------------------------------------------------------------------

CREATE TABLE endpoint (
    endpoint_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id integer NOT NULL REFERENCES host,
    service_flavour_id integer NOT NULL REFERENCES service_flavour,
    UNIQUE (host_id, service_flavour_id)
);
COMMENT ON TABLE endpoint IS 'A service flavour on a host, at any site.';

CREATE TABLE instance_status (
    status_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    status smallint,
    since timestamptz,
    measured_at timestamptz,
    other_at timestamptz,
    interval_s real,
    intervals smallint NOT NULL DEFAULT 0,
    summary text,
    UNIQUE (endpoint_id, metric_id, vo_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE instance_status IS
    'The newest status of a metric of an endpoint, as seen by one VO, and since when it has held. '
    'other_at is the newest time at which another status held. interval_s is the usual time between '
    'two results, learned from the given number of intervals (at most 100). fold_news() updates it '
    'from load_news.';

CREATE TABLE metric_instance (
    instance_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    fqan_id integer NOT NULL REFERENCES fqan,
    status_id integer NOT NULL REFERENCES instance_status,
    UNIQUE (endpoint_id, metric_id, vo_id, fqan_id)
);
COMMENT ON TABLE metric_instance IS
    'A metric of an endpoint, as seen by one VO and FQAN. Each result belongs to one instance.';
-- Finds the instances that contribute to a row of instance_status.
CREATE INDEX metric_instance_status ON metric_instance (status_id);

CREATE TABLE result_source (
    source_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id integer NOT NULL REFERENCES metric_instance,
    publisher_id integer NOT NULL REFERENCES publisher,
    service_uri text COLLATE "C" NOT NULL,
    service_type text COLLATE "C" NOT NULL,
    site_name text COLLATE "C" NOT NULL,
    metric_type text COLLATE "C" NOT NULL,
    data_type text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    nagios_name text COLLATE "C" NOT NULL,
    encrypted text COLLATE "C" NOT NULL,
    names text COLLATE "C" NOT NULL,
    EXCLUDE USING hash (names WITH =)
);
COMMENT ON TABLE result_source IS
    'Attributes of results that hardly ever change, among them the publisher, each combination '
    'stored once. names joins them with the names of the instance, so that one look-up finds both. '
    'It is unique by a hash, which accepts texts of any length.';

CREATE TABLE gatherer (
    gatherer_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    gathered_at text COLLATE "C" NOT NULL,
    monitoring_host text COLLATE "C" NOT NULL,
    UNIQUE (gathered_at, monitoring_host)
);
COMMENT ON TABLE gatherer IS
    'The host on which a probe ran, and the monitoring host that it ran for: part of the key of a '
    'result, so that excluding one monitoring host leaves the results of the others.';

-- Partitioned by UTC day, as metric_result_20261121. A partition is created when a result needs it,
-- and emptied and dropped by `sam-db prune`.
CREATE TABLE metric_result (
    result_id bigint GENERATED ALWAYS AS IDENTITY,
    measured_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    instance_id integer NOT NULL,
    gatherer_id integer NOT NULL,
    source_id integer NOT NULL,
    status smallint NOT NULL,
    ordinal smallint NOT NULL DEFAULT 0,
    has_details boolean NOT NULL,
    summary text,
    performance_data text,
    message_id text,
    UNIQUE (instance_id, measured_at, gatherer_id, ordinal)
) PARTITION BY RANGE (measured_at);
COMMENT ON TABLE metric_result IS
    'One result of a probe. Different results with the same instance, time and gatherer stand side '
    'by side, numbered from 0 by ordinal. It has no foreign keys and no checks, which would cost as '
    'much as the row itself: its only writer is the function that has just looked up all ids.';
-- For reports, which read parts of a day in parallel.
CREATE INDEX metric_result_measured_at ON metric_result USING brin (measured_at);

CREATE TABLE metric_result_detail (
    measured_at timestamptz NOT NULL,
    instance_id integer NOT NULL,
    gatherer_id integer NOT NULL,
    ordinal smallint NOT NULL DEFAULT 0,
    details text NOT NULL,
    PRIMARY KEY (instance_id, measured_at, gatherer_id, ordinal)
) PARTITION BY RANGE (measured_at);
COMMENT ON TABLE metric_result_detail IS
    'The long text of a result that has_details, stored separately because no report reads it and it '
    'may be pruned earlier.';

CREATE TABLE result_repeat (
    measured_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    instance_id integer NOT NULL,
    gatherer_id integer NOT NULL,
    source_id integer NOT NULL,
    ordinal smallint NOT NULL,
    message_id text COLLATE "C",
    PRIMARY KEY (instance_id, measured_at, gatherer_id, ordinal, source_id)
);
COMMENT ON TABLE result_repeat IS
    'Other publishers that have sent a stored result, each with the first message in which it did: '
    'if the publisher of the result is revoked, the next one has sent it.';

CREATE TABLE load_news (
    news_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_ids integer[] NOT NULL,
    measured_ats timestamptz[] NOT NULL,
    statuses smallint[] NOT NULL,
    summaries text[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE load_news IS
    'What each batch has stored, until fold_news() applies it to instance_status and changed_day. '
    'A loader that updated these itself would wait for all others that update the same rows.';
