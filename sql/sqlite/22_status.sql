-- The newest statuses of probes, and the results that were not folded into them yet.

-- Results that were not folded yet, or are worse now than when they were folded.
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

-- The days that unfolded results change. A report looks back to the previous day, so a result
-- changes two days. Days before the horizon are frozen, and no report exists for days in the
-- future.
CREATE VIEW unfolded_day AS
SELECT day
FROM (
    SELECT date(measured_at, 'unixepoch') AS day FROM unfolded_result
    UNION
    SELECT date(measured_at, 'unixepoch', '+1 day') FROM unfolded_result
)
WHERE day BETWEEN coalesce((SELECT day FROM horizon), '') AND date('now');

-- The rows of instance_status as unfolded results change them. A result newer than the newest one
-- starts a status or extends the present one. An older result changes nothing if it is older than
-- other_at, or if it has the present status and is not older than since. Otherwise the history of
-- its instances is read.
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
    -- Of several results for one moment the worst counts, with its summary.
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
        max(before_at) FILTER (WHERE status IS NOT before) AS other_at,
        avg(measured_at - before_at) AS gap_s,
        count(before_at) AS gaps
    FROM step
    GROUP BY status_id
),
-- The history in steps: the newest result, the newest time before it at which another status held,
-- the oldest time after that. There is no row if the known status comes from pruned results.
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
        ) AS changed_at
    FROM newest_result AS n
),
-- What is known from pruned results is kept.
known AS MATERIALIZED (
    SELECT
        o.*,
        CASE WHEN o.is_same_status AND o.other_at < o.horizon_at THEN o.other_at END AS pruned_at,
        CASE WHEN o.is_same_status AND o.since < o.horizon_at THEN o.since END AS pruned_since
    FROM (
        SELECT
            other.*,
            changed_at IS NULL AND held = status AS is_same_status,
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
    n.summary, n.gap_s, n.gaps
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
                    AND r.measured_at > coalesce(n.changed_at, n.pruned_at, -1e18)
            ))
            FROM metric_instance AS i
            WHERE i.status_id = n.status_id
        )
    ),
    n.measured_at,
    coalesce(n.changed_at, n.pruned_at),
    n.summary,
    NULL,
    0
FROM known AS n;

-- The newest status of each metric of each endpoint, as seen by each VO, wherever the endpoint is, and
-- since when it has held. CROSS JOIN makes SQLite begin with the statuses regardless of its
-- statistics: another order takes four times as long.
CREATE VIEW report_status AS
SELECT
    i.endpoint_id,
    f.name AS service_flavour,
    h.name AS host_name,
    m.name AS metric_name,
    v.name AS vo,
    s.name AS status,
    strftime('%Y-%m-%dT%H:%M:%SZ', i.since, 'unixepoch') AS since,
    strftime('%Y-%m-%dT%H:%M:%SZ', i.measured_at, 'unixepoch') AS measured_at,
    i.since AS since_s,
    i.measured_at AS measured_at_s,
    i.summary,
    (
        SELECT k.publisher
        FROM metric_instance AS n
        JOIN metric_result AS r
            ON r.instance_id = n.instance_id
            AND r.measured_at = i.measured_at
            AND r.status = i.status
        JOIN report_source AS k ON k.source_id = r.source_id
        WHERE n.status_id = i.status_id
        ORDER BY r.result_id
        LIMIT 1
    ) AS publisher
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
CROSS JOIN vo AS v ON v.vo_id = i.vo_id;

-- The newest status of each metric of each endpoint, and since when it has held. The site is empty
-- if the endpoint is not in the topology now.
CREATE VIEW current_status AS
SELECT
    coalesce(home.site, '') AS site,
    n.service_flavour, n.host_name, n.metric_name, n.vo, n.status, n.since, n.measured_at,
    n.summary, n.publisher
FROM report_status AS n
LEFT JOIN (
    SELECT DISTINCT p.endpoint_id, t.name AS site
    FROM endpoint_membership AS p
    JOIN site AS t ON t.site_id = p.site_id
    WHERE p.holds
        AND p.valid_from <= unixepoch('now')
        AND (p.valid_to IS NULL OR p.valid_to > unixepoch('now'))
) AS home ON home.endpoint_id = n.endpoint_id;
