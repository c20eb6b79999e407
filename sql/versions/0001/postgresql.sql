-- The tables beneath the views. They are free to change; what is promised stands in 20_views.sql.
-- Names are stored once and compared byte by byte (COLLATE "C": quick, and as SQLite does).
-- Absent parts of a natural key are stored as '' so that they are equal to each other.

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
COMMENT ON TABLE host IS 'Names of hosts: those with endpoints, and those where probes ran.';

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

CREATE TABLE metric_status (
    status smallint PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);
COMMENT ON TABLE metric_status IS
    'The four statuses a probe reports; the rank grows with the harm.';

INSERT INTO metric_status (status, name)
VALUES (0, 'OK'), (1, 'WARNING'), (2, 'UNKNOWN'), (3, 'CRITICAL');

-- Results ---------------------------------------------------------------------------------------

CREATE TABLE endpoint (
    endpoint_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id integer NOT NULL REFERENCES host,
    service_flavour_id integer NOT NULL REFERENCES service_flavour,
    UNIQUE (host_id, service_flavour_id)
);
COMMENT ON TABLE endpoint IS 'A service flavour on a host, at whatever site.';

CREATE TABLE metric_instance (
    instance_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    fqan_id integer NOT NULL REFERENCES fqan,
    names text COLLATE "C" NOT NULL UNIQUE,
    UNIQUE (endpoint_id, metric_id, vo_id, fqan_id)
);
COMMENT ON TABLE metric_instance IS
    'A metric of an endpoint, as seen by one VO and FQAN. names joins host, flavour, metric, VO '
    'and FQAN by unit separators: a result looks its instance up in one index instead of seven.';

CREATE TABLE result_origin (
    origin_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_uri text COLLATE "C" NOT NULL,
    service_type text COLLATE "C" NOT NULL,
    site_name text COLLATE "C" NOT NULL,
    metric_type text COLLATE "C" NOT NULL,
    data_type text COLLATE "C" NOT NULL,
    monitoring_host text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    nagios_name text COLLATE "C" NOT NULL,
    encrypted text COLLATE "C" NOT NULL,
    UNIQUE (
        service_uri, nagios_name, monitoring_host, site_name, service_type,
        metric_type, data_type, role, encrypted
    )
);
COMMENT ON TABLE result_origin IS
    'What a result says about where it comes from: texts that hardly ever change, stored once.';

CREATE TABLE metric_result (
    result_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id integer NOT NULL,
    measured_at timestamptz NOT NULL,
    gatherer_id integer NOT NULL,
    status smallint NOT NULL,
    origin_id integer NOT NULL,
    summary text,
    performance_data text,
    message_id text,
    UNIQUE (instance_id, measured_at, gatherer_id)
);
COMMENT ON TABLE metric_result IS
    'One result of a probe. No foreign keys and no checks: they would cost as much as the row, '
    'and its only writer is the trigger that has just looked everything up.';
CREATE INDEX metric_result_measured_at ON metric_result (measured_at);
COMMENT ON INDEX metric_result_measured_at IS 'Reports read a window of time.';

CREATE TABLE metric_result_detail (
    result_id bigint PRIMARY KEY REFERENCES metric_result ON DELETE CASCADE,
    details text NOT NULL
);
COMMENT ON TABLE metric_result_detail IS
    'The long text of a result, kept apart: no report reads it.';

-- Topology and downtimes ------------------------------------------------------------------------

CREATE TABLE endpoint_membership (
    membership_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    site_id integer NOT NULL REFERENCES site,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    vo_id integer NOT NULL REFERENCES vo,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz,
    service_uri text,
    production text,
    monitored text,
    message_id text,
    UNIQUE (site_id, endpoint_id, vo_id, valid_from)
);
COMMENT ON TABLE endpoint_membership IS
    'An endpoint belongs to a site in [valid_from, valid_to); no valid_to: until further notice.';

CREATE TABLE site_group_member (
    member_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    site_group_id integer NOT NULL REFERENCES site_group,
    site_id integer NOT NULL REFERENCES site,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz,
    weight integer CHECK (weight >= 0),
    message_id text,
    UNIQUE (site_id, site_group_id, valid_from)
);
COMMENT ON TABLE site_group_member IS 'A site belongs to a group in [valid_from, valid_to).';

CREATE TABLE announced_downtime (
    announced_downtime_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    downtime_id text COLLATE "C" NOT NULL,
    site_id integer NOT NULL REFERENCES site,
    host_id integer NOT NULL REFERENCES host,
    service_flavour_id integer NOT NULL REFERENCES service_flavour,
    start_key bigint NOT NULL,
    start_time timestamptz NOT NULL,
    end_time timestamptz NOT NULL CHECK (end_time >= start_time),
    classification text NOT NULL,
    severity text NOT NULL,
    description text,
    announced_at timestamptz,
    message_id text,
    UNIQUE (downtime_id, site_id, host_id, service_flavour_id, start_key)
);
COMMENT ON TABLE announced_downtime IS
    'An announced downtime [start_time, end_time); an empty one is cancelled. start_key: without '
    'an id the epoch second of the start, else 0, as a downtime with an id may move.';

-- What could not be loaded ----------------------------------------------------------------------

CREATE TABLE dead_letter (
    dead_letter_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id text COLLATE "C" NOT NULL,
    record_number integer NOT NULL,
    message_class text NOT NULL,
    reason text NOT NULL,
    error text NOT NULL,
    headers text NOT NULL,
    body bytea NOT NULL,
    received_at timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replayed', 'dropped')),
    changed_at timestamptz NOT NULL,
    UNIQUE (message_id, record_number)
);
COMMENT ON TABLE dead_letter IS
    'A record that could not be loaded, byte by byte, with the headers (JSON) of its message. '
    'Record 0 is the whole message.';

-- Reports ---------------------------------------------------------------------------------------
-- Every figure carries the run that made it; published_run says which run readers see.

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
    who text
);
COMMENT ON TABLE run IS
    'A computation of one report for one day and what it read; results_ignored is JSON '
    '{"reason": count}, until is the time of the run where the day was still open.';
CREATE INDEX run_report_day ON run (report, day);
COMMENT ON INDEX run_report_day IS 'The runs of one day.';

CREATE TABLE published_run (
    report text COLLATE "C" NOT NULL,
    day date NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, day)
);
COMMENT ON TABLE published_run IS
    'The run that readers see for a report and day: changed by one statement, so never a mixture.';

CREATE TABLE endpoint_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    site text COLLATE "C" NOT NULL,
    service_flavour text COLLATE "C" NOT NULL,
    host_name text COLLATE "C" NOT NULL,
    availability numeric(8, 5),
    reliability numeric(8, 5),
    ok_s integer NOT NULL,
    warning_s integer NOT NULL,
    critical_s integer NOT NULL,
    unknown_s integer NOT NULL,
    missing_s integer NOT NULL,
    downtime_s integer NOT NULL,
    excluded_s integer NOT NULL,
    PRIMARY KEY (run_id, site, service_flavour, host_name)
);
COMMENT ON TABLE endpoint_figure IS 'Figures of an endpoint at a site, one day.';

CREATE TABLE service_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    site text COLLATE "C" NOT NULL,
    service_flavour text COLLATE "C" NOT NULL,
    availability numeric(8, 5),
    reliability numeric(8, 5),
    ok_s integer NOT NULL,
    warning_s integer NOT NULL,
    critical_s integer NOT NULL,
    unknown_s integer NOT NULL,
    missing_s integer NOT NULL,
    downtime_s integer NOT NULL,
    excluded_s integer NOT NULL,
    PRIMARY KEY (run_id, site, service_flavour)
);
COMMENT ON TABLE service_figure IS 'Figures of a service flavour at a site, one day.';

CREATE TABLE function_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    site text COLLATE "C" NOT NULL,
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
    PRIMARY KEY (run_id, site, function)
);
COMMENT ON TABLE function_figure IS 'Figures of a function of a site, one day.';

CREATE TABLE site_figure (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    site text COLLATE "C" NOT NULL,
    availability numeric(8, 5),
    reliability numeric(8, 5),
    ok_s integer NOT NULL,
    warning_s integer NOT NULL,
    critical_s integer NOT NULL,
    unknown_s integer NOT NULL,
    missing_s integer NOT NULL,
    downtime_s integer NOT NULL,
    excluded_s integer NOT NULL,
    PRIMARY KEY (run_id, site)
);
COMMENT ON TABLE site_figure IS 'Figures of a site, one day.';

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
    'Weighted means of a group of sites, and how many of its sites had a value, one day.';

CREATE TABLE group_site (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    group_type text COLLATE "C" NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    site text COLLATE "C" NOT NULL,
    weight integer NOT NULL,
    PRIMARY KEY (run_id, group_type, group_name, site)
);
COMMENT ON TABLE group_site IS 'The sites a run counted in a group, with their weights.';

CREATE TABLE timeline_segment (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    level text COLLATE "C" NOT NULL
        CHECK (level IN ('metric', 'endpoint', 'service', 'function', 'site')),
    site text COLLATE "C" NOT NULL,
    service_flavour text COLLATE "C" NOT NULL,
    host_name text COLLATE "C" NOT NULL,
    metric_name text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    start_time timestamptz NOT NULL,
    end_time timestamptz NOT NULL CHECK (end_time > start_time),
    status text NOT NULL,
    PRIMARY KEY (
        run_id, level, site, service_flavour, host_name, metric_name, function, start_time
    )
);
COMMENT ON TABLE timeline_segment IS
    'A status held in [start_time, end_time) of the day; absent key parts are empty.';

CREATE TABLE report_change_row (
    change_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    level text COLLATE "C" NOT NULL,
    names text NOT NULL,
    old text,
    new text,
    reason text NOT NULL
);
COMMENT ON TABLE report_change_row IS
    'A figure that differs from the run before; names is JSON.';
CREATE INDEX report_change_row_run ON report_change_row (run_id);
COMMENT ON INDEX report_change_row_run IS 'The changes of one run.';
-- What is promised: class views (one per message class), report views, the inputs of reports.

-- Class views -----------------------------------------------------------------------------------
-- Columns are the attributes of the class, so `SELECT hostName FROM metricOutput` is what a person
-- types. Absent values are NULL. Insert into them: 30_triggers.sql.

CREATE VIEW metric_instance_name AS
SELECT
    i.instance_id,
    i.endpoint_id,
    h.name AS host_name,
    f.name AS service_flavour,
    m.name AS metric_name,
    v.name AS vo,
    q.name AS fqan
FROM metric_instance AS i
JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN metric AS m ON m.metric_id = i.metric_id
JOIN vo AS v ON v.vo_id = i.vo_id
JOIN fqan AS q ON q.fqan_id = i.fqan_id;
COMMENT ON VIEW metric_instance_name IS 'Metric instances with their names.';

CREATE VIEW metricOutput AS
SELECT
    n.host_name AS hostName,
    NULLIF(o.service_uri, '') AS serviceURI,
    n.service_flavour AS serviceFlavour,
    NULLIF(o.service_type, '') AS serviceType,
    NULLIF(o.site_name, '') AS siteName,
    n.metric_name AS metricName,
    NULLIF(o.metric_type, '') AS metricType,
    s.name AS metricStatus,
    NULLIF(o.data_type, '') AS dataType,
    r.performance_data AS performanceData,
    r.measured_at AS timestamp,
    NULLIF(g.name, '') AS gatheredAt,
    NULLIF(o.monitoring_host, '') AS monitoringHost,
    r.summary AS summaryData,
    d.details AS detailsData,
    NULLIF(n.vo, '') AS voName,
    NULLIF(n.fqan, '') AS voFqan,
    NULLIF(o.role, '') AS role,
    NULLIF(o.nagios_name, '') AS nagiosName,
    NULLIF(o.encrypted, '') AS encrypted,
    r.message_id AS messageId
FROM metric_result AS r
JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
JOIN metric_status AS s ON s.status = r.status
JOIN host AS g ON g.host_id = r.gatherer_id
JOIN result_origin AS o ON o.origin_id = r.origin_id
LEFT JOIN metric_result_detail AS d ON d.result_id = r.result_id;
COMMENT ON VIEW metricOutput IS 'Class: results of probes.';

CREATE VIEW serviceEndpoint AS
SELECT
    s.name AS siteName,
    h.name AS hostName,
    f.name AS serviceFlavour,
    m.service_uri AS serviceURI,
    NULLIF(v.name, '') AS voName,
    m.production AS production,
    m.monitored AS monitored,
    m.valid_from AS validFrom,
    m.valid_to AS validTo,
    m.message_id AS messageId
FROM endpoint_membership AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN vo AS v ON v.vo_id = m.vo_id;
COMMENT ON VIEW serviceEndpoint IS 'Class: which endpoints a site has, and since when.';

CREATE VIEW siteGroup AS
SELECT
    s.name AS siteName,
    g.name AS groupName,
    g.group_type AS groupType,
    m.weight AS weight,
    m.valid_from AS validFrom,
    m.valid_to AS validTo,
    m.message_id AS messageId
FROM site_group_member AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN site_group AS g ON g.site_group_id = m.site_group_id;
COMMENT ON VIEW siteGroup IS 'Class: which federation, region or other group a site belongs to.';

CREATE VIEW downtime AS
SELECT
    NULLIF(a.downtime_id, '') AS downtimeId,
    NULLIF(s.name, '') AS siteName,
    NULLIF(h.name, '') AS hostName,
    NULLIF(f.name, '') AS serviceFlavour,
    a.start_time AS startTime,
    a.end_time AS endTime,
    a.classification AS classification,
    a.severity AS severity,
    a.description AS description,
    a.announced_at AS timestamp,
    a.message_id AS messageId
FROM announced_downtime AS a
JOIN site AS s ON s.site_id = a.site_id
JOIN host AS h ON h.host_id = a.host_id
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id;
COMMENT ON VIEW downtime IS 'Class: announced downtimes; endTime = startTime: cancelled.';

-- Inputs of reports -----------------------------------------------------------------------------
-- Site-free where results are concerned; times twice, as time and as epoch seconds (…_s).

CREATE VIEW report_result AS
SELECT
    r.result_id,
    r.instance_id,
    n.host_name,
    n.service_flavour,
    n.metric_name,
    n.vo,
    n.fqan,
    r.measured_at,
    CAST(extract(epoch FROM r.measured_at) AS bigint) AS measured_at_s,
    s.name AS status,
    g.name AS gathered_at,
    o.monitoring_host,
    r.summary,
    r.performance_data,
    r.message_id
FROM metric_result AS r
JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
JOIN metric_status AS s ON s.status = r.status
JOIN host AS g ON g.host_id = r.gatherer_id
JOIN result_origin AS o ON o.origin_id = r.origin_id;
COMMENT ON VIEW report_result IS 'Results with the ids and names that reports read.';

CREATE VIEW report_topology AS
SELECT
    s.name AS site,
    h.name AS host_name,
    f.name AS service_flavour,
    v.name AS vo,
    m.service_uri,
    m.production,
    m.monitored,
    m.valid_from,
    m.valid_to,
    CAST(extract(epoch FROM m.valid_from) AS bigint) AS valid_from_s,
    CAST(extract(epoch FROM m.valid_to) AS bigint) AS valid_to_s
FROM endpoint_membership AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN vo AS v ON v.vo_id = m.vo_id;
COMMENT ON VIEW report_topology IS
    'Endpoints of sites, as announced; production and monitored as sent, NULL means yes.';

CREATE VIEW report_downtime AS
SELECT
    a.downtime_id,
    s.name AS site,
    h.name AS host_name,
    f.name AS service_flavour,
    a.start_time,
    a.end_time,
    CAST(extract(epoch FROM a.start_time) AS bigint) AS start_s,
    CAST(extract(epoch FROM a.end_time) AS bigint) AS end_s,
    a.classification,
    a.severity,
    a.description
FROM announced_downtime AS a
JOIN site AS s ON s.site_id = a.site_id
JOIN host AS h ON h.host_id = a.host_id
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id
WHERE a.end_time > a.start_time;
COMMENT ON VIEW report_downtime IS
    'Downtimes that were not cancelled; no flavour: all of the host, no host: the whole site.';

CREATE VIEW report_site_group AS
SELECT
    s.name AS site,
    g.group_type,
    g.name AS group_name,
    m.weight,
    m.valid_from,
    m.valid_to,
    CAST(extract(epoch FROM m.valid_from) AS bigint) AS valid_from_s,
    CAST(extract(epoch FROM m.valid_to) AS bigint) AS valid_to_s
FROM site_group_member AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN site_group AS g ON g.site_group_id = m.site_group_id;
COMMENT ON VIEW report_site_group IS 'Sites of groups, as announced.';

-- Report views ----------------------------------------------------------------------------------
-- Figures of the run that is published for a report and day.

CREATE VIEW endpoint_availability AS
SELECT
    p.report,
    p.day,
    g.site,
    g.service_flavour,
    g.host_name,
    g.availability,
    g.reliability,
    g.ok_s,
    g.warning_s,
    g.critical_s,
    g.unknown_s,
    g.missing_s,
    g.downtime_s,
    g.excluded_s,
    r.until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN endpoint_figure AS g ON g.run_id = p.run_id;
COMMENT ON VIEW endpoint_availability IS 'Availability of endpoints, by site and day.';

CREATE VIEW service_availability AS
SELECT
    p.report,
    p.day,
    g.site,
    g.service_flavour,
    g.availability,
    g.reliability,
    g.ok_s,
    g.warning_s,
    g.critical_s,
    g.unknown_s,
    g.missing_s,
    g.downtime_s,
    g.excluded_s,
    r.until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN service_figure AS g ON g.run_id = p.run_id;
COMMENT ON VIEW service_availability IS 'Availability of service flavours, by site and day.';

CREATE VIEW function_availability AS
SELECT
    p.report,
    p.day,
    g.site,
    g.function,
    g.availability,
    g.reliability,
    g.ok_s,
    g.warning_s,
    g.critical_s,
    g.unknown_s,
    g.missing_s,
    g.downtime_s,
    g.excluded_s,
    r.until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN function_figure AS g ON g.run_id = p.run_id;
COMMENT ON VIEW function_availability IS 'Availability of functions, by site and day.';

CREATE VIEW site_availability AS
SELECT
    p.report,
    p.day,
    g.site,
    g.availability,
    g.reliability,
    g.ok_s,
    g.warning_s,
    g.critical_s,
    g.unknown_s,
    g.missing_s,
    g.downtime_s,
    g.excluded_s,
    r.until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN site_figure AS g ON g.run_id = p.run_id;
COMMENT ON VIEW site_availability IS 'Availability of sites, by day.';

CREATE VIEW group_availability AS
SELECT
    p.report,
    p.day,
    g.group_type,
    g.group_name,
    g.availability,
    g.reliability,
    g.sites_expected,
    g.sites_known,
    p.run_id
FROM published_run AS p
JOIN group_figure AS g ON g.run_id = p.run_id;
COMMENT ON VIEW group_availability IS 'Availability of groups of sites, by day.';

CREATE VIEW report_group_site AS
SELECT
    p.report,
    p.day,
    g.group_type,
    g.group_name,
    g.site,
    g.weight,
    p.run_id
FROM published_run AS p
JOIN group_site AS g ON g.run_id = p.run_id;
COMMENT ON VIEW report_group_site IS 'The sites that count in a group, by day, with weights.';

CREATE VIEW status_timeline AS
SELECT
    p.report,
    p.day,
    t.level,
    t.site,
    t.service_flavour,
    t.host_name,
    t.metric_name,
    t.function,
    t.start_time,
    t.end_time,
    t.status,
    p.run_id
FROM published_run AS p
JOIN timeline_segment AS t ON t.run_id = p.run_id;
COMMENT ON VIEW status_timeline IS 'Who had which status from when to when, clipped to the day.';

CREATE VIEW current_status AS
WITH moment AS (
    -- Several results of one moment: the worse counts.
    SELECT i.endpoint_id, i.metric_id, i.vo_id, r.measured_at, max(r.status) AS status
    FROM metric_result AS r
    JOIN metric_instance AS i ON i.instance_id = r.instance_id
    GROUP BY i.endpoint_id, i.metric_id, i.vo_id, r.measured_at
),
step AS (
    SELECT
        moment.*,
        lag(status) OVER (
            PARTITION BY endpoint_id, metric_id, vo_id ORDER BY measured_at
        ) AS status_before
    FROM moment
),
newest AS (
    SELECT
        endpoint_id,
        metric_id,
        vo_id,
        max(measured_at) AS measured_at,
        max(CASE WHEN status_before = status THEN NULL ELSE measured_at END) AS since
    FROM step
    GROUP BY endpoint_id, metric_id, vo_id
),
told AS (
    SELECT
        newest.*,
        r.status,
        r.summary,
        row_number() OVER (
            PARTITION BY newest.endpoint_id, newest.metric_id, newest.vo_id
            ORDER BY r.status DESC, r.result_id
        ) AS place
    FROM newest
    JOIN metric_instance AS i
        ON i.endpoint_id = newest.endpoint_id
        AND i.metric_id = newest.metric_id
        AND i.vo_id = newest.vo_id
    JOIN metric_result AS r
        ON r.instance_id = i.instance_id AND r.measured_at = newest.measured_at
),
home AS (
    SELECT DISTINCT m.endpoint_id, s.name AS site
    FROM endpoint_membership AS m
    JOIN site AS s ON s.site_id = m.site_id
    WHERE m.valid_from <= now() AND (m.valid_to IS NULL OR m.valid_to > now())
)
SELECT
    coalesce(home.site, '') AS site,
    f.name AS service_flavour,
    h.name AS host_name,
    m.name AS metric_name,
    v.name AS vo,
    s.name AS status,
    told.since,
    told.measured_at,
    told.summary
FROM told
JOIN metric_status AS s ON s.status = told.status
JOIN endpoint AS e ON e.endpoint_id = told.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN metric AS m ON m.metric_id = told.metric_id
JOIN vo AS v ON v.vo_id = told.vo_id
LEFT JOIN home ON home.endpoint_id = told.endpoint_id
WHERE told.place = 1;
COMMENT ON VIEW current_status IS
    'The newest status of everything and since when it holds; no site: not in the topology now.';

CREATE VIEW report_run AS
SELECT
    run_id,
    report,
    day,
    started_at,
    finished_at,
    state,
    until,
    results_read,
    results_ignored,
    instances,
    results_digest,
    topology_digest,
    downtimes_digest,
    profile_digest,
    input_digest,
    profile,
    software_version,
    who
FROM run;
COMMENT ON VIEW report_run IS 'Every run of every report: what it read, and what became of it.';

CREATE VIEW report_change AS
SELECT
    c.run_id,
    r.report,
    r.day,
    c.level,
    c.names,
    c.old,
    c.new,
    c.reason
FROM report_change_row AS c
JOIN run AS r ON r.run_id = c.run_id;
COMMENT ON VIEW report_change IS 'What a run changed in the figures of the one before, and why.';
-- Inserts into the class views: check, look the names up (or create them), merge.
--
-- Redelivery is normal: the broker re-sends whatever was not acked. So a second copy changes
-- nothing, and which status, end or announcement wins does not depend on the order of arrival.
--
-- Names are created by one transaction at a time (an advisory lock, held to its end): two that met
-- the same new names in another order would deadlock on the unique indexes. Names that exist take
-- no lock.

-- Helpers ---------------------------------------------------------------------------------------

CREATE FUNCTION demand(fulfilled boolean, attribute text, value text, problem text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF fulfilled IS NOT TRUE THEN
        RAISE EXCEPTION '%: % %', attribute, quote_nullable(value), problem
            USING ERRCODE = 'check_violation', COLUMN = attribute;
    END IF;
END
$$;
COMMENT ON FUNCTION demand IS 'Refuse the row, naming attribute and value, unless fulfilled.';

CREATE FUNCTION is_time(value timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT isfinite(value) AND value = date_trunc('second', value)
$$;
COMMENT ON FUNCTION is_time IS 'A finite time in whole seconds.';

CREATE FUNCTION lock_names() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    key CONSTANT bigint := hashtextextended('sam names', 0);
BEGIN
    IF pg_try_advisory_xact_lock(key) THEN
        RETURN;
    END IF;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'another transaction is creating names: run this one again'
            USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM pg_advisory_xact_lock(key);
END
$$;
COMMENT ON FUNCTION lock_names IS
    'Become the one transaction that creates names. One that has written nothing yet waits for '
    'its turn; another must not, as others may already wait for its rows.';

CREATE FUNCTION id_of_name(kind text, wanted text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    found_id integer;
BEGIN
    LOOP
        EXECUTE format('SELECT %I FROM %I WHERE name = $1', kind || '_id', kind)
            INTO found_id USING coalesce(wanted, '');
        IF found_id IS NOT NULL THEN
            RETURN found_id;
        END IF;
        PERFORM lock_names();
        EXECUTE format('INSERT INTO %I (name) VALUES ($1) ON CONFLICT DO NOTHING', kind)
            USING coalesce(wanted, '');
    END LOOP;
END
$$;
COMMENT ON FUNCTION id_of_name IS 'The id of a name in the table of that kind; created if new.';

CREATE FUNCTION id_of_endpoint(host_name text, flavour text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    the_host integer := id_of_name('host', lower(host_name));
    the_flavour integer := id_of_name('service_flavour', flavour);
    found_id integer;
BEGIN
    LOOP
        SELECT endpoint_id INTO found_id FROM endpoint
        WHERE host_id = the_host AND service_flavour_id = the_flavour;
        IF FOUND THEN
            RETURN found_id;
        END IF;
        PERFORM lock_names();
        INSERT INTO endpoint (host_id, service_flavour_id) VALUES (the_host, the_flavour)
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
COMMENT ON FUNCTION id_of_endpoint IS 'The id of a service flavour on a host; created if new.';

-- metricOutput: of two statuses for one moment the worse stays, with its whole row ------------

CREATE FUNCTION make_names(result metricOutput) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    flavour text := coalesce(result.serviceFlavour, result.serviceType);
    names text[] := ARRAY[
        lower(result.hostName), flavour, result.metricName,
        coalesce(result.voName, ''), coalesce(result.voFqan, '')
    ];
BEGIN
    PERFORM demand(result.hostName <> '', 'hostName', result.hostName, 'is no host');
    PERFORM demand(flavour <> '', 'serviceFlavour', flavour, 'is no flavour');
    PERFORM demand(result.metricName <> '', 'metricName', result.metricName, 'is no metric');
    PERFORM demand(
        EXISTS (SELECT FROM metric_status WHERE name = upper(result.metricStatus)),
        'metricStatus', result.metricStatus, 'is none of OK, WARNING, CRITICAL, UNKNOWN'
    );
    PERFORM demand(
        array_to_string(names, '') !~ E'\x1f', 'hostName', result.hostName,
        'and the other names must not hold a unit separator'
    );
    PERFORM lock_names();
    PERFORM id_of_name('host', result.gatheredAt);
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, names)
    VALUES (
        id_of_endpoint(result.hostName, flavour), id_of_name('metric', result.metricName),
        id_of_name('vo', result.voName), id_of_name('fqan', result.voFqan),
        array_to_string(names, E'\x1f')
    )
    ON CONFLICT DO NOTHING;
    INSERT INTO result_origin (
        service_uri, service_type, site_name, metric_type, data_type,
        monitoring_host, role, nagios_name, encrypted
    )
    VALUES (
        coalesce(result.serviceURI, ''), coalesce(result.serviceType, ''),
        coalesce(result.siteName, ''), coalesce(result.metricType, ''),
        coalesce(result.dataType, ''), coalesce(result.monitoringHost, ''),
        coalesce(result.role, ''), coalesce(result.nagiosName, ''),
        coalesce(result.encrypted, '')
    )
    ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION make_names IS 'Check and create whatever names a result brings.';

CREATE FUNCTION metricOutput_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    new_status smallint;
    instance integer;
    gatherer integer;
    origin integer;
    stored_id bigint;
BEGIN
    IF is_time(NEW.timestamp) IS NOT TRUE THEN
        PERFORM demand(false, 'timestamp', CAST(NEW.timestamp AS text), 'is no time');
    END IF;
    FOR attempt IN 1..2 LOOP
        SELECT s.status, i.instance_id, g.host_id, o.origin_id
        INTO new_status, instance, gatherer, origin
        FROM metric_status AS s, metric_instance AS i, host AS g, result_origin AS o
        WHERE s.name = upper(NEW.metricStatus)
            AND i.names = concat_ws(
                E'\x1f', lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType),
                NEW.metricName, coalesce(NEW.voName, ''), coalesce(NEW.voFqan, '')
            )
            AND g.name = coalesce(NEW.gatheredAt, '')
            AND o.service_uri = coalesce(NEW.serviceURI, '')
            AND o.service_type = coalesce(NEW.serviceType, '')
            AND o.site_name = coalesce(NEW.siteName, '')
            AND o.metric_type = coalesce(NEW.metricType, '')
            AND o.data_type = coalesce(NEW.dataType, '')
            AND o.monitoring_host = coalesce(NEW.monitoringHost, '')
            AND o.role = coalesce(NEW.role, '')
            AND o.nagios_name = coalesce(NEW.nagiosName, '')
            AND o.encrypted = coalesce(NEW.encrypted, '');
        EXIT WHEN FOUND;
        PERFORM make_names(NEW);
    END LOOP;

    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, status, origin_id,
        summary, performance_data, message_id
    )
    VALUES (
        instance, NEW.timestamp, gatherer, new_status, origin,
        NEW.summaryData, NEW.performanceData, NEW.messageId
    )
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        origin_id = excluded.origin_id,
        summary = excluded.summary,
        performance_data = excluded.performance_data,
        message_id = excluded.message_id
    WHERE excluded.status > metric_result.status
    RETURNING result_id INTO stored_id;
    IF stored_id < lastval() THEN  -- the row was there, and this one is worse
        DELETE FROM metric_result_detail WHERE result_id = stored_id;
    END IF;
    IF stored_id IS NOT NULL AND NEW.detailsData IS NOT NULL THEN
        INSERT INTO metric_result_detail (result_id, details)
        VALUES (stored_id, NEW.detailsData);
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION metricOutput_insert IS 'Stores a result of a probe.';

CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput
FOR EACH ROW EXECUTE FUNCTION metricOutput_insert();
COMMENT ON TRIGGER metricOutput_insert ON metricOutput IS 'Stores a result of a probe.';

-- serviceEndpoint: the first row stays; validTo: a value beats none, of two the earlier ----

CREATE FUNCTION serviceEndpoint_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM demand(NEW.siteName <> '', 'siteName', NEW.siteName, 'is no site');
    PERFORM demand(NEW.hostName <> '', 'hostName', NEW.hostName, 'is no host');
    PERFORM demand(
        NEW.serviceFlavour <> '', 'serviceFlavour', NEW.serviceFlavour, 'is no flavour'
    );
    PERFORM demand(is_time(NEW.validFrom), 'validFrom', CAST(NEW.validFrom AS text), 'is no time');
    PERFORM demand(
        NEW.validTo IS NULL OR is_time(NEW.validTo),
        'validTo', CAST(NEW.validTo AS text), 'is no time'
    );
    INSERT INTO endpoint_membership AS known (
        site_id, endpoint_id, vo_id, valid_from, valid_to,
        service_uri, production, monitored, message_id
    )
    VALUES (
        id_of_name('site', NEW.siteName), id_of_endpoint(NEW.hostName, NEW.serviceFlavour),
        id_of_name('vo', NEW.voName), NEW.validFrom, NEW.validTo,
        NEW.serviceURI, NEW.production, NEW.monitored, NEW.messageId
    )
    ON CONFLICT (site_id, endpoint_id, vo_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(known.valid_to, 'infinity');
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION serviceEndpoint_insert IS 'Stores that an endpoint belongs to a site.';

CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint
FOR EACH ROW EXECUTE FUNCTION serviceEndpoint_insert();
COMMENT ON TRIGGER serviceEndpoint_insert ON serviceEndpoint IS
    'Stores that an endpoint belongs to a site.';

-- siteGroup: as serviceEndpoint -----------------------------------------------------------------

CREATE FUNCTION id_of_site_group(the_type text, the_name text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    found_id integer;
BEGIN
    LOOP
        SELECT site_group_id INTO found_id FROM site_group
        WHERE group_type = the_type AND name = the_name;
        IF FOUND THEN
            RETURN found_id;
        END IF;
        PERFORM lock_names();
        INSERT INTO site_group (group_type, name) VALUES (the_type, the_name)
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
COMMENT ON FUNCTION id_of_site_group IS 'The id of a group of sites; created if new.';

CREATE FUNCTION siteGroup_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM demand(NEW.siteName <> '', 'siteName', NEW.siteName, 'is no site');
    PERFORM demand(NEW.groupName <> '', 'groupName', NEW.groupName, 'is no group');
    PERFORM demand(NEW.groupType <> '', 'groupType', NEW.groupType, 'is no type of group');
    PERFORM demand(
        coalesce(NEW.weight, 0) >= 0, 'weight', CAST(NEW.weight AS text), 'is no weight'
    );
    PERFORM demand(is_time(NEW.validFrom), 'validFrom', CAST(NEW.validFrom AS text), 'is no time');
    PERFORM demand(
        NEW.validTo IS NULL OR is_time(NEW.validTo),
        'validTo', CAST(NEW.validTo AS text), 'is no time'
    );
    INSERT INTO site_group_member AS known (
        site_group_id, site_id, valid_from, valid_to, weight, message_id
    )
    VALUES (
        id_of_site_group(NEW.groupType, NEW.groupName), id_of_name('site', NEW.siteName),
        NEW.validFrom, NEW.validTo, NEW.weight, NEW.messageId
    )
    ON CONFLICT (site_id, site_group_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(known.valid_to, 'infinity');
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION siteGroup_insert IS 'Stores that a site belongs to a group.';

CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup
FOR EACH ROW EXECUTE FUNCTION siteGroup_insert();
COMMENT ON TRIGGER siteGroup_insert ON siteGroup IS 'Stores that a site belongs to a group.';

-- downtime: the newest announcement wins; one without a timestamp is older than any with one -

CREATE FUNCTION downtime_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM demand(
        concat(NEW.siteName, NEW.hostName) <> '', 'hostName', NEW.hostName,
        'is no host, and there is no siteName'
    );
    PERFORM demand(is_time(NEW.startTime), 'startTime', CAST(NEW.startTime AS text), 'is no time');
    PERFORM demand(is_time(NEW.endTime), 'endTime', CAST(NEW.endTime AS text), 'is no time');
    PERFORM demand(
        NEW.endTime >= NEW.startTime, 'endTime', CAST(NEW.endTime AS text), 'is before startTime'
    );
    PERFORM demand(
        NEW.classification <> '', 'classification', NEW.classification, 'is no classification'
    );
    PERFORM demand(NEW.severity <> '', 'severity', NEW.severity, 'is no severity');
    PERFORM demand(
        NEW.timestamp IS NULL OR is_time(NEW.timestamp),
        'timestamp', CAST(NEW.timestamp AS text), 'is no time'
    );
    INSERT INTO announced_downtime AS known (
        downtime_id, site_id, host_id, service_flavour_id, start_key,
        start_time, end_time, classification, severity, description, announced_at, message_id
    )
    VALUES (
        coalesce(NEW.downtimeId, ''), id_of_name('site', NEW.siteName),
        id_of_name('host', lower(NEW.hostName)),
        id_of_name('service_flavour', NEW.serviceFlavour),
        CASE
            WHEN coalesce(NEW.downtimeId, '') <> '' THEN 0
            ELSE extract(epoch FROM NEW.startTime)
        END,
        NEW.startTime, NEW.endTime, NEW.classification, NEW.severity, NEW.description,
        NEW.timestamp, NEW.messageId
    )
    ON CONFLICT (downtime_id, site_id, host_id, service_flavour_id, start_key) DO UPDATE SET
        start_time = excluded.start_time,
        end_time = excluded.end_time,
        classification = excluded.classification,
        severity = excluded.severity,
        description = excluded.description,
        announced_at = excluded.announced_at,
        message_id = excluded.message_id
    WHERE excluded.announced_at > coalesce(known.announced_at, '-infinity');
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION downtime_insert IS 'Stores an announced downtime.';

CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime
FOR EACH ROW EXECUTE FUNCTION downtime_insert();
COMMENT ON TRIGGER downtime_insert ON downtime IS 'Stores an announced downtime.';
