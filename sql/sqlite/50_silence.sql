-- What the alarms for silence read: probes and sites that should report, and their newest results.
-- The rules are in docs/consumer.md, "Silence".

-- Endpoints that belong to a site now and are monitored there.
CREATE VIEW watched_membership AS
SELECT m.endpoint_id, m.site_id, m.grid_site
FROM endpoint_membership AS m
WHERE m.holds
    AND m.valid_from <= unixepoch()
    AND coalesce(m.valid_to > unixepoch(), true)
    AND (m.monitored IS NULL OR lower(m.monitored) NOT IN ('n', 'no', 'f', 'false', '0'));

-- Endpoints that need not report: those that the topology no longer has or does not monitor, and
-- those that are in a downtime, or were within the last hour.
CREATE VIEW resting_endpoint AS
SELECT m.endpoint_id
FROM endpoint_membership AS m
WHERE m.holds
    AND NOT EXISTS (SELECT 1 FROM watched_membership AS w WHERE w.endpoint_id = m.endpoint_id)
UNION
SELECT e.endpoint_id
FROM announced_downtime AS a
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id
JOIN endpoint AS e
    ON e.host_id = a.host_id
    AND (f.name = '' OR e.service_flavour_id = a.service_flavour_id)
WHERE a.holds
    AND a.start_time < a.end_time
    AND a.start_time <= unixepoch()
    AND a.end_time > unixepoch() - 3600
UNION
SELECT w.endpoint_id
FROM announced_downtime AS a
JOIN host AS h ON h.host_id = a.host_id AND h.name = ''
JOIN service_flavour AS f ON f.service_flavour_id = a.service_flavour_id
JOIN site AS s ON s.site_id = a.site_id
JOIN watched_membership AS w ON w.site_id = a.site_id OR w.grid_site = s.name
JOIN endpoint AS e
    ON e.endpoint_id = w.endpoint_id
    AND (f.name = '' OR e.service_flavour_id = a.service_flavour_id)
WHERE a.holds
    AND a.start_time < a.end_time
    AND a.start_time <= unixepoch()
    AND a.end_time > unixepoch() - 3600;

-- Probes whose interval is known, and when they are silent unless another result arrives: after one
-- and a half intervals.
CREATE VIEW watched_probe AS
SELECT
    i.status_id,
    i.measured_at,
    1.5 * i.interval_s AS limit_s,
    i.measured_at + 1.5 * i.interval_s AS silent_at
FROM instance_status AS i
WHERE i.intervals >= 3
    AND i.endpoint_id NOT IN (SELECT r.endpoint_id FROM resting_endpoint AS r);

-- The names of probes.
CREATE VIEW probe_name AS
SELECT
    i.status_id,
    f.name AS service_flavour,
    h.name AS host_name,
    m.name AS metric_name,
    v.name AS vo
FROM instance_status AS i
CROSS JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
CROSS JOIN host AS h ON h.host_id = e.host_id
CROSS JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
CROSS JOIN metric AS m ON m.metric_id = i.metric_id
CROSS JOIN vo AS v ON v.vo_id = i.vo_id;

-- Sites with endpoints that should report.
CREATE VIEW watched_site AS
SELECT s.name AS site
FROM site AS s
WHERE s.site_id IN (
    SELECT w.site_id FROM watched_membership AS w
    WHERE w.endpoint_id NOT IN (SELECT r.endpoint_id FROM resting_endpoint AS r)
);

-- When each probe of a site last reported.
CREATE VIEW site_probe AS
SELECT s.name AS site, i.status_id, i.measured_at
FROM instance_status AS i
JOIN watched_membership AS w ON w.endpoint_id = i.endpoint_id
JOIN site AS s ON s.site_id = w.site_id;

-- The range of results that instance_status does not yet include, NULL if there are none; and its
-- newest row.
CREATE VIEW fold_state AS
SELECT
    CASE WHEN n.newest > f.result_id THEN f.result_id + 1 END AS oldest,
    CASE WHEN n.newest > f.result_id THEN n.newest END AS newest,
    (SELECT max(i.status_id) FROM instance_status AS i) AS last_status
FROM folded AS f
CROSS JOIN (SELECT max(r.result_id) AS newest FROM metric_result AS r) AS n;
