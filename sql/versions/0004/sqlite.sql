-- Exclusions, sealed months and their candidates; runs keep what they have read; results without
-- names they aren't asked for.

DROP VIEW report_result;
DROP VIEW status_timeline;
DROP VIEW report_run;
ALTER TABLE timeline_segment RENAME TO old_segment;

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

ALTER TABLE run ADD COLUMN exclusions_digest text;
ALTER TABLE run ADD COLUMN newest_result integer;
ALTER TABLE run ADD COLUMN downtimes text;
ALTER TABLE run ADD COLUMN exclusions text;

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

INSERT INTO timeline_segment SELECT * FROM old_segment;
DROP TABLE old_segment;

-- The timelines of one site.
CREATE INDEX timeline_segment_site ON timeline_segment (run_id, site, level);

-- Results with the ids and names that reports read. A query pays for no name that it does not use:
-- SQLite leaves out an outer join that nothing needs, but not a chain of them.
CREATE VIEW report_result AS
SELECT
    r.result_id,
    r.instance_id,
    (
        SELECT h.name
        FROM metric_instance AS i
        JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
        JOIN host AS h ON h.host_id = e.host_id
        WHERE i.instance_id = r.instance_id
    ) AS host_name,
    (
        SELECT f.name
        FROM metric_instance AS i
        JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
        JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
        WHERE i.instance_id = r.instance_id
    ) AS service_flavour,
    (
        SELECT m.name
        FROM metric_instance AS i
        JOIN metric AS m ON m.metric_id = i.metric_id
        WHERE i.instance_id = r.instance_id
    ) AS metric_name,
    (
        SELECT v.name
        FROM metric_instance AS i
        JOIN vo AS v ON v.vo_id = i.vo_id
        WHERE i.instance_id = r.instance_id
    ) AS vo,
    (
        SELECT q.name
        FROM metric_instance AS i
        JOIN fqan AS q ON q.fqan_id = i.fqan_id
        WHERE i.instance_id = r.instance_id
    ) AS fqan,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.measured_at, 'unixepoch') AS measured_at,
    r.measured_at AS measured_at_s,
    s.name AS status,
    g.name AS gathered_at,
    k.monitoring_host,
    r.summary,
    r.performance_data,
    r.message_id,
    r.status AS status_code
FROM metric_result AS r
LEFT JOIN metric_status AS s ON s.status = r.status
LEFT JOIN host AS g ON g.host_id = r.gatherer_id
LEFT JOIN result_source AS k ON k.source_id = r.source_id;

-- Metric instances with their names: what an instance_id of report_result is.
CREATE VIEW report_instance AS
SELECT
    i.instance_id,
    i.endpoint_id,
    i.metric_id,
    i.vo_id,
    h.name AS host_name,
    f.name AS service_flavour,
    m.name AS metric_name,
    v.name AS vo,
    q.name AS fqan
FROM metric_instance AS i
LEFT JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
LEFT JOIN host AS h ON h.host_id = e.host_id
LEFT JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
LEFT JOIN metric AS m ON m.metric_id = i.metric_id
LEFT JOIN vo AS v ON v.vo_id = i.vo_id
LEFT JOIN fqan AS q ON q.fqan_id = i.fqan_id;

-- Times that shall not count: those in force. An empty selector means any.
CREATE VIEW report_exclusion AS
SELECT
    exclusion_id,
    kind,
    monitoring_host,
    metric_name,
    site,
    service_flavour,
    host_name,
    strftime('%Y-%m-%dT%H:%M:%SZ', start_time, 'unixepoch') AS start_time,
    strftime('%Y-%m-%dT%H:%M:%SZ', end_time, 'unixepoch') AS end_time,
    start_time AS start_s,
    end_time AS end_s,
    reason,
    who,
    strftime('%Y-%m-%dT%H:%M:%SZ', added_at, 'unixepoch') AS added_at
FROM exclusion
WHERE removed_at IS NULL;

-- The same with those that somebody took back.
CREATE VIEW exclusion_history AS
SELECT
    exclusion_id,
    kind,
    monitoring_host,
    metric_name,
    site,
    service_flavour,
    host_name,
    strftime('%Y-%m-%dT%H:%M:%SZ', start_time, 'unixepoch') AS start_time,
    strftime('%Y-%m-%dT%H:%M:%SZ', end_time, 'unixepoch') AS end_time,
    start_time AS start_s,
    end_time AS end_s,
    reason,
    who,
    strftime('%Y-%m-%dT%H:%M:%SZ', added_at, 'unixepoch') AS added_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', removed_at, 'unixepoch') AS removed_at,
    removed_by
FROM exclusion;

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

-- How often the status of a thing changed in a day, when first and last, and the seconds of each.
CREATE VIEW status_trend AS
SELECT
    p.report,
    p.day,
    t.level,
    t.site,
    t.service_flavour,
    t.host_name,
    t.metric_name,
    t.function,
    count(*) - 1 AS changes,
    strftime(
        '%Y-%m-%dT%H:%M:%SZ', CASE WHEN count(*) > 1 THEN min(t.end_time) END, 'unixepoch'
    ) AS first_change,
    strftime(
        '%Y-%m-%dT%H:%M:%SZ', CASE WHEN count(*) > 1 THEN max(t.start_time) END, 'unixepoch'
    ) AS last_change,
    sum(iif(t.status = 'OK', t.end_time - t.start_time, 0)) AS ok_s,
    sum(iif(t.status = 'WARNING', t.end_time - t.start_time, 0)) AS warning_s,
    sum(iif(t.status = 'CRITICAL', t.end_time - t.start_time, 0)) AS critical_s,
    sum(iif(t.status = 'UNKNOWN', t.end_time - t.start_time, 0)) AS unknown_s,
    sum(iif(t.status = 'MISSING', t.end_time - t.start_time, 0)) AS missing_s,
    sum(iif(t.status = 'DOWNTIME', t.end_time - t.start_time, 0)) AS downtime_s,
    sum(iif(t.status = 'EXCLUDED', t.end_time - t.start_time, 0)) AS excluded_s,
    p.run_id
FROM published_run AS p
JOIN timeline_segment AS t ON t.run_id = p.run_id
GROUP BY
    p.run_id,
    p.report,
    p.day,
    t.level,
    t.site,
    t.service_flavour,
    t.host_name,
    t.metric_name,
    t.function;

-- Every run of every report: what it read, and what became of it.
CREATE VIEW report_run AS
SELECT
    r.run_id,
    r.report,
    r.day,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.started_at, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.finished_at, 'unixepoch') AS finished_at,
    CASE WHEN c.run_id IS NULL THEN r.state ELSE 'candidate' END AS state,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.until, 'unixepoch') AS until,
    r.results_read,
    r.results_ignored,
    r.instances,
    r.results_digest,
    r.topology_digest,
    r.downtimes_digest,
    r.profile_digest,
    r.input_digest,
    r.profile,
    r.software_version,
    r.who,
    r.change_no,
    r.exclusions_digest,
    r.newest_result,
    r.downtimes,
    r.exclusions
FROM run AS r
LEFT JOIN candidate_run AS c ON c.run_id = r.run_id;

-- Months whose published figures stay as they are.
CREATE VIEW report_seal AS
SELECT
    report,
    month,
    who,
    strftime('%Y-%m-%dT%H:%M:%SZ', sealed_at, 'unixepoch') AS sealed_at
FROM seal;

-- The newest runs of sealed days, which the next seal publishes; report_change tells how they
-- differ.
CREATE VIEW report_candidate AS
SELECT report, day, run_id FROM candidate_run;

-- Marks the days of a new exclusion. Of a monitoring host it takes the results of the second
-- end_time, too, and what would have been carried into the day after.
CREATE TRIGGER exclusion_insert AFTER INSERT ON exclusion BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.start_time, 'unixepoch'),
        CASE NEW.kind
            WHEN 'monitoring-host'
                THEN coalesce(date(NEW.end_time, 'unixepoch', '+1 day'), '9999-12-31')
            ELSE date(NEW.end_time - 1, 'unixepoch')
        END
    );
END;

-- Marks the days of an exclusion that somebody took back.
CREATE TRIGGER exclusion_update AFTER UPDATE ON exclusion BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.start_time, 'unixepoch'),
        CASE NEW.kind
            WHEN 'monitoring-host'
                THEN coalesce(date(NEW.end_time, 'unixepoch', '+1 day'), '9999-12-31')
            ELSE date(NEW.end_time - 1, 'unixepoch')
        END
    );
END;
