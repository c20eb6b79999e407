-- The newest statuses of probes.

CREATE VIEW report_status AS
SELECT
    i.endpoint_id,
    f.name AS service_flavour,
    h.name AS host_name,
    m.name AS metric_name,
    v.name AS vo,
    s.name AS status,
    i.since,
    i.measured_at,
    CAST(extract(epoch FROM i.since) AS bigint) AS since_s,
    CAST(extract(epoch FROM i.measured_at) AS bigint) AS measured_at_s,
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
FROM instance_status AS i
JOIN metric_status AS s ON s.status = i.status
JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN metric AS m ON m.metric_id = i.metric_id
JOIN vo AS v ON v.vo_id = i.vo_id;
COMMENT ON VIEW report_status IS
    'The newest status of each metric of each endpoint, as seen by each VO, wherever the endpoint '
    'is, and since when it has held.';

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
    WHERE p.holds AND p.valid_from <= now() AND (p.valid_to IS NULL OR p.valid_to > now())
) AS home ON home.endpoint_id = n.endpoint_id;
COMMENT ON VIEW current_status IS
    'The newest status of each metric of each endpoint, and since when it has held. The site is '
    'empty if the endpoint is not in the topology now.';
