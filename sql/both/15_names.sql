-- Names by id, the same in both dialects; 20_views.sql needs them.

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
COMMENT ON VIEW metric_instance_name IS 'Metric instances with their names.';

CREATE VIEW report_instance AS
SELECT
    i.instance_id, i.endpoint_id, i.metric_id, i.vo_id,
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
    'Metric instances with their names, by the instance_id of report_result.';

CREATE VIEW report_source AS
SELECT k.source_id, p.identity AS publisher
FROM result_source AS k
JOIN publisher AS p ON p.publisher_id = k.publisher_id;
COMMENT ON VIEW report_source IS
    'The publishers of results, by the source_id of report_result: for a few results, looking up '
    'theirs is cheaper than the column publisher, which reads all sources.';
