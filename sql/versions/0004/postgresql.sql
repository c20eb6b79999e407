-- Exclusions, sealed months and their candidates; runs keep what they have read; results without
-- names they aren't asked for.

CREATE TABLE exclusion (
    exclusion_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('monitoring-host', 'metric', 'group')),
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
);
COMMENT ON TABLE exclusion IS
    'A time that shall not count, and who says so; an absent selector, which means any, is empty. '
    'Of a monitoring host the second end_time does not count either. Who takes one back leaves the '
    'row, with removed_at.';

COMMENT ON TABLE changed_day IS
    'Days whose results, topology, downtimes or exclusions changed. A run of a report numbers the '
    'changes it is going to read; without a number: changed after any run. The first day with '
    'results is the first of all.';
COMMENT ON VIEW report_changed_day IS
    'Days whose results, topology, downtimes or exclusions changed; no number: since any run '
    'looked. A day is due for a report whose published run, or candidate, has a smaller change_no.';

ALTER TABLE run
    ADD COLUMN exclusions_digest text,
    ADD COLUMN newest_result bigint,
    ADD COLUMN downtimes text,
    ADD COLUMN exclusions text;
COMMENT ON TABLE run IS
    'A computation of one report for one day and what it read; results_ignored is JSON '
    '{"reason": count}, until is the time of the run where the day was still open, change_no the '
    'newest change of changed_day that it has read, newest_result the last result_id. downtimes '
    'and exclusions are JSON: those that touch the day, the ones that do not count, too.';

CREATE TABLE seal (
    report text COLLATE "C" NOT NULL,
    month text COLLATE "C" NOT NULL CHECK (month ~ '^\d{4}-\d\d$'),
    who text NOT NULL,
    sealed_at timestamptz NOT NULL,
    PRIMARY KEY (report, month)
);
COMMENT ON TABLE seal IS
    'A month (2026-11) whose published figures stay: its days keep their runs in published_run, '
    'and later ones become candidates. sealed_at is the last time it was sealed.';

CREATE TABLE candidate_run (
    report text COLLATE "C" NOT NULL,
    day date NOT NULL,
    run_id integer NOT NULL REFERENCES run,
    PRIMARY KEY (report, day)
);
COMMENT ON TABLE candidate_run IS
    'The newest run of a sealed day, which the next seal publishes: superseded from its beginning, '
    'but not swept.';

ALTER TABLE timeline_segment
    DROP CONSTRAINT timeline_segment_pkey,
    DROP CONSTRAINT timeline_segment_run_id_fkey;
COMMENT ON TABLE timeline_segment IS
    'A status held in [start_time, end_time) of the day; absent key parts are empty. Nothing is '
    'unique and there is no foreign key: a run writes hundreds of thousands, and each once.';
CREATE INDEX timeline_segment_site ON timeline_segment (run_id, site, level);
COMMENT ON INDEX timeline_segment_site IS 'The timelines of one site.';

CREATE OR REPLACE VIEW report_result AS
SELECT
    r.result_id,
    r.instance_id,
    h.name AS host_name,
    f.name AS service_flavour,
    m.name AS metric_name,
    v.name AS vo,
    q.name AS fqan,
    r.measured_at,
    CAST(extract(epoch FROM r.measured_at) AS bigint) AS measured_at_s,
    s.name AS status,
    g.name AS gathered_at,
    k.monitoring_host,
    r.summary,
    r.performance_data,
    r.message_id,
    r.status AS status_code
FROM metric_result AS r
LEFT JOIN metric_instance AS i ON i.instance_id = r.instance_id
LEFT JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
LEFT JOIN host AS h ON h.host_id = e.host_id
LEFT JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
LEFT JOIN metric AS m ON m.metric_id = i.metric_id
LEFT JOIN vo AS v ON v.vo_id = i.vo_id
LEFT JOIN fqan AS q ON q.fqan_id = i.fqan_id
LEFT JOIN metric_status AS s ON s.status = r.status
LEFT JOIN host AS g ON g.host_id = r.gatherer_id
LEFT JOIN result_source AS k ON k.source_id = r.source_id;
COMMENT ON VIEW report_result IS
    'Results with the ids and names that reports read. A query pays for no name that it does '
    'not use: a database leaves out an outer join whose columns are not wanted.';

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
COMMENT ON VIEW report_instance IS
    'Metric instances with their names: what an instance_id of report_result is.';

CREATE VIEW report_exclusion AS
SELECT
    exclusion_id,
    kind,
    monitoring_host,
    metric_name,
    site,
    service_flavour,
    host_name,
    start_time,
    end_time,
    CAST(extract(epoch FROM start_time) AS bigint) AS start_s,
    CAST(extract(epoch FROM end_time) AS bigint) AS end_s,
    reason,
    who,
    added_at
FROM exclusion
WHERE removed_at IS NULL;
COMMENT ON VIEW report_exclusion IS
    'Times that shall not count: those in force. An empty selector means any.';

CREATE VIEW exclusion_history AS
SELECT
    exclusion_id,
    kind,
    monitoring_host,
    metric_name,
    site,
    service_flavour,
    host_name,
    start_time,
    end_time,
    CAST(extract(epoch FROM start_time) AS bigint) AS start_s,
    CAST(extract(epoch FROM end_time) AS bigint) AS end_s,
    reason,
    who,
    added_at,
    removed_at,
    removed_by
FROM exclusion;
COMMENT ON VIEW exclusion_history IS 'The same with those that somebody took back.';

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
    CASE WHEN count(*) > 1 THEN min(t.end_time) END AS first_change,
    CASE WHEN count(*) > 1 THEN max(t.start_time) END AS last_change,
    coalesce(
        sum(CAST(extract(epoch FROM t.end_time - t.start_time) AS integer))
        FILTER (WHERE t.status = 'OK'), 0
    ) AS ok_s,
    coalesce(
        sum(CAST(extract(epoch FROM t.end_time - t.start_time) AS integer))
        FILTER (WHERE t.status = 'WARNING'), 0
    ) AS warning_s,
    coalesce(
        sum(CAST(extract(epoch FROM t.end_time - t.start_time) AS integer))
        FILTER (WHERE t.status = 'CRITICAL'), 0
    ) AS critical_s,
    coalesce(
        sum(CAST(extract(epoch FROM t.end_time - t.start_time) AS integer))
        FILTER (WHERE t.status = 'UNKNOWN'), 0
    ) AS unknown_s,
    coalesce(
        sum(CAST(extract(epoch FROM t.end_time - t.start_time) AS integer))
        FILTER (WHERE t.status = 'MISSING'), 0
    ) AS missing_s,
    coalesce(
        sum(CAST(extract(epoch FROM t.end_time - t.start_time) AS integer))
        FILTER (WHERE t.status = 'DOWNTIME'), 0
    ) AS downtime_s,
    coalesce(
        sum(CAST(extract(epoch FROM t.end_time - t.start_time) AS integer))
        FILTER (WHERE t.status = 'EXCLUDED'), 0
    ) AS excluded_s,
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
COMMENT ON VIEW status_trend IS
    'How often the status of a thing changed in a day, when first and last, and the seconds of '
    'each.';

CREATE OR REPLACE VIEW report_run AS
SELECT
    r.run_id,
    r.report,
    r.day,
    r.started_at,
    r.finished_at,
    CASE WHEN c.run_id IS NULL THEN r.state ELSE 'candidate' END AS state,
    r.until,
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
COMMENT ON VIEW report_run IS 'Every run of every report: what it read, and what became of it.';

CREATE VIEW report_seal AS
SELECT report, month, who, sealed_at FROM seal;
COMMENT ON VIEW report_seal IS 'Months whose published figures stay as they are.';

CREATE VIEW report_candidate AS
SELECT report, day, run_id FROM candidate_run;
COMMENT ON VIEW report_candidate IS
    'The newest runs of sealed days, which the next seal publishes; report_change tells how '
    'they differ.';

-- An exclusion counts on each day that it touches. Of a monitoring host it takes the results of the
-- second end_time, too, and what would have been carried into the day after.

CREATE FUNCTION exclusion_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM mark_days(
        array_agg(date_trunc('day', start_time, 'UTC')),
        array_agg(
            CASE kind
                WHEN 'monitoring-host' THEN end_time + interval '24 hours 1 second'
                ELSE end_time
            END
        )
    )
    FROM new_rows;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION exclusion_change IS 'Marks the days of exclusions, new or taken back.';

CREATE TRIGGER exclusion_insert AFTER INSERT ON exclusion
REFERENCING NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION exclusion_change();
COMMENT ON TRIGGER exclusion_insert ON exclusion IS 'Marks changed days.';
CREATE TRIGGER exclusion_update AFTER UPDATE ON exclusion
REFERENCING NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION exclusion_change();
COMMENT ON TRIGGER exclusion_update ON exclusion IS 'Marks changed days.';
