-- What the alarms for silence read: probes and sites that should report, and their newest results.
-- Rules in docs/consumer.md, "Silence".

CREATE VIEW resting_endpoint AS
SELECT m.endpoint_id
FROM endpoint_membership AS m
GROUP BY m.endpoint_id
HAVING NOT bool_or(
    m.valid_from <= now()
    AND coalesce(m.valid_to, 'infinity') > now()
    AND lower(coalesce(m.monitored, 'Y')) NOT IN ('n', 'no', 'f', 'false', '0')
)
UNION
SELECT e.endpoint_id
FROM announced_downtime AS a
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id
JOIN endpoint AS e
    ON e.host_id = a.host_id
    AND (f.name = '' OR e.service_flavour_id = a.service_flavour_id)
WHERE a.start_time < a.end_time
    AND a.start_time <= now()
    AND a.end_time > now() - interval '1 hour'
UNION
SELECT m.endpoint_id
FROM announced_downtime AS a
JOIN host AS h ON h.host_id = a.host_id AND h.name = ''
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id
JOIN endpoint_membership AS m ON m.site_id = a.site_id
JOIN endpoint AS e
    ON e.endpoint_id = m.endpoint_id
    AND (f.name = '' OR e.service_flavour_id = a.service_flavour_id)
WHERE a.start_time < a.end_time
    AND a.start_time <= now()
    AND a.end_time > now() - interval '1 hour'
    AND m.valid_from <= now()
    AND coalesce(m.valid_to, 'infinity') > now();
COMMENT ON VIEW resting_endpoint IS
    'Endpoints that need not report: those that the topology no longer has or does not monitor, and '
    'those that are in a downtime, or were within the last hour.';

CREATE VIEW watched_probe AS
SELECT
    i.status_id,
    f.name AS service_flavour,
    h.name AS host_name,
    m.name AS metric_name,
    v.name AS vo,
    i.measured_at,
    1.5 * i.interval_s AS limit_s,
    i.measured_at + make_interval(secs => 1.5 * i.interval_s) AS silent_at
FROM instance_status AS i
JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN metric AS m ON m.metric_id = i.metric_id
JOIN vo AS v ON v.vo_id = i.vo_id
WHERE i.intervals >= 3
    AND i.endpoint_id NOT IN (SELECT r.endpoint_id FROM resting_endpoint AS r);
COMMENT ON VIEW watched_probe IS
    'Probes whose interval is known, and when they are silent unless another result arrives: after '
    'one and a half intervals.';

CREATE VIEW watched_site AS
SELECT
    s.name AS site,
    max(i.measured_at) AS measured_at
FROM endpoint_membership AS m
JOIN site AS s ON s.site_id = m.site_id
LEFT JOIN instance_status AS i ON i.endpoint_id = m.endpoint_id
WHERE m.valid_from <= now()
    AND coalesce(m.valid_to, 'infinity') > now()
    AND m.endpoint_id NOT IN (SELECT r.endpoint_id FROM resting_endpoint AS r)
GROUP BY s.name;
COMMENT ON VIEW watched_site IS
    'Sites with endpoints that should report, and the time of their newest result.';

CREATE VIEW unfolded_news AS
SELECT
    min(news_id) AS oldest,
    max(news_id) AS newest
FROM load_news;
COMMENT ON VIEW unfolded_news IS
    'The range of the batches that instance_status does not yet include; NULL if there are none.';
