-- The public interface: class views (one per message class), inputs of reports, report views.
-- Those with the same statement in both dialects are in ../both.

-- Class views -----------------------------------------------------------------------------------
-- The columns are the attributes of the class: SELECT hostName FROM metricOutput. Missing values
-- are NULL. messageId, publisher, receivedAt and source are facts about the message, set when it is
-- loaded. The triggers in 31_metric_output.sql and 32_statements.sql accept inserts. Classes of
-- statements show those that hold.

-- Message class: results of probes.
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
    NULLIF(g.gathered_at, '') AS gatheredAt,
    NULLIF(g.monitoring_host, '') AS monitoringHost,
    r.summary AS summaryData,
    d.details AS detailsData,
    NULLIF(n.vo, '') AS voName,
    NULLIF(n.fqan, '') AS voFqan,
    NULLIF(k.role, '') AS role,
    NULLIF(k.nagios_name, '') AS nagiosName,
    NULLIF(k.encrypted, '') AS encrypted,
    r.message_id AS messageId,
    p.identity AS publisher,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.received_at, 'unixepoch') AS receivedAt
FROM metric_result AS r
JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
JOIN metric_status AS s ON s.status = r.status
JOIN gatherer AS g ON g.gatherer_id = r.gatherer_id
JOIN result_source AS k ON k.source_id = r.source_id
JOIN publisher AS p ON p.publisher_id = k.publisher_id
LEFT JOIN metric_result_detail AS d
    ON d.instance_id = r.instance_id
    AND d.measured_at = r.measured_at
    AND d.gatherer_id = r.gatherer_id
    AND d.ordinal = r.ordinal;

-- Statements about the endpoints of sites, each with its source.
CREATE VIEW endpoint_statement AS
SELECT
    s.name AS siteName,
    h.name AS hostName,
    f.name AS serviceFlavour,
    m.service_uri AS serviceURI,
    NULLIF(v.name, '') AS voName,
    m.grid_site AS gridSite,
    m.production AS production,
    m.monitored AS monitored,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_from, 'unixepoch') AS validFrom,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch') AS validTo,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.said_at, 'unixepoch') AS timestamp,
    m.message_id AS messageId,
    p.identity AS publisher,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.received_at, 'unixepoch') AS receivedAt,
    coalesce(m.source, 'message') AS source,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.withdrawn_at, 'unixepoch') AS withdrawnAt,
    m.holds AS holds
FROM endpoint_membership AS m
JOIN publisher AS p ON p.publisher_id = m.publisher_id
JOIN site AS s ON s.site_id = m.site_id
JOIN endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN vo AS v ON v.vo_id = m.vo_id;

-- Statements about the members of groups, each with its source.
CREATE VIEW group_statement AS
SELECT
    s.name AS siteName,
    g.name AS groupName,
    g.group_type AS groupType,
    m.weight AS weight,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_from, 'unixepoch') AS validFrom,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch') AS validTo,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.said_at, 'unixepoch') AS timestamp,
    m.message_id AS messageId,
    p.identity AS publisher,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.received_at, 'unixepoch') AS receivedAt,
    coalesce(m.source, 'message') AS source,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.withdrawn_at, 'unixepoch') AS withdrawnAt,
    m.holds AS holds
FROM site_group_member AS m
JOIN publisher AS p ON p.publisher_id = m.publisher_id
JOIN site AS s ON s.site_id = m.site_id
JOIN site_group AS g ON g.site_group_id = m.site_group_id;

-- Statements about the contacts of sites, each with its source.
CREATE VIEW contact_statement AS
SELECT
    s.name AS siteName,
    NULLIF(c.contact, '') AS contact,
    strftime('%Y-%m-%dT%H:%M:%SZ', c.said_at, 'unixepoch') AS timestamp,
    c.message_id AS messageId,
    p.identity AS publisher,
    strftime('%Y-%m-%dT%H:%M:%SZ', c.received_at, 'unixepoch') AS receivedAt,
    coalesce(c.source, 'message') AS source,
    strftime('%Y-%m-%dT%H:%M:%SZ', c.withdrawn_at, 'unixepoch') AS withdrawnAt,
    c.holds AS holds
FROM site_contact AS c
JOIN publisher AS p ON p.publisher_id = c.publisher_id
JOIN site AS s ON s.site_id = c.site_id;

-- Statements about downtimes, each with its source.
CREATE VIEW downtime_statement AS
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
    strftime('%Y-%m-%dT%H:%M:%SZ', a.said_at, 'unixepoch') AS timestamp,
    a.message_id AS messageId,
    p.identity AS publisher,
    strftime('%Y-%m-%dT%H:%M:%SZ', a.received_at, 'unixepoch') AS receivedAt,
    strftime('%Y-%m-%dT%H:%M:%SZ', a.announced_at, 'unixepoch') AS announcedAt,
    coalesce(a.source, 'message') AS source,
    strftime('%Y-%m-%dT%H:%M:%SZ', a.withdrawn_at, 'unixepoch') AS withdrawnAt,
    a.holds AS holds
FROM announced_downtime AS a
JOIN publisher AS p ON p.publisher_id = a.publisher_id
JOIN site AS s ON s.site_id = a.site_id
JOIN host AS h ON h.host_id = a.host_id
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id;

-- Inputs of reports -----------------------------------------------------------------------------
-- Results have no site here: the topology assigns it. Times appear twice, as a timestamp and in
-- epoch seconds (…_s).

-- Results with the ids and names that reports read. A query pays only for the names that it uses:
-- SQLite removes an unused outer join, but not a chain of them, hence the sub-queries.
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
    g.gathered_at, g.monitoring_host, r.summary, r.performance_data, r.message_id,
    r.status AS status_code,
    r.source_id,
    (SELECT k.publisher FROM report_source AS k WHERE k.source_id = r.source_id) AS publisher,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.received_at, 'unixepoch') AS received_at
FROM metric_result AS r
LEFT JOIN metric_status AS s ON s.status = r.status
LEFT JOIN gatherer AS g ON g.gatherer_id = r.gatherer_id;

-- Endpoints of sites, as announced. production and monitored are as sent; NULL means yes.
CREATE VIEW report_topology AS
SELECT
    s.name AS site,
    h.name AS host_name,
    f.name AS service_flavour,
    v.name AS vo,
    m.service_uri, m.grid_site, m.production, m.monitored,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_from, 'unixepoch') AS valid_from,
    strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch') AS valid_to,
    m.valid_from AS valid_from_s,
    m.valid_to AS valid_to_s
FROM endpoint_membership AS m
JOIN site AS s ON s.site_id = m.site_id
JOIN endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN vo AS v ON v.vo_id = m.vo_id
WHERE m.holds;

-- Downtimes that are not cancelled. Without a flavour a downtime applies to the whole host, without
-- a host to the whole site. A part that was added later is a row of its own, with the time at which
-- it was announced; whole_start_s and whole_end_s are those of the downtime.
CREATE VIEW report_downtime AS
SELECT
    a.downtime_id,
    s.name AS site,
    h.name AS host_name,
    f.name AS service_flavour,
    strftime('%Y-%m-%dT%H:%M:%SZ', part.start_s, 'unixepoch') AS start_time,
    strftime('%Y-%m-%dT%H:%M:%SZ', part.end_s, 'unixepoch') AS end_time,
    part.start_s, part.end_s, a.classification, a.severity, a.description,
    p.identity AS publisher,
    strftime('%Y-%m-%dT%H:%M:%SZ', part.announced_s, 'unixepoch') AS announced_at,
    part.announced_s,
    a.start_time AS whole_start_s,
    a.end_time AS whole_end_s
FROM (
    SELECT
        edge.statement_id,
        edge.at AS start_s,
        lead(edge.at, 1, edge.last) OVER (PARTITION BY edge.statement_id ORDER BY edge.at) AS end_s,
        (
            -- The first of the statements from which on all have it.
            SELECT min(k.announced_at)
            FROM announced_downtime AS a
            JOIN announced_downtime AS k
                ON (k.site_id, k.key) = (a.site_id, a.key)
                AND k.withdrawn_at IS NULL
            WHERE a.statement_id = edge.statement_id
                AND NOT EXISTS (
                    SELECT 1 FROM announced_downtime AS b
                    WHERE (b.site_id, b.key) = (a.site_id, a.key)
                        AND b.withdrawn_at IS NULL
                        AND (b.rank, b.statement_id) >= (k.rank, k.statement_id)
                        AND (
                            b.start_time > edge.at
                            OR b.end_time <= edge.at
                            OR b.classification <> a.classification
                            OR b.severity <> a.severity
                        )
                )
        ) AS announced_s
    FROM (
        SELECT DISTINCT
            a.statement_id,
            a.end_time AS last,
            CASE side.is_end WHEN 0 THEN k.start_time ELSE k.end_time END AS at
        FROM announced_downtime AS a
        JOIN announced_downtime AS k
            ON (k.site_id, k.key) = (a.site_id, a.key)
            AND k.withdrawn_at IS NULL
        CROSS JOIN (SELECT 0 AS is_end UNION ALL SELECT 1) AS side
        WHERE a.holds
            AND CASE side.is_end WHEN 0 THEN k.start_time ELSE k.end_time END >= a.start_time
            AND CASE side.is_end WHEN 0 THEN k.start_time ELSE k.end_time END < a.end_time
    ) AS edge
) AS part
JOIN announced_downtime AS a ON a.statement_id = part.statement_id
JOIN publisher AS p ON p.publisher_id = a.publisher_id
JOIN site AS s ON s.site_id = a.site_id
JOIN host AS h ON h.host_id = a.host_id
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id;

-- Members of groups of sites, as announced.
CREATE VIEW report_site_group AS
SELECT
    siteName AS site, groupType AS group_type, groupName AS group_name, weight,
    validFrom AS valid_from, validTo AS valid_to,
    unixepoch(validFrom) AS valid_from_s, unixepoch(validTo) AS valid_to_s
FROM group_statement
WHERE holds;

-- All exclusions, including those that were removed.
CREATE VIEW exclusion_history AS
SELECT
    exclusion_id, kind, monitoring_host, metric_name, site, service_flavour, host_name,
    strftime('%Y-%m-%dT%H:%M:%SZ', start_time, 'unixepoch') AS start_time,
    strftime('%Y-%m-%dT%H:%M:%SZ', end_time, 'unixepoch') AS end_time,
    start_time AS start_s,
    end_time AS end_s,
    reason,
    who,
    strftime('%Y-%m-%dT%H:%M:%SZ', added_at, 'unixepoch') AS added_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', removed_at, 'unixepoch') AS removed_at,
    removed_by,
    removed_because
FROM exclusion;

-- The last result_id assigned. A run reads no result beyond it.
CREATE VIEW report_newest_result AS
SELECT coalesce(max(result_id), 0) AS result_id FROM metric_result;

-- Days whose results, topology, downtimes or exclusions have changed. Without a number no run has
-- read the change yet. A report is due for a day if its published run, or its candidate, has a
-- smaller change_no. results_no numbers the changes of results alone.
CREATE VIEW report_changed_day AS
SELECT day, change_no, results_no FROM changed_day WHERE day NOT IN (SELECT day FROM unfolded_day)
UNION ALL
SELECT day, NULL, NULL FROM unfolded_day;

-- Report views ----------------------------------------------------------------------------------
-- Figures of the published run of each report and day.

-- The figures of published runs.
CREATE VIEW published_figure AS
SELECT
    p.report, p.day, f.level, f.site, f.service_flavour, f.host_name, f.function, f.availability,
    f.reliability, f.ok_s, f.warning_s, f.critical_s, f.unknown_s, f.missing_s, f.downtime_s,
    f.excluded_s,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.until, 'unixepoch') AS until,
    p.run_id
FROM published_run AS p
JOIN run AS r ON r.run_id = p.run_id
JOIN figure AS f ON f.run_id = p.run_id;

-- Availability of sites, by calendar month: the seconds of all published days are added up, then
-- divided, in integers that round half up exactly. A sealed month has a revision.
CREATE VIEW site_month AS
SELECT
    m.report, m.month, m.site,
    (20000000 * m.up_s + m.known_s) / NULLIF(2 * m.known_s, 0) / 100000.0 AS availability,
    (20000000 * m.up_s + m.in_service_s) / NULLIF(2 * m.in_service_s, 0) / 100000.0 AS reliability,
    (20000000 * m.not_known_s + m.known_s + m.not_known_s)
        / NULLIF(2 * (m.known_s + m.not_known_s), 0) / 100000.0 AS unknown,
    m.ok_s, m.warning_s, m.critical_s, m.unknown_s, m.missing_s, m.downtime_s, m.excluded_s, m.days,
    m.until,
    (
        SELECT max(s.revision) FROM seal AS s
        WHERE s.report = m.report AND s.month = substr(m.month, 1, 7)
    ) AS revision
FROM (
    SELECT
        f.report,
        date(f.day, 'start of month') AS month,
        f.site,
        sum(f.ok_s + f.warning_s) AS up_s,
        sum(f.ok_s + f.warning_s + f.critical_s + f.downtime_s) AS known_s,
        sum(f.ok_s + f.warning_s + f.critical_s) AS in_service_s,
        sum(f.unknown_s + f.missing_s + f.excluded_s) AS not_known_s,
        sum(f.ok_s) AS ok_s,
        sum(f.warning_s) AS warning_s,
        sum(f.critical_s) AS critical_s,
        sum(f.unknown_s) AS unknown_s,
        sum(f.missing_s) AS missing_s,
        sum(f.downtime_s) AS downtime_s,
        sum(f.excluded_s) AS excluded_s,
        count(*) AS days,
        max(f.until) AS until
    FROM published_figure AS f
    WHERE f.level = 'site'
    GROUP BY 1, 2, 3
) AS m;

-- Availability of groups of sites, by calendar month: the mean of the figures that their sites have
-- over their days as members, weighted by the sums of their weights over those of these days on which
-- they have a value. It is NULL if these sums are 0. The errors of the quotients are below 1e-11: a
-- mean that lies halfway between two figures is raised by that much, so that it is rounded up.
CREATE VIEW group_month AS
SELECT
    m.report, m.month, m.group_type, m.group_name,
    round(
        sum(m.weight * 100.0 * m.up_s / NULLIF(m.known_s, 0)) / NULLIF(sum(m.weight), 0) + 1e-11,
        5
    ) AS availability,
    round(
        sum(m.reliability_weight * 100.0 * m.up_s / NULLIF(m.in_service_s, 0))
        / NULLIF(sum(m.reliability_weight), 0) + 1e-11,
        5
    ) AS reliability,
    count(*) AS sites_expected,
    count(*) FILTER (WHERE m.known_s > 0) AS sites_known,
    d.days,
    strftime('%Y-%m-%dT%H:%M:%SZ', d.until, 'unixepoch') AS until,
    (
        SELECT max(s.revision) FROM seal AS s
        WHERE s.report = m.report AND s.month = substr(m.month, 1, 7)
    ) AS revision
FROM (
    SELECT
        p.report,
        date(p.day, 'start of month') AS month,
        g.group_type, g.group_name, g.site,
        sum(g.weight) FILTER (
            WHERE f.ok_s + f.warning_s + f.critical_s + f.downtime_s > 0
        ) AS weight,
        sum(g.weight) FILTER (
            WHERE f.ok_s + f.warning_s + f.critical_s > 0
        ) AS reliability_weight,
        sum(f.ok_s + f.warning_s) AS up_s,
        sum(f.ok_s + f.warning_s + f.critical_s + f.downtime_s) AS known_s,
        sum(f.ok_s + f.warning_s + f.critical_s) AS in_service_s
    FROM published_run AS p
    JOIN group_site AS g ON g.run_id = p.run_id
    JOIN figure AS f ON f.run_id = g.run_id AND f.level = 'site' AND f.site = g.site
    GROUP BY 1, 2, 3, 4, 5
) AS m
JOIN (
    SELECT
        p.report,
        date(p.day, 'start of month') AS month,
        g.group_type,
        g.group_name,
        count(*) AS days,
        max(r.until) AS until
    FROM published_run AS p
    JOIN run AS r ON r.run_id = p.run_id
    JOIN group_figure AS g ON g.run_id = p.run_id
    GROUP BY 1, 2, 3, 4
) AS d
    ON d.report = m.report AND d.month = m.month
    AND d.group_type = m.group_type AND d.group_name = m.group_name
GROUP BY m.report, m.month, m.group_type, m.group_name, d.days, d.until;

-- Status timelines of metrics, endpoints, services, functions and sites, cut into days.
CREATE VIEW status_timeline AS
SELECT
    p.report, p.day, t.level, t.site, t.service_flavour, t.host_name, t.metric_name, t.function,
    strftime('%Y-%m-%dT%H:%M:%SZ', t.start_time, 'unixepoch') AS start_time,
    strftime('%Y-%m-%dT%H:%M:%SZ', t.end_time, 'unixepoch') AS end_time,
    t.status,
    p.run_id
FROM published_run AS p
JOIN timeline_segment AS t ON t.run_id = p.run_id;

-- How often each timeline changed its status in a day, when it first and last did so, and the
-- seconds it spent in each status.
CREATE VIEW status_trend AS
SELECT
    p.report, p.day, t.level, t.site, t.service_flavour, t.host_name, t.metric_name, t.function,
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
    p.run_id, p.report, p.day, t.level, t.site, t.service_flavour, t.host_name, t.metric_name,
    t.function;

-- All runs of all reports: what they read, and their state.
CREATE VIEW report_run AS
SELECT
    r.run_id, r.report, r.day,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.started_at, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.finished_at, 'unixepoch') AS finished_at,
    CASE WHEN c.run_id IS NULL THEN r.state ELSE 'candidate' END AS state,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.until, 'unixepoch') AS until,
    r.results_read, r.results_ignored, r.instances, r.results_digest, r.topology_digest,
    r.downtimes_digest, r.profile_digest, r.input_digest, r.profile, r.software_version, r.who,
    r.change_no, r.exclusions_digest, r.newest_result, r.look_back, r.downtimes, r.exclusions
FROM run AS r
LEFT JOIN candidate_run AS c ON c.run_id = r.run_id;

-- Months whose published figures are final: a row for each time the month was sealed.
CREATE VIEW report_seal AS
SELECT
    report, month, revision, who, reason,
    strftime('%Y-%m-%dT%H:%M:%SZ', sealed_at, 'unixepoch') AS sealed_at
FROM seal;

-- The runs of each revision of a sealed month. The one that is not sealed is what the next seal
-- would publish.
CREATE VIEW report_revision AS
SELECT report, month, revision, 1 AS sealed, day, run_id FROM revision_run
UNION ALL
SELECT s.report, s.month, s.revision + 1, 0, n.day, n.run_id
FROM (SELECT report, month, max(revision) AS revision FROM seal GROUP BY report, month) AS s
JOIN (
    SELECT report, day, run_id FROM candidate_run
    UNION ALL
    SELECT report, day, run_id FROM published_run AS p
    WHERE NOT EXISTS (
        SELECT 1 FROM candidate_run AS c WHERE c.report = p.report AND c.day = p.day
    )
) AS n ON n.report = s.report AND substr(n.day, 1, 7) = s.month;

-- The newest runs of days in sealed months whose figures differ from the sealed ones, as
-- report_change shows. The next seal publishes them.
CREATE VIEW report_candidate AS
SELECT report, day, run_id FROM candidate_run AS c
WHERE EXISTS (SELECT 1 FROM report_change_row AS h WHERE h.run_id = c.run_id);

-- Audit -----------------------------------------------------------------------------------------

-- Audit of loaders: one row for each committed batch, until it is pruned.
CREATE VIEW load_audit AS
SELECT
    batch_id,
    strftime('%Y-%m-%dT%H:%M:%SZ', loaded_at, 'unixepoch') AS loaded_at,
    database_user, consumer, host, process_id, brokers, publishers, messages, rows, duplicates,
    dead_letters, repeated_dead_letters, summarised_dead_letters, checks
FROM loaded_batch;

-- What operators did to the data; `sam-db audit verify` checks the chain of digests.
CREATE VIEW operation_log AS
SELECT
    operation_id,
    strftime('%Y-%m-%dT%H:%M:%SZ', happened_at, 'unixepoch') AS happened_at,
    database_login, os_login, command, arguments, previous_digest, digest
FROM operation;

-- Archive ---------------------------------------------------------------------------------------
-- What `sam-db archive` reads besides the input views of reports, and the tables of results and
-- gatherers: it looks names up once for each id, as most results share them.

-- The versions of archived days that a revision of a sealed month was computed from.
CREATE VIEW sealed_version AS
SELECT DISTINCT a.day, a.version
FROM run_archive AS a
JOIN revision_run AS v ON v.run_id = a.run_id;
