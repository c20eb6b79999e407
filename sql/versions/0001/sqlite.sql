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

-- A service flavour on a host, at whatever site.
CREATE TABLE endpoint (
    endpoint_id integer PRIMARY KEY,
    host_id integer NOT NULL REFERENCES host,
    service_flavour_id integer NOT NULL REFERENCES service_flavour,
    UNIQUE (host_id, service_flavour_id)
) STRICT;

-- A metric of an endpoint, as seen by one VO and FQAN. names joins host, flavour, metric, VO and
-- FQAN by unit separators: a result looks its instance up in one index instead of seven.
CREATE TABLE metric_instance (
    instance_id integer PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    fqan_id integer NOT NULL REFERENCES fqan,
    names text NOT NULL UNIQUE,
    UNIQUE (endpoint_id, metric_id, vo_id, fqan_id)
) STRICT;

-- What a result says about where it comes from: texts that hardly ever change, stored once.
CREATE TABLE result_origin (
    origin_id integer PRIMARY KEY,
    service_uri text NOT NULL,
    service_type text NOT NULL,
    site_name text NOT NULL,
    metric_type text NOT NULL,
    data_type text NOT NULL,
    monitoring_host text NOT NULL,
    role text NOT NULL,
    nagios_name text NOT NULL,
    encrypted text NOT NULL,
    UNIQUE (
        service_uri, nagios_name, monitoring_host, site_name, service_type,
        metric_type, data_type, role, encrypted
    )
) STRICT;

-- SQLite has no functions: a row sent here makes the metric instance of these names, and what it
-- refers to (30_triggers.sql). The table stays empty.
CREATE TABLE new_instance (
    host_name text,
    service_flavour text,
    metric_name text,
    vo text,
    fqan text
) STRICT;

-- One result of a probe. No foreign keys and no checks: they would cost as much as the row, and
-- its only writer is the trigger that has just looked everything up.
CREATE TABLE metric_result (
    result_id integer PRIMARY KEY,
    instance_id integer NOT NULL,
    measured_at integer NOT NULL,
    gatherer_id integer NOT NULL,
    status integer NOT NULL,
    origin_id integer NOT NULL,
    summary text,
    performance_data text,
    message_id text,
    UNIQUE (instance_id, measured_at, gatherer_id)
) STRICT;
-- Reports read a window of time.
CREATE INDEX metric_result_measured_at ON metric_result (measured_at);

-- The long text of a result, kept apart: no report reads it.
CREATE TABLE metric_result_detail (
    result_id integer PRIMARY KEY REFERENCES metric_result ON DELETE CASCADE,
    details text NOT NULL
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
-- id the epoch second of the start, else 0, as a downtime with an id may move.
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

-- Reports ---------------------------------------------------------------------------------------
-- Every figure carries the run that made it; published_run says which run readers see.

-- A computation of one report for one day and what it read; results_ignored is JSON {"reason":
-- count}, until is the time of the run where the day was still open.
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
    who text
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

-- A status held in [start_time, end_time) of the day; absent key parts are empty.
CREATE TABLE timeline_segment (
    run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,
    level text NOT NULL
        CHECK (level IN ('metric', 'endpoint', 'service', 'function', 'site')),
    site text NOT NULL,
    service_flavour text NOT NULL,
    host_name text NOT NULL,
    metric_name text NOT NULL,
    function text NOT NULL,
    start_time integer NOT NULL,
    end_time integer NOT NULL CHECK (end_time > start_time),
    status text NOT NULL,
    PRIMARY KEY (
        run_id, level, site, service_flavour, host_name, metric_name, function, start_time
    )
) STRICT;

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
-- What is promised: class views (one per message class), report views, the inputs of reports.

-- Class views -----------------------------------------------------------------------------------
-- Columns are the attributes of the class, so `SELECT hostName FROM metricOutput` is what a person
-- types. Absent values are NULL. Insert into them: 30_triggers.sql.

-- Metric instances with their names.
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

-- Class: results of probes.
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
    strftime('%Y-%m-%dT%H:%M:%SZ', r.measured_at, 'unixepoch') AS timestamp,
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

-- Class: which endpoints a site has, and since when.
CREATE VIEW serviceEndpoint AS
SELECT
    s.name AS siteName,
    h.name AS hostName,
    f.name AS serviceFlavour,
    m.service_uri AS serviceURI,
    NULLIF(v.name, '') AS voName,
    m.production AS production,
    m.monitored AS monitored,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_from, 'unixepoch') AS validFrom,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch') AS validTo,
    m.message_id AS messageId
FROM endpoint_membership AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN vo AS v ON v.vo_id = m.vo_id;

-- Class: which federation, region or other group a site belongs to.
CREATE VIEW siteGroup AS
SELECT
    s.name AS siteName,
    g.name AS groupName,
    g.group_type AS groupType,
    m.weight AS weight,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_from, 'unixepoch') AS validFrom,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch') AS validTo,
    m.message_id AS messageId
FROM site_group_member AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN site_group AS g ON g.site_group_id = m.site_group_id;

-- Class: announced downtimes; endTime = startTime: cancelled.
CREATE VIEW downtime AS
SELECT
    NULLIF(a.downtime_id, '') AS downtimeId,
    NULLIF(s.name, '') AS siteName,
    NULLIF(h.name, '') AS hostName,
    NULLIF(f.name, '') AS serviceFlavour,
    strftime('%Y-%m-%dT%H:%M:%SZ', a.start_time, 'unixepoch') AS startTime,
    strftime('%Y-%m-%dT%H:%M:%SZ', a.end_time, 'unixepoch') AS endTime,
    a.classification AS classification,
    a.severity AS severity,
    a.description AS description,
    strftime('%Y-%m-%dT%H:%M:%SZ', a.announced_at, 'unixepoch') AS timestamp,
    a.message_id AS messageId
FROM announced_downtime AS a
JOIN site AS s ON s.site_id = a.site_id
JOIN host AS h ON h.host_id = a.host_id
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id;

-- Inputs of reports -----------------------------------------------------------------------------
-- Site-free where results are concerned; times twice, as time and as epoch seconds (…_s).

-- Results with the ids and names that reports read.
CREATE VIEW report_result AS
SELECT
    r.result_id,
    r.instance_id,
    n.host_name,
    n.service_flavour,
    n.metric_name,
    n.vo,
    n.fqan,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.measured_at, 'unixepoch') AS measured_at,
    r.measured_at AS measured_at_s,
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

-- Endpoints of sites, as announced; production and monitored as sent, NULL means yes.
CREATE VIEW report_topology AS
SELECT
    s.name AS site,
    h.name AS host_name,
    f.name AS service_flavour,
    v.name AS vo,
    m.service_uri,
    m.production,
    m.monitored,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_from, 'unixepoch') AS valid_from,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch') AS valid_to,
    m.valid_from AS valid_from_s,
    m.valid_to AS valid_to_s
FROM endpoint_membership AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN vo AS v ON v.vo_id = m.vo_id;

-- Downtimes that were not cancelled; no flavour: all of the host, no host: the whole site.
CREATE VIEW report_downtime AS
SELECT
    a.downtime_id,
    s.name AS site,
    h.name AS host_name,
    f.name AS service_flavour,
    strftime('%Y-%m-%dT%H:%M:%SZ', a.start_time, 'unixepoch') AS start_time,
    strftime('%Y-%m-%dT%H:%M:%SZ', a.end_time, 'unixepoch') AS end_time,
    a.start_time AS start_s,
    a.end_time AS end_s,
    a.classification,
    a.severity,
    a.description
FROM announced_downtime AS a
JOIN site AS s ON s.site_id = a.site_id
JOIN host AS h ON h.host_id = a.host_id
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id
WHERE a.end_time > a.start_time;

-- Sites of groups, as announced.
CREATE VIEW report_site_group AS
SELECT
    s.name AS site,
    g.group_type,
    g.name AS group_name,
    m.weight,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_from, 'unixepoch') AS valid_from,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch') AS valid_to,
    m.valid_from AS valid_from_s,
    m.valid_to AS valid_to_s
FROM site_group_member AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN site_group AS g ON g.site_group_id = m.site_group_id;

-- Report views ----------------------------------------------------------------------------------
-- Figures of the run that is published for a report and day.

-- Availability of endpoints, by site and day.
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
    strftime('%Y-%m-%dT%H:%M:%SZ', r.until, 'unixepoch') AS until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN endpoint_figure AS g ON g.run_id = p.run_id;

-- Availability of service flavours, by site and day.
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
    strftime('%Y-%m-%dT%H:%M:%SZ', r.until, 'unixepoch') AS until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN service_figure AS g ON g.run_id = p.run_id;

-- Availability of functions, by site and day.
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
    strftime('%Y-%m-%dT%H:%M:%SZ', r.until, 'unixepoch') AS until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN function_figure AS g ON g.run_id = p.run_id;

-- Availability of sites, by day.
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
    strftime('%Y-%m-%dT%H:%M:%SZ', r.until, 'unixepoch') AS until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN site_figure AS g ON g.run_id = p.run_id;

-- Availability of groups of sites, by day.
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

-- The sites that count in a group, by day, with weights.
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

-- Who had which status from when to when, clipped to the day.
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
    strftime('%Y-%m-%dT%H:%M:%SZ', t.start_time, 'unixepoch') AS start_time,
    strftime('%Y-%m-%dT%H:%M:%SZ', t.end_time, 'unixepoch') AS end_time,
    t.status,
    p.run_id
FROM published_run AS p
JOIN timeline_segment AS t ON t.run_id = p.run_id;

-- The newest status of everything and since when it holds; no site: not in the topology now.
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
    WHERE m.valid_from <= unixepoch('now') AND (m.valid_to IS NULL OR m.valid_to > unixepoch('now'))
)
SELECT
    coalesce(home.site, '') AS site,
    f.name AS service_flavour,
    h.name AS host_name,
    m.name AS metric_name,
    v.name AS vo,
    s.name AS status,
    strftime('%Y-%m-%dT%H:%M:%SZ', told.since, 'unixepoch') AS since,
    strftime('%Y-%m-%dT%H:%M:%SZ', told.measured_at, 'unixepoch') AS measured_at,
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

-- Every run of every report: what it read, and what became of it.
CREATE VIEW report_run AS
SELECT
    run_id,
    report,
    day,
    strftime('%Y-%m-%dT%H:%M:%SZ', started_at, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', finished_at, 'unixepoch') AS finished_at,
    state,
    strftime('%Y-%m-%dT%H:%M:%SZ', until, 'unixepoch') AS until,
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

-- What a run changed in the figures of the one before, and why.
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
-- Inserts into the class views: check, look the names up (or create them), merge.
--
-- Redelivery is normal: the broker re-sends whatever was not acked. So a second copy changes
-- nothing, and which status, end or announcement wins does not depend on the order of arrival.
--
-- A time is accepted if it reads the same after being understood: YYYY-MM-DDThh:mm:ssZ, nothing
-- else. Where a time may be absent, 1e18 stands for later than any and -1e18 for earlier.

-- metricOutput: of two statuses for one moment the worse stays, with its whole row ------------

-- Makes a metric instance and the names it refers to; RAISE(IGNORE) keeps the row itself out.
CREATE TRIGGER new_instance_insert BEFORE INSERT ON new_instance BEGIN
    SELECT CASE
        WHEN coalesce(NEW.host_name, '') = '' THEN RAISE(ABORT, 'hostName: is no host')
        WHEN coalesce(NEW.service_flavour, '') = ''
            THEN RAISE(ABORT, 'serviceFlavour: is no flavour')
        WHEN coalesce(NEW.metric_name, '') = '' THEN RAISE(ABORT, 'metricName: is no metric')
        WHEN instr(
            NEW.host_name || NEW.service_flavour || NEW.metric_name || NEW.vo || NEW.fqan, char(31)
        )
            THEN RAISE(ABORT, 'hostName: and the other names must not hold a unit separator')
    END;

    INSERT INTO host (name) VALUES (NEW.host_name) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.service_flavour) ON CONFLICT (name) DO NOTHING;
    INSERT INTO metric (name) VALUES (NEW.metric_name) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (NEW.vo) ON CONFLICT (name) DO NOTHING;
    INSERT INTO fqan (name) VALUES (NEW.fqan) ON CONFLICT (name) DO NOTHING;
    INSERT INTO endpoint (host_id, service_flavour_id)
    SELECT h.host_id, f.service_flavour_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.service_flavour
    WHERE h.name = NEW.host_name
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, names)
    SELECT
        e.endpoint_id, m.metric_id, v.vo_id, q.fqan_id,
        NEW.host_name || char(31) || NEW.service_flavour || char(31) || NEW.metric_name
        || char(31) || NEW.vo || char(31) || NEW.fqan
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.service_flavour
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN metric AS m ON m.name = NEW.metric_name
    JOIN vo AS v ON v.name = NEW.vo
    JOIN fqan AS q ON q.name = NEW.fqan
    WHERE h.name = NEW.host_name;
    SELECT RAISE(IGNORE);
END;

-- Stores a result of a probe.
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput BEGIN
    SELECT CASE
        WHEN NEW.timestamp IS NULL
            OR NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp)
            THEN RAISE(ABORT, 'timestamp: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NOT EXISTS (SELECT 1 FROM metric_status WHERE name = upper(NEW.metricStatus))
            THEN RAISE(ABORT, 'metricStatus: is none of OK, WARNING, CRITICAL, UNKNOWN')
    END;

    INSERT INTO new_instance (host_name, service_flavour, metric_name, vo, fqan)
    SELECT
        lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType), NEW.metricName,
        coalesce(NEW.voName, ''), coalesce(NEW.voFqan, '')
    WHERE NOT EXISTS (
        SELECT 1 FROM metric_instance
        WHERE names = lower(NEW.hostName) || char(31)
            || coalesce(NEW.serviceFlavour, NEW.serviceType) || char(31)
            || NEW.metricName || char(31)
            || coalesce(NEW.voName, '') || char(31)
            || coalesce(NEW.voFqan, '')
    );
    INSERT INTO host (name) VALUES (coalesce(NEW.gatheredAt, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO result_origin (
        service_uri, service_type, site_name, metric_type, data_type,
        monitoring_host, role, nagios_name, encrypted
    )
    VALUES (
        coalesce(NEW.serviceURI, ''), coalesce(NEW.serviceType, ''), coalesce(NEW.siteName, ''),
        coalesce(NEW.metricType, ''), coalesce(NEW.dataType, ''),
        coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''), coalesce(NEW.nagiosName, ''),
        coalesce(NEW.encrypted, '')
    )
    ON CONFLICT DO NOTHING;

    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, status, origin_id,
        summary, performance_data, message_id
    )
    SELECT
        i.instance_id, unixepoch(NEW.timestamp), g.host_id, s.status, o.origin_id,
        NEW.summaryData, NEW.performanceData, NEW.messageId
    FROM metric_instance AS i
    JOIN host AS g ON g.name = coalesce(NEW.gatheredAt, '')
    JOIN metric_status AS s ON s.name = upper(NEW.metricStatus)
    JOIN result_origin AS o
        ON o.service_uri = coalesce(NEW.serviceURI, '')
        AND o.service_type = coalesce(NEW.serviceType, '')
        AND o.site_name = coalesce(NEW.siteName, '')
        AND o.metric_type = coalesce(NEW.metricType, '')
        AND o.data_type = coalesce(NEW.dataType, '')
        AND o.monitoring_host = coalesce(NEW.monitoringHost, '')
        AND o.role = coalesce(NEW.role, '')
        AND o.nagios_name = coalesce(NEW.nagiosName, '')
        AND o.encrypted = coalesce(NEW.encrypted, '')
    WHERE i.names = lower(NEW.hostName) || char(31)
        || coalesce(NEW.serviceFlavour, NEW.serviceType) || char(31)
        || NEW.metricName || char(31)
        || coalesce(NEW.voName, '') || char(31)
        || coalesce(NEW.voFqan, '')
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        origin_id = excluded.origin_id,
        summary = excluded.summary,
        performance_data = excluded.performance_data,
        message_id = excluded.message_id
    WHERE excluded.status > metric_result.status;

    -- changes() is 1 if the statement above stored the row, 0 if what was there stays.
    INSERT INTO metric_result_detail (result_id, details)
    SELECT r.result_id, NEW.detailsData
    FROM metric_instance AS i
    JOIN host AS g ON g.name = coalesce(NEW.gatheredAt, '')
    JOIN metric_result AS r
        ON r.instance_id = i.instance_id
        AND r.measured_at = unixepoch(NEW.timestamp)
        AND r.gatherer_id = g.host_id
    WHERE changes() = 1
        AND NEW.detailsData IS NOT NULL
        AND i.names = lower(NEW.hostName) || char(31)
            || coalesce(NEW.serviceFlavour, NEW.serviceType) || char(31)
            || NEW.metricName || char(31)
            || coalesce(NEW.voName, '') || char(31)
            || coalesce(NEW.voFqan, '');
END;

-- Forgets the details of a result that a worse replaced.
CREATE TRIGGER metric_result_worsen AFTER UPDATE OF status ON metric_result BEGIN
    DELETE FROM metric_result_detail WHERE result_id = OLD.result_id;
END;

-- serviceEndpoint: the first row stays; validTo: a value beats none, of two the earlier ----

-- Stores that an endpoint belongs to a site.
CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is no site')
        WHEN coalesce(NEW.hostName, '') = '' THEN RAISE(ABORT, 'hostName: is no host')
        WHEN coalesce(NEW.serviceFlavour, '') = ''
            THEN RAISE(ABORT, 'serviceFlavour: is no flavour')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validFrom)
            THEN RAISE(ABORT, 'validFrom: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.validTo IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validTo)
            THEN RAISE(ABORT, 'validTo: is no time YYYY-MM-DDThh:mm:ssZ')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO host (name) VALUES (lower(NEW.hostName)) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.serviceFlavour) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (coalesce(NEW.voName, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO endpoint (host_id, service_flavour_id)
    SELECT h.host_id, f.service_flavour_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    WHERE h.name = lower(NEW.hostName)
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;

    INSERT INTO endpoint_membership (
        site_id, endpoint_id, vo_id, valid_from, valid_to,
        service_uri, production, monitored, message_id
    )
    SELECT
        s.site_id, e.endpoint_id, v.vo_id, unixepoch(NEW.validFrom), unixepoch(NEW.validTo),
        NEW.serviceURI, NEW.production, NEW.monitored, NEW.messageId
    FROM site AS s
    JOIN host AS h ON h.name = lower(NEW.hostName)
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN vo AS v ON v.name = coalesce(NEW.voName, '')
    WHERE s.name = NEW.siteName
    ON CONFLICT (site_id, endpoint_id, vo_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(endpoint_membership.valid_to, 1e18);
END;

-- siteGroup: as serviceEndpoint -----------------------------------------------------------------

-- Stores that a site belongs to a group.
CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is no site')
        WHEN coalesce(NEW.groupName, '') = '' THEN RAISE(ABORT, 'groupName: is no group')
        WHEN coalesce(NEW.groupType, '') = '' THEN RAISE(ABORT, 'groupType: is no type of group')
        WHEN NEW.weight < 0 OR NEW.weight GLOB '*[^0-9]*' OR NEW.weight = ''
            THEN RAISE(ABORT, 'weight: is no weight')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validFrom)
            THEN RAISE(ABORT, 'validFrom: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.validTo IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validTo)
            THEN RAISE(ABORT, 'validTo: is no time YYYY-MM-DDThh:mm:ssZ')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO site_group (group_type, name) VALUES (NEW.groupType, NEW.groupName)
    ON CONFLICT (group_type, name) DO NOTHING;

    INSERT INTO site_group_member (
        site_group_id, site_id, valid_from, valid_to, weight, message_id
    )
    SELECT
        g.site_group_id, s.site_id, unixepoch(NEW.validFrom), unixepoch(NEW.validTo),
        NEW.weight, NEW.messageId
    FROM site AS s
    JOIN site_group AS g ON g.group_type = NEW.groupType AND g.name = NEW.groupName
    WHERE s.name = NEW.siteName
    ON CONFLICT (site_id, site_group_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(site_group_member.valid_to, 1e18);
END;

-- downtime: the newest announcement wins; one without a timestamp is older than any with one -

-- Stores an announced downtime.
CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') || coalesce(NEW.hostName, '') = ''
            THEN RAISE(ABORT, 'hostName: is no host, and there is no siteName')
        WHEN NEW.startTime IS NULL
            OR NEW.startTime IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.startTime)
            THEN RAISE(ABORT, 'startTime: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.endTime IS NULL
            OR NEW.endTime IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.endTime)
            THEN RAISE(ABORT, 'endTime: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.endTime < NEW.startTime THEN RAISE(ABORT, 'endTime: is before startTime')
        WHEN coalesce(NEW.classification, '') = ''
            THEN RAISE(ABORT, 'classification: is no classification')
        WHEN coalesce(NEW.severity, '') = '' THEN RAISE(ABORT, 'severity: is no severity')
        WHEN NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp)
            THEN RAISE(ABORT, 'timestamp: is no time YYYY-MM-DDThh:mm:ssZ')
    END;

    INSERT INTO site (name) VALUES (coalesce(NEW.siteName, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO host (name) VALUES (lower(coalesce(NEW.hostName, '')))
    ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (coalesce(NEW.serviceFlavour, ''))
    ON CONFLICT (name) DO NOTHING;

    INSERT INTO announced_downtime (
        downtime_id, site_id, host_id, service_flavour_id, start_key,
        start_time, end_time, classification, severity, description, announced_at, message_id
    )
    SELECT
        coalesce(NEW.downtimeId, ''), s.site_id, h.host_id, f.service_flavour_id,
        CASE WHEN coalesce(NEW.downtimeId, '') <> '' THEN 0 ELSE unixepoch(NEW.startTime) END,
        unixepoch(NEW.startTime), unixepoch(NEW.endTime), NEW.classification, NEW.severity,
        NEW.description, unixepoch(NEW.timestamp), NEW.messageId
    FROM site AS s
    JOIN host AS h ON h.name = lower(coalesce(NEW.hostName, ''))
    JOIN service_flavour AS f ON f.name = coalesce(NEW.serviceFlavour, '')
    WHERE s.name = coalesce(NEW.siteName, '')
    ON CONFLICT (downtime_id, site_id, host_id, service_flavour_id, start_key) DO UPDATE SET
        start_time = excluded.start_time,
        end_time = excluded.end_time,
        classification = excluded.classification,
        severity = excluded.severity,
        description = excluded.description,
        announced_at = excluded.announced_at,
        message_id = excluded.message_id
    WHERE excluded.announced_at > coalesce(announced_downtime.announced_at, -1e18);
END;
