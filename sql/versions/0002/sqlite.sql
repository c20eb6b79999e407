-- A result finds its instance and source by one look-up; details lie by key, with their status; the
-- newest status of everything is kept; days that changed are marked.

DROP TRIGGER metricOutput_insert;
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
-- is the newest time with another status. Follows the results by triggers.
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
-- and those of the instance, as JSON: a result finds both by one look-up. No instance: only until
-- the trigger that makes it has ended.
CREATE TABLE result_source (
    source_id integer PRIMARY KEY,
    instance_id integer REFERENCES metric_instance,
    service_uri text NOT NULL,
    service_type text NOT NULL,
    site_name text NOT NULL,
    metric_type text NOT NULL,
    data_type text NOT NULL,
    monitoring_host text NOT NULL,
    role text NOT NULL,
    nagios_name text NOT NULL,
    encrypted text NOT NULL,
    names text NOT NULL UNIQUE
) STRICT;

-- SQLite has no functions: a row sent here is what a call with these arguments would be. Its
-- trigger (30_triggers.sql) stores the result and what follows from it; this table stays empty.
CREATE TABLE new_result (
    source_id integer,
    measured_at integer,
    day text,
    gatherer_id integer,
    status integer,
    summary text,
    performance_data text,
    message_id text,
    details text
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

-- Days whose results, topology or downtimes changed; no number: since any run looked. A day is due
-- for a report whose published run has a smaller change_no.
CREATE VIEW report_changed_day AS
SELECT day, change_no FROM changed_day;

-- The first day that can be recomputed, once results have been pruned; else no row.
CREATE VIEW report_horizon AS
SELECT day FROM horizon;

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
FROM instance_status AS i
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

-- Checks a result of a probe, makes the names that are new, and stores it by new_result.
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput BEGIN
    SELECT CASE
        WHEN NEW.timestamp IS NULL
            OR NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp)
            THEN RAISE(ABORT, 'timestamp: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NOT EXISTS (SELECT 1 FROM metric_status WHERE name = upper(NEW.metricStatus))
            THEN RAISE(ABORT, 'metricStatus: is none of OK, WARNING, CRITICAL, UNKNOWN')
    END;

    INSERT INTO host (name) VALUES (coalesce(NEW.gatheredAt, '')) ON CONFLICT (name) DO NOTHING;
    -- Whatever else is new is made by result_source_insert.
    INSERT INTO result_source (
        instance_id, service_uri, service_type, site_name, metric_type, data_type,
        monitoring_host, role, nagios_name, encrypted, names
    )
    VALUES (
        NULL, coalesce(NEW.serviceURI, ''), coalesce(NEW.serviceType, ''),
        coalesce(NEW.siteName, ''), coalesce(NEW.metricType, ''), coalesce(NEW.dataType, ''),
        coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''), coalesce(NEW.nagiosName, ''),
        coalesce(NEW.encrypted, ''),
        json_array(
            lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType), NEW.metricName,
            coalesce(NEW.voName, ''), coalesce(NEW.voFqan, ''), coalesce(NEW.serviceURI, ''),
            coalesce(NEW.serviceType, ''), coalesce(NEW.siteName, ''), coalesce(NEW.metricType, ''),
            coalesce(NEW.dataType, ''), coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''),
            coalesce(NEW.nagiosName, ''), coalesce(NEW.encrypted, '')
        )
    )
    ON CONFLICT (names) DO NOTHING;

    INSERT INTO new_result (
        source_id, measured_at, day, gatherer_id, status,
        summary, performance_data, message_id, details
    )
    VALUES (
        (
            SELECT source_id FROM result_source
            WHERE names = json_array(
                lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType), NEW.metricName,
                coalesce(NEW.voName, ''), coalesce(NEW.voFqan, ''), coalesce(NEW.serviceURI, ''),
                coalesce(NEW.serviceType, ''), coalesce(NEW.siteName, ''), coalesce(NEW.metricType, ''),
                coalesce(NEW.dataType, ''), coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''),
                coalesce(NEW.nagiosName, ''), coalesce(NEW.encrypted, '')
            )
        ),
        unixepoch(NEW.timestamp), substr(NEW.timestamp, 1, 10),
        (SELECT host_id FROM host WHERE name = coalesce(NEW.gatheredAt, '')),
        (SELECT status FROM metric_status WHERE name = upper(NEW.metricStatus)),
        NEW.summaryData, NEW.performanceData, NEW.messageId, NEW.detailsData
    );
END;

-- Makes the metric instance of a new source, and whatever that refers to.
CREATE TRIGGER result_source_insert AFTER INSERT ON result_source BEGIN
    SELECT CASE
        WHEN coalesce(NEW.names ->> 0, '') = '' THEN RAISE(ABORT, 'hostName: is no host')
        WHEN coalesce(NEW.names ->> 1, '') = '' THEN RAISE(ABORT, 'serviceFlavour: is no flavour')
        WHEN coalesce(NEW.names ->> 2, '') = '' THEN RAISE(ABORT, 'metricName: is no metric')
    END;

    INSERT INTO host (name) VALUES (NEW.names ->> 0) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.names ->> 1) ON CONFLICT (name) DO NOTHING;
    INSERT INTO metric (name) VALUES (NEW.names ->> 2) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (NEW.names ->> 3) ON CONFLICT (name) DO NOTHING;
    INSERT INTO fqan (name) VALUES (NEW.names ->> 4) ON CONFLICT (name) DO NOTHING;
    INSERT INTO endpoint (host_id, service_flavour_id)
    SELECT h.host_id, f.service_flavour_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.names ->> 1
    WHERE h.name = NEW.names ->> 0
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;
    INSERT INTO instance_status (endpoint_id, metric_id, vo_id)
    SELECT e.endpoint_id, m.metric_id, v.vo_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.names ->> 1
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN metric AS m ON m.name = NEW.names ->> 2
    JOIN vo AS v ON v.name = NEW.names ->> 3
    WHERE h.name = NEW.names ->> 0
    ON CONFLICT (endpoint_id, metric_id, vo_id) DO NOTHING;
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, status_id)
    SELECT c.endpoint_id, c.metric_id, c.vo_id, q.fqan_id, c.status_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.names ->> 1
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN metric AS m ON m.name = NEW.names ->> 2
    JOIN vo AS v ON v.name = NEW.names ->> 3
    JOIN fqan AS q ON q.name = NEW.names ->> 4
    JOIN instance_status AS c
        ON c.endpoint_id = e.endpoint_id AND c.metric_id = m.metric_id AND c.vo_id = v.vo_id
    WHERE h.name = NEW.names ->> 0
    ON CONFLICT (endpoint_id, metric_id, vo_id, fqan_id) DO NOTHING;
    UPDATE result_source SET instance_id = (
        SELECT i.instance_id
        FROM host AS h
        JOIN service_flavour AS f ON f.name = NEW.names ->> 1
        JOIN endpoint AS e
            ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
        JOIN metric AS m ON m.name = NEW.names ->> 2
        JOIN vo AS v ON v.name = NEW.names ->> 3
        JOIN fqan AS q ON q.name = NEW.names ->> 4
        JOIN metric_instance AS i
            ON i.endpoint_id = e.endpoint_id
            AND i.metric_id = m.metric_id
            AND i.vo_id = v.vo_id
            AND i.fqan_id = q.fqan_id
        WHERE h.name = NEW.names ->> 0
    )
    WHERE source_id = NEW.source_id;
END;

-- Stores a result that is new, or worse than the one that is there, and what follows from it.
CREATE TRIGGER new_result_insert BEFORE INSERT ON new_result BEGIN
    SELECT RAISE(IGNORE)
    FROM result_source AS k
    JOIN metric_result AS r ON r.instance_id = k.instance_id
    WHERE k.source_id = NEW.source_id
        AND r.measured_at = NEW.measured_at
        AND r.gatherer_id = NEW.gatherer_id
        AND r.status >= NEW.status;

    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, status, source_id,
        summary, performance_data, message_id
    )
    VALUES (
        (SELECT instance_id FROM result_source WHERE source_id = NEW.source_id),
        NEW.measured_at, NEW.gatherer_id, NEW.status, NEW.source_id,
        NEW.summary, NEW.performance_data, NEW.message_id
    )
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        source_id = excluded.source_id,
        summary = excluded.summary,
        performance_data = excluded.performance_data,
        message_id = excluded.message_id;
    INSERT INTO metric_result_detail (measured_at, instance_id, gatherer_id, status, details)
    SELECT NEW.measured_at, instance_id, NEW.gatherer_id, NEW.status, NEW.details
    FROM result_source
    WHERE source_id = NEW.source_id AND NEW.details IS NOT NULL
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        details = excluded.details;

    -- The report of a day reads the results of the day before, too. A day of the future needs no
    -- mark, as it was never computed.
    INSERT INTO changed_day (day)
    SELECT NEW.day
    WHERE NOT EXISTS (SELECT 1 FROM changed_day WHERE day = NEW.day AND change_no IS NULL)
        AND NEW.day BETWEEN coalesce((SELECT day FROM horizon), '') AND date('now')
    UNION ALL
    SELECT date(NEW.day, '+1 day')
    WHERE NOT EXISTS (
        SELECT 1 FROM changed_day WHERE day = date(NEW.day, '+1 day') AND change_no IS NULL
    )
        AND date(NEW.day, '+1 day')
            BETWEEN coalesce((SELECT day FROM horizon), '') AND date('now')
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE change_no IS NOT NULL;

    -- The newest time, or a worse result of it: of that one, since is to be found.
    UPDATE instance_status SET
        status = NEW.status,
        since = CASE
            WHEN measured_at = NEW.measured_at THEN NULL
            WHEN status = NEW.status THEN since
            ELSE NEW.measured_at
        END,
        measured_at = NEW.measured_at,
        other_at = CASE
            WHEN measured_at = NEW.measured_at OR status = NEW.status THEN other_at
            ELSE measured_at
        END,
        summary = NEW.summary
    WHERE status_id = (
            SELECT i.status_id
            FROM result_source AS k
            JOIN metric_instance AS i ON i.instance_id = k.instance_id
            WHERE k.source_id = NEW.source_id
        )
        AND (
            measured_at IS NULL
            OR measured_at < NEW.measured_at
            OR (measured_at = NEW.measured_at AND status < NEW.status)
        );
    -- A late one has no effect before other_at, nor if it says what is known since earlier. Between
    -- other_at and since there is no result; a run in between is cut, so since is to be found.
    UPDATE instance_status SET
        since = CASE
            WHEN other_at = NEW.measured_at THEN NULL
            WHEN status = NEW.status THEN NEW.measured_at
            WHEN since > NEW.measured_at THEN since
        END,
        other_at = CASE
            WHEN since > NEW.measured_at AND status <> NEW.status THEN NEW.measured_at
            ELSE other_at
        END
    WHERE status_id = (
            SELECT i.status_id
            FROM result_source AS k
            JOIN metric_instance AS i ON i.instance_id = k.instance_id
            WHERE k.source_id = NEW.source_id
        )
        AND measured_at > NEW.measured_at
        AND coalesce(other_at, -1e18) <= NEW.measured_at
        AND CASE
            WHEN status = NEW.status THEN since > NEW.measured_at
            ELSE coalesce(other_at, -1e18) < NEW.measured_at
        END;
    -- Keeps the row itself out.
    SELECT RAISE(IGNORE);
END;

-- Finds since when a status holds in the results. Where they were forgotten, what was known stays.
CREATE TRIGGER instance_status_recompute AFTER UPDATE OF since ON instance_status
WHEN NEW.since IS NULL AND NEW.measured_at IS NOT NULL BEGIN
    -- The newest time when no result had the status, or a worse one had another.
    UPDATE instance_status SET other_at = coalesce(
        (
            SELECT max((
                SELECT r.measured_at FROM metric_result AS r
                WHERE r.instance_id = i.instance_id
                    AND r.measured_at < NEW.measured_at
                    AND r.status <> NEW.status
                    AND (
                        r.status > NEW.status
                        OR NOT EXISTS (
                            SELECT 1
                            FROM metric_instance AS j
                            JOIN metric_result AS q ON q.instance_id = j.instance_id
                            WHERE j.status_id = NEW.status_id
                                AND q.measured_at = r.measured_at
                                AND q.status >= NEW.status
                        )
                    )
                ORDER BY r.measured_at DESC LIMIT 1
            ))
            FROM metric_instance AS i
            WHERE i.status_id = NEW.status_id
        ),
        CASE WHEN OLD.status = NEW.status THEN OLD.other_at END
    )
    WHERE status_id = NEW.status_id;
    UPDATE instance_status SET since = min(
        coalesce(
            (
                SELECT min((
                    SELECT min(r.measured_at) FROM metric_result AS r
                    WHERE r.instance_id = i.instance_id
                        AND r.measured_at > coalesce(instance_status.other_at, -1e18)
                ))
                FROM metric_instance AS i
                WHERE i.status_id = NEW.status_id
            ),
            NEW.measured_at
        ),
        CASE
            WHEN OLD.status = NEW.status AND OLD.since > coalesce(other_at, -1e18) THEN OLD.since
            ELSE NEW.measured_at
        END
    )
    WHERE status_id = NEW.status_id;
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
