-- A result finds its instance and source by one look-up; details lie by key, with their status; the
-- newest status of everything is kept; days that changed are marked.

DROP TRIGGER metricOutput_insert;
DROP TRIGGER serviceEndpoint_insert;
DROP TRIGGER siteGroup_insert;
DROP TRIGGER downtime_insert;
DROP TRIGGER metric_result_worsen;
DROP TRIGGER new_instance_insert;
DROP VIEW metricOutput;
DROP VIEW report_result;
DROP VIEW current_status;
DROP VIEW report_run;
DROP VIEW metric_instance_name;
DROP TABLE new_instance;
ALTER TABLE metric_instance RENAME TO old_instance;
ALTER TABLE metric_result_detail RENAME TO old_detail;

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

-- A call as new_result is: brings instance_status and changed_day up to so many results that are
-- news, or to all; stays empty.
CREATE TABLE fold_news (
    at_most integer
) STRICT;

-- Days whose results, topology or downtimes changed. A run of a report numbers the changes it is
-- going to read; without a number: changed after any run. The first day with results is the first
-- of all.
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

ALTER TABLE run ADD COLUMN change_no integer;

-- The rows of version 0001 -------------------------------------------------------------------

INSERT INTO instance_status (endpoint_id, metric_id, vo_id)
SELECT DISTINCT endpoint_id, metric_id, vo_id FROM old_instance;

INSERT INTO metric_instance (instance_id, endpoint_id, metric_id, vo_id, fqan_id, status_id)
SELECT i.instance_id, i.endpoint_id, i.metric_id, i.vo_id, i.fqan_id, c.status_id
FROM old_instance AS i
JOIN instance_status AS c
    ON c.endpoint_id = i.endpoint_id AND c.metric_id = i.metric_id AND c.vo_id = i.vo_id;

INSERT INTO result_source (
    instance_id, service_uri, service_type, site_name, metric_type, data_type,
    monitoring_host, role, nagios_name, encrypted, names
)
SELECT
    i.instance_id, o.service_uri, o.service_type, o.site_name, o.metric_type, o.data_type,
    o.monitoring_host, o.role, o.nagios_name, o.encrypted,
    json_array(
        h.name, f.name, m.name, v.name, q.name, o.service_uri, o.service_type, o.site_name,
        o.metric_type, o.data_type, o.monitoring_host, o.role, o.nagios_name, o.encrypted
    )
FROM (SELECT DISTINCT instance_id, origin_id FROM metric_result) AS r
JOIN result_origin AS o ON o.origin_id = r.origin_id
JOIN metric_instance AS i ON i.instance_id = r.instance_id
JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN metric AS m ON m.metric_id = i.metric_id
JOIN vo AS v ON v.vo_id = i.vo_id
JOIN fqan AS q ON q.fqan_id = i.fqan_id;

CREATE INDEX source_of_origin ON result_source (
    instance_id, service_uri, nagios_name, monitoring_host, site_name, service_type,
    metric_type, data_type, role, encrypted
);
ALTER TABLE metric_result RENAME COLUMN origin_id TO source_id;
UPDATE metric_result SET source_id = (
    SELECT k.source_id
    FROM result_origin AS o
    JOIN result_source AS k
        ON k.instance_id = metric_result.instance_id
        AND k.service_uri = o.service_uri
        AND k.service_type = o.service_type
        AND k.site_name = o.site_name
        AND k.metric_type = o.metric_type
        AND k.data_type = o.data_type
        AND k.monitoring_host = o.monitoring_host
        AND k.role = o.role
        AND k.nagios_name = o.nagios_name
        AND k.encrypted = o.encrypted
    WHERE o.origin_id = metric_result.source_id
);
DROP INDEX source_of_origin;

INSERT INTO metric_result_detail (measured_at, instance_id, gatherer_id, status, details)
SELECT r.measured_at, r.instance_id, r.gatherer_id, r.status, d.details
FROM old_detail AS d
JOIN metric_result AS r ON r.result_id = d.result_id;

DROP TABLE old_detail;
DROP TABLE old_instance;
DROP TABLE result_origin;

-- since is found by the results, other_at is the time before it.
WITH moment AS (
    SELECT i.status_id, r.measured_at, max(r.status) AS status
    FROM metric_result AS r
    JOIN metric_instance AS i ON i.instance_id = r.instance_id
    GROUP BY i.status_id, r.measured_at
),
step AS (
    SELECT
        status_id,
        measured_at,
        status,
        lag(status) OVER earlier AS status_before,
        lag(measured_at) OVER earlier AS measured_before
    FROM moment
    WINDOW earlier AS (PARTITION BY status_id ORDER BY measured_at)
),
newest AS (
    SELECT
        status_id,
        max(measured_at) AS measured_at,
        max(measured_at) FILTER (WHERE status_before IS NOT status) AS since,
        max(measured_before) FILTER (WHERE status_before <> status) AS other_at
    FROM step
    GROUP BY status_id
)
UPDATE instance_status SET
    since = newest.since, measured_at = newest.measured_at, other_at = newest.other_at
FROM newest
WHERE newest.status_id = instance_status.status_id;

UPDATE instance_status SET (status, summary) = (
    SELECT r.status, r.summary
    FROM metric_instance AS i
    JOIN metric_result AS r
        ON r.instance_id = i.instance_id AND r.measured_at = instance_status.measured_at
    WHERE i.status_id = instance_status.status_id
    ORDER BY r.status DESC, r.result_id
    LIMIT 1
)
WHERE measured_at IS NOT NULL;

-- Nothing is news.
INSERT INTO folded (result_id, up_to)
SELECT coalesce(max(result_id), 0), 9223372036854775807 FROM metric_result;

-- No run of version 0001 knows what it has read: all days are due once.
INSERT INTO changed_day (day)
SELECT day
FROM (
    SELECT date(measured_at, 'unixepoch') AS day FROM metric_result
    UNION
    SELECT date(measured_at, 'unixepoch', '+1 day') FROM metric_result
)
WHERE day <= date('now');

-- Views and triggers -------------------------------------------------------------------------

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
    NULLIF(k.service_uri, '') AS serviceURI,
    n.service_flavour AS serviceFlavour,
    NULLIF(k.service_type, '') AS serviceType,
    NULLIF(k.site_name, '') AS siteName,
    n.metric_name AS metricName,
    NULLIF(k.metric_type, '') AS metricType,
    s.name AS metricStatus,
    NULLIF(k.data_type, '') AS dataType,
    r.performance_data AS performanceData,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.measured_at, 'unixepoch') AS timestamp,
    NULLIF(g.name, '') AS gatheredAt,
    NULLIF(k.monitoring_host, '') AS monitoringHost,
    r.summary AS summaryData,
    d.details AS detailsData,
    NULLIF(n.vo, '') AS voName,
    NULLIF(n.fqan, '') AS voFqan,
    NULLIF(k.role, '') AS role,
    NULLIF(k.nagios_name, '') AS nagiosName,
    NULLIF(k.encrypted, '') AS encrypted,
    r.message_id AS messageId
FROM metric_result AS r
JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
JOIN metric_status AS s ON s.status = r.status
JOIN host AS g ON g.host_id = r.gatherer_id
JOIN result_source AS k ON k.source_id = r.source_id
LEFT JOIN metric_result_detail AS d
    ON d.instance_id = r.instance_id
    AND d.measured_at = r.measured_at
    AND d.gatherer_id = r.gatherer_id
    AND d.status = r.status;

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
    k.monitoring_host,
    r.summary,
    r.performance_data,
    r.message_id
FROM metric_result AS r
JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
JOIN metric_status AS s ON s.status = r.status
JOIN host AS g ON g.host_id = r.gatherer_id
JOIN result_source AS k ON k.source_id = r.source_id;

-- The last number given to a result: a run reads none that comes later.
CREATE VIEW report_newest_result AS
SELECT coalesce(max(result_id), 0) AS result_id FROM metric_result;

-- Results that are news: not folded yet, or worse than when they were.
CREATE VIEW unfolded_result AS
SELECT r.result_id, i.status_id, r.measured_at, r.status, r.summary
FROM folded AS f
CROSS JOIN metric_result AS r ON r.result_id > f.result_id AND r.result_id <= f.up_to
CROSS JOIN metric_instance AS i ON i.instance_id = r.instance_id
UNION ALL
SELECT r.result_id, i.status_id, r.measured_at, r.status, r.summary
FROM folded AS f
CROSS JOIN load_news AS n ON n.result_id <= f.up_to
CROSS JOIN metric_result AS r ON r.result_id = n.result_id
CROSS JOIN metric_instance AS i ON i.instance_id = r.instance_id;

-- The days that news change: a report looks back to the day before, so a result changes two. None
-- before the horizon, and none of the future, as it was never computed.
CREATE VIEW unfolded_day AS
SELECT day
FROM (
    SELECT date(measured_at, 'unixepoch') AS day FROM unfolded_result
    UNION
    SELECT date(measured_at, 'unixepoch', '+1 day') FROM unfolded_result
)
WHERE day BETWEEN coalesce((SELECT day FROM horizon), '') AND date('now');

-- Days whose results, topology or downtimes changed; no number: since any run looked. A day is due
-- for a report whose published run has a smaller change_no.
CREATE VIEW report_changed_day AS
SELECT day, change_no FROM changed_day WHERE day NOT IN (SELECT day FROM unfolded_day)
UNION ALL
SELECT day, NULL FROM unfolded_day;

-- The first day that can be recomputed, once results have been pruned; else no row.
CREATE VIEW report_horizon AS
SELECT day FROM horizon;

-- The rows of instance_status as news make them. A result newer than the newest tells a status, or
-- moves on the one that holds. An older one changes nothing if its status is the one that held
-- then: since the status began, or before other_at. Else the history of its instances is read.
CREATE VIEW unfolded_status AS
WITH news AS MATERIALIZED (
    SELECT
        n.*, k.status AS held, k.since AS held_since, k.measured_at AS held_at,
        k.measured_at IS NULL OR n.measured_at > k.measured_at AS is_newer,
        n.measured_at <= k.measured_at
            AND n.measured_at >= coalesce(k.other_at, -1e18)
            AND (n.measured_at < k.since OR n.status <> k.status) AS is_late
    FROM unfolded_result AS n
    CROSS JOIN instance_status AS k ON k.status_id = n.status_id
),
late AS MATERIALIZED (
    SELECT DISTINCT status_id FROM news WHERE is_late
),
moment AS (
    -- Several results of one moment: the worse counts, and its summary.
    SELECT status_id, measured_at, max(status) AS status, summary, held, held_at
    FROM news
    WHERE is_newer AND status_id NOT IN (SELECT status_id FROM late)
    GROUP BY status_id, measured_at
),
step AS (
    SELECT
        *,
        lag(status, 1, held) OVER w AS before,
        lag(measured_at, 1, held_at) OVER w AS before_at,
        lead(measured_at) OVER w AS after_at
    FROM moment
    WINDOW w AS (PARTITION BY status_id ORDER BY measured_at)
),
newest AS (
    SELECT
        status_id,
        max(measured_at) AS measured_at,
        max(status) FILTER (WHERE after_at IS NULL) AS status,
        max(summary) FILTER (WHERE after_at IS NULL) AS summary,
        max(measured_at) FILTER (WHERE status IS NOT before) AS since,
        max(before_at) FILTER (WHERE status IS NOT before) AS other_at
    FROM step
    GROUP BY status_id
),
-- The history, step by step: the newest result, the newest time before it when another status
-- held, the oldest time after that. Nothing, if what is known is of results that were pruned.
newest_time AS MATERIALIZED (
    SELECT
        late.status_id,
        (
            SELECT max((
                SELECT max(r.measured_at) FROM metric_result AS r
                WHERE r.instance_id = i.instance_id
            ))
            FROM metric_instance AS i
            WHERE i.status_id = late.status_id
        ) AS measured_at
    FROM late
),
newest_result AS MATERIALIZED (
    SELECT t.status_id, t.measured_at, r.status, r.summary, k.since, k.other_at, k.status AS held
    FROM newest_time AS t
    CROSS JOIN instance_status AS k
        ON k.status_id = t.status_id AND k.measured_at <= t.measured_at
    CROSS JOIN metric_result AS r
        ON r.result_id = (
            SELECT q.result_id
            FROM metric_instance AS i
            CROSS JOIN metric_result AS q
                ON q.instance_id = i.instance_id AND q.measured_at = t.measured_at
            WHERE i.status_id = t.status_id
            ORDER BY q.status DESC, q.result_id
            LIMIT 1
        )
),
other AS MATERIALIZED (
    SELECT
        n.*,
        (
            SELECT max((
                SELECT r.measured_at FROM metric_result AS r
                WHERE r.instance_id = i.instance_id
                    AND r.measured_at < n.measured_at
                    AND r.status <> n.status
                    AND (
                        r.status > n.status OR NOT EXISTS (
                            SELECT 1
                            FROM metric_instance AS j
                            CROSS JOIN metric_result AS q
                                ON q.instance_id = j.instance_id
                                AND q.measured_at = r.measured_at
                            WHERE j.status_id = n.status_id AND q.status >= n.status
                        )
                    )
                ORDER BY r.measured_at DESC
                LIMIT 1
            ))
            FROM metric_instance AS i
            WHERE i.status_id = n.status_id
        ) AS found_at
    FROM newest_result AS n
),
-- What is known of results that were pruned is remembered.
remembered AS MATERIALIZED (
    SELECT
        o.*,
        CASE WHEN o.is_of_it AND o.other_at < o.horizon_at THEN o.other_at END AS pruned_at,
        CASE WHEN o.is_of_it AND o.since < o.horizon_at THEN o.since END AS pruned_since
    FROM (
        SELECT
            other.*,
            found_at IS NULL AND held = status AS is_of_it,
            (SELECT unixepoch(day) FROM horizon) AS horizon_at
        FROM other
    ) AS o
)
SELECT
    n.status_id,
    n.status,
    coalesce(n.since, k.since) AS since,
    n.measured_at,
    CASE WHEN n.since IS NULL THEN k.other_at ELSE n.other_at END AS other_at,
    n.summary
FROM newest AS n
CROSS JOIN instance_status AS k ON k.status_id = n.status_id
UNION ALL
SELECT
    n.status_id,
    n.status,
    min(
        coalesce(n.pruned_since, n.measured_at),
        (
            SELECT min((
                SELECT min(r.measured_at) FROM metric_result AS r
                WHERE r.instance_id = i.instance_id
                    AND r.measured_at > coalesce(n.found_at, n.pruned_at, -1e18)
            ))
            FROM metric_instance AS i
            WHERE i.status_id = n.status_id
        )
    ),
    n.measured_at,
    coalesce(n.found_at, n.pruned_at),
    n.summary
FROM remembered AS n;

-- The newest status of everything and since when it holds; no site: not in the topology now.
-- CROSS JOIN: the statuses come first, whatever the statistics say; another order takes four
-- times as long.
CREATE VIEW current_status AS
SELECT
    coalesce(home.site, '') AS site,
    f.name AS service_flavour,
    h.name AS host_name,
    m.name AS metric_name,
    v.name AS vo,
    s.name AS status,
    strftime('%Y-%m-%dT%H:%M:%SZ', i.since, 'unixepoch') AS since,
    strftime('%Y-%m-%dT%H:%M:%SZ', i.measured_at, 'unixepoch') AS measured_at,
    i.summary
FROM (
    SELECT status_id, endpoint_id, metric_id, vo_id, status, since, measured_at, summary
    FROM instance_status
    WHERE status_id NOT IN (SELECT status_id FROM unfolded_status)
    UNION ALL
    SELECT
        k.status_id, k.endpoint_id, k.metric_id, k.vo_id,
        n.status, n.since, n.measured_at, n.summary
    FROM unfolded_status AS n
    CROSS JOIN instance_status AS k ON k.status_id = n.status_id
) AS i
CROSS JOIN metric_status AS s ON s.status = i.status
CROSS JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
CROSS JOIN host AS h ON h.host_id = e.host_id
CROSS JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
CROSS JOIN metric AS m ON m.metric_id = i.metric_id
CROSS JOIN vo AS v ON v.vo_id = i.vo_id
LEFT JOIN (
    SELECT DISTINCT p.endpoint_id, t.name AS site
    FROM endpoint_membership AS p
    JOIN site AS t ON t.site_id = p.site_id
    WHERE p.valid_from <= unixepoch('now') AND (p.valid_to IS NULL OR p.valid_to > unixepoch('now'))
) AS home ON home.endpoint_id = i.endpoint_id;

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
    who,
    change_no
FROM run;

-- Looks a result of a probe up, and stores it by new_result.
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput BEGIN
    INSERT INTO new_result (
        names, measured_at, gathered_at, status, summary, performance_data, message_id, details
    )
    VALUES (
        json_array(
            lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType), NEW.metricName,
            coalesce(NEW.voName, ''), coalesce(NEW.voFqan, ''), coalesce(NEW.serviceURI, ''),
            coalesce(NEW.serviceType, ''), coalesce(NEW.siteName, ''), coalesce(NEW.metricType, ''),
            coalesce(NEW.dataType, ''), coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''),
            coalesce(NEW.nagiosName, ''), coalesce(NEW.encrypted, '')
        ),
        CASE NEW.timestamp
            WHEN strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.timestamp), 'unixepoch')
                THEN unixepoch(NEW.timestamp)
        END,
        coalesce(NEW.gatheredAt, ''),
        (SELECT status FROM metric_status WHERE name = upper(NEW.metricStatus)),
        NEW.summaryData, NEW.performanceData, NEW.messageId, NEW.detailsData
    );
END;

-- Makes the names that are new, and stores a result that is new, or worse than the one that is
-- there. VALUES, not SELECT, where a trigger waits: that would write to a temporary table first.
CREATE TRIGGER new_result_insert BEFORE INSERT ON new_result BEGIN
    SELECT CASE
        WHEN NEW.measured_at IS NULL
            THEN RAISE(ABORT, 'timestamp: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.status IS NULL
            THEN RAISE(ABORT, 'metricStatus: is none of OK, WARNING, CRITICAL, UNKNOWN')
    END;

    INSERT INTO host (name) VALUES (NEW.gathered_at) ON CONFLICT (name) DO NOTHING;
    INSERT INTO result_source (names) VALUES (NEW.names) ON CONFLICT (names) DO NOTHING;
    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, status, source_id,
        summary, performance_data, message_id
    )
    SELECT
        k.instance_id, NEW.measured_at, g.host_id, NEW.status, k.source_id,
        NEW.summary, NEW.performance_data, NEW.message_id
    FROM result_source AS k
    CROSS JOIN host AS g
    WHERE k.names = NEW.names AND g.name = NEW.gathered_at
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        source_id = excluded.source_id,
        summary = excluded.summary,
        performance_data = excluded.performance_data,
        message_id = excluded.message_id
    WHERE excluded.status > metric_result.status;
    -- changes() is 1 if the statement above stored the row, 0 if what was there stays.
    INSERT INTO metric_result_detail (measured_at, instance_id, gatherer_id, status, details)
    SELECT NEW.measured_at, k.instance_id, g.host_id, NEW.status, NEW.details
    FROM result_source AS k
    CROSS JOIN host AS g
    WHERE NEW.details IS NOT NULL
        AND changes() = 1
        AND k.names = NEW.names
        AND g.name = NEW.gathered_at
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        details = excluded.details;
    -- Keeps the row itself out.
    SELECT RAISE(IGNORE);
END;

-- Checks a new source, makes the names in it, and its metric instance by new_instance.
CREATE TRIGGER result_source_insert AFTER INSERT ON result_source BEGIN
    SELECT CASE
        WHEN coalesce(NEW.names ->> 0, '') = '' THEN RAISE(ABORT, 'hostName: is no host')
        WHEN coalesce(NEW.names ->> 1, '') = '' THEN RAISE(ABORT, 'serviceFlavour: is no flavour')
        WHEN coalesce(NEW.names ->> 2, '') = '' THEN RAISE(ABORT, 'metricName: is no metric')
        -- Without the pairs that stand for one backslash each.
        WHEN instr(replace(NEW.names, '\\', ''), '\u001f')
            THEN RAISE(ABORT, 'hostName: and the other names must not hold a unit separator')
    END;

    INSERT INTO host (name) VALUES (NEW.names ->> 0) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.names ->> 1) ON CONFLICT (name) DO NOTHING;
    INSERT INTO metric (name) VALUES (NEW.names ->> 2) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (NEW.names ->> 3) ON CONFLICT (name) DO NOTHING;
    INSERT INTO fqan (name) VALUES (NEW.names ->> 4) ON CONFLICT (name) DO NOTHING;
    INSERT INTO new_instance (host_id, service_flavour_id, metric_id, vo_id, fqan_id, source_id)
    VALUES (
        (SELECT host_id FROM host WHERE name = NEW.names ->> 0),
        (SELECT service_flavour_id FROM service_flavour WHERE name = NEW.names ->> 1),
        (SELECT metric_id FROM metric WHERE name = NEW.names ->> 2),
        (SELECT vo_id FROM vo WHERE name = NEW.names ->> 3),
        (SELECT fqan_id FROM fqan WHERE name = NEW.names ->> 4),
        NEW.source_id
    );
END;

-- Makes the metric instance of a new source, and tells the source all that follows from its names.
CREATE TRIGGER new_instance_insert BEFORE INSERT ON new_instance BEGIN
    INSERT INTO endpoint (host_id, service_flavour_id)
    VALUES (NEW.host_id, NEW.service_flavour_id)
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;
    INSERT INTO instance_status (endpoint_id, metric_id, vo_id)
    SELECT endpoint_id, NEW.metric_id, NEW.vo_id
    FROM endpoint
    WHERE host_id = NEW.host_id AND service_flavour_id = NEW.service_flavour_id
    ON CONFLICT (endpoint_id, metric_id, vo_id) DO NOTHING;
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, status_id)
    SELECT c.endpoint_id, c.metric_id, c.vo_id, NEW.fqan_id, c.status_id
    FROM endpoint AS e
    CROSS JOIN instance_status AS c ON c.endpoint_id = e.endpoint_id
    WHERE e.host_id = NEW.host_id
        AND e.service_flavour_id = NEW.service_flavour_id
        AND c.metric_id = NEW.metric_id
        AND c.vo_id = NEW.vo_id
    ON CONFLICT (endpoint_id, metric_id, vo_id, fqan_id) DO NOTHING;
    UPDATE result_source SET
        service_uri = names ->> 5,
        service_type = names ->> 6,
        site_name = names ->> 7,
        metric_type = names ->> 8,
        data_type = names ->> 9,
        monitoring_host = names ->> 10,
        role = names ->> 11,
        nagios_name = names ->> 12,
        encrypted = names ->> 13,
        instance_id = (
            SELECT i.instance_id
            FROM endpoint AS e
            CROSS JOIN metric_instance AS i ON i.endpoint_id = e.endpoint_id
            WHERE e.host_id = NEW.host_id
                AND e.service_flavour_id = NEW.service_flavour_id
                AND i.metric_id = NEW.metric_id
                AND i.vo_id = NEW.vo_id
                AND i.fqan_id = NEW.fqan_id
        )
    WHERE source_id = NEW.source_id;
    SELECT RAISE(IGNORE);
END;

-- Notes that a result became worse after it was folded.
CREATE TRIGGER metric_result_worsen AFTER UPDATE OF status ON metric_result
WHEN NEW.result_id <= (SELECT result_id FROM folded) BEGIN
    INSERT INTO load_news (result_id) VALUES (NEW.result_id) ON CONFLICT (result_id) DO NOTHING;
END;

-- The next result has the number after the last one: news again, also if that was deleted.
CREATE TRIGGER metric_result_delete AFTER DELETE ON metric_result
WHEN OLD.result_id = (SELECT result_id FROM folded) BEGIN
    UPDATE folded SET result_id = coalesce(
        (SELECT max(result_id) FROM metric_result WHERE result_id < OLD.result_id), 0
    );
END;

-- Stores what the views unfolded_status and unfolded_day show, for the oldest news.
CREATE TRIGGER fold_news_insert BEFORE INSERT ON fold_news BEGIN
    UPDATE folded SET up_to = coalesce(
        (
            SELECT result_id
            FROM (
                SELECT result_id FROM load_news
                UNION ALL
                SELECT result_id FROM metric_result
                WHERE result_id > (SELECT result_id FROM folded)
            )
            ORDER BY result_id
            LIMIT 1 OFFSET coalesce(NEW.at_most, 9223372036854775807) - 1
        ),
        up_to
    );
    UPDATE instance_status SET
        status = n.status,
        since = n.since,
        measured_at = n.measured_at,
        other_at = n.other_at,
        summary = n.summary
    FROM unfolded_status AS n
    WHERE n.status_id = instance_status.status_id;
    INSERT INTO changed_day (day)
    SELECT day FROM unfolded_day WHERE true
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE change_no IS NOT NULL;
    DELETE FROM load_news WHERE result_id <= (SELECT up_to FROM folded);
    UPDATE folded SET
        result_id = max(
            result_id, min(up_to, coalesce((SELECT max(result_id) FROM metric_result), 0))
        ),
        up_to = 9223372036854775807;
    SELECT RAISE(IGNORE);
END;

-- Stores that an endpoint belongs to a site.
CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is no site')
        WHEN coalesce(NEW.hostName, '') = '' THEN RAISE(ABORT, 'hostName: is no host')
        WHEN coalesce(NEW.serviceFlavour, '') = ''
            THEN RAISE(ABORT, 'serviceFlavour: is no flavour')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.validFrom), 'unixepoch')
            THEN RAISE(ABORT, 'validFrom: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.validTo
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.validTo), 'unixepoch')
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

-- Stores that a site belongs to a group.
CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is no site')
        WHEN coalesce(NEW.groupName, '') = '' THEN RAISE(ABORT, 'groupName: is no group')
        WHEN coalesce(NEW.groupType, '') = '' THEN RAISE(ABORT, 'groupType: is no type of group')
        WHEN NEW.weight < 0 OR NEW.weight GLOB '*[^0-9]*' OR NEW.weight = ''
            THEN RAISE(ABORT, 'weight: is no weight')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.validFrom), 'unixepoch')
            THEN RAISE(ABORT, 'validFrom: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.validTo
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.validTo), 'unixepoch')
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

-- Stores an announced downtime.
CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') || coalesce(NEW.hostName, '') = ''
            THEN RAISE(ABORT, 'hostName: is no host, and there is no siteName')
        WHEN NEW.startTime IS NULL
            OR NEW.startTime
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.startTime), 'unixepoch')
            THEN RAISE(ABORT, 'startTime: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.endTime IS NULL
            OR NEW.endTime
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.endTime), 'unixepoch')
            THEN RAISE(ABORT, 'endTime: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.endTime < NEW.startTime THEN RAISE(ABORT, 'endTime: is before startTime')
        WHEN coalesce(NEW.classification, '') = ''
            THEN RAISE(ABORT, 'classification: is no classification')
        WHEN coalesce(NEW.severity, '') = '' THEN RAISE(ABORT, 'severity: is no severity')
        WHEN NEW.timestamp
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.timestamp), 'unixepoch')
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

-- Marks days that are not marked yet.
CREATE TRIGGER new_change_insert BEFORE INSERT ON new_change BEGIN
    INSERT INTO changed_day (day)
    WITH RECURSIVE
    span (first_day, last_day) AS (
        SELECT
            max(
                NEW.first_day,
                coalesce((SELECT day FROM horizon), ''),
                (SELECT min(day) FROM changed_day)
            ),
            min(NEW.last_day, date('now'))
    ),
    step (day, last_day) AS (
        SELECT first_day, last_day FROM span
        -- One of many rows that change the same days: nothing to do.
        WHERE (
            SELECT count(*) FROM changed_day
            WHERE change_no IS NULL AND day BETWEEN first_day AND last_day
        ) <= julianday(last_day) - julianday(first_day)
        UNION ALL
        SELECT date(day, '+1 day'), last_day FROM step WHERE day < last_day
    )
    SELECT day FROM step WHERE true
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE change_no IS NOT NULL;
    -- Keeps the row itself out.
    SELECT RAISE(IGNORE);
END;

-- Marks the days of a new membership.
CREATE TRIGGER endpoint_membership_insert AFTER INSERT ON endpoint_membership BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.valid_from - 1, 'unixepoch', '+1 day'),
        coalesce(date(NEW.valid_to - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days between the old and the new end of a membership.
CREATE TRIGGER endpoint_membership_update AFTER UPDATE OF valid_to ON endpoint_membership
WHEN OLD.valid_to IS NOT NEW.valid_to BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(
            max(
                NEW.valid_from,
                coalesce(min(OLD.valid_to, NEW.valid_to), OLD.valid_to, NEW.valid_to)
            ) - 1, 'unixepoch', '+1 day'
        ),
        coalesce(date(max(OLD.valid_to, NEW.valid_to) - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days of a new member of a group.
CREATE TRIGGER site_group_member_insert AFTER INSERT ON site_group_member BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.valid_from - 1, 'unixepoch', '+1 day'),
        coalesce(date(NEW.valid_to - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days between the old and the new end of a member of a group.
CREATE TRIGGER site_group_member_update AFTER UPDATE OF valid_to ON site_group_member
WHEN OLD.valid_to IS NOT NEW.valid_to BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(
            max(
                NEW.valid_from,
                coalesce(min(OLD.valid_to, NEW.valid_to), OLD.valid_to, NEW.valid_to)
            ) - 1, 'unixepoch', '+1 day'
        ),
        coalesce(date(max(OLD.valid_to, NEW.valid_to) - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days of a new downtime; a cancelled one has none.
CREATE TRIGGER announced_downtime_insert AFTER INSERT ON announced_downtime
WHEN NEW.end_time > NEW.start_time BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (date(NEW.start_time, 'unixepoch'), date(NEW.end_time - 1, 'unixepoch'));
END;

-- Marks the days of a downtime before and after it was changed.
CREATE TRIGGER announced_downtime_update AFTER UPDATE ON announced_downtime BEGIN
    INSERT INTO new_change (first_day, last_day)
    SELECT date(start_time, 'unixepoch'), date(end_time - 1, 'unixepoch')
    FROM (
        SELECT OLD.start_time AS start_time, OLD.end_time AS end_time
        UNION ALL SELECT NEW.start_time, NEW.end_time
    )
    WHERE end_time > start_time;
END;
