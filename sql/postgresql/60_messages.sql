-- Where a message is.

CREATE FUNCTION rows_of_message(wanted text, begins timestamptz, ends timestamptz)
RETURNS TABLE (message_class text, record text, received_at timestamptz, holds boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
    SELECT
        'metricOutput',
        CAST(json_build_object(
            'hostName', m.hostName, 'serviceFlavour', m.serviceFlavour,
            'metricName', m.metricName, 'voName', m.voName, 'voFqan', m.voFqan,
            'timestamp', m.timestamp, 'gatheredAt', m.gatheredAt,
            'monitoringHost', m.monitoringHost
        ) AS text),
        m.receivedAt,
        true
    FROM metricOutput AS m
    WHERE m.messageId = wanted AND m.timestamp >= begins AND m.timestamp < ends
    UNION ALL
    SELECT
        'metricOutput',
        CAST(json_build_object(
            'hostName', n.host_name, 'serviceFlavour', n.service_flavour,
            'metricName', n.metric_name, 'voName', n.vo, 'voFqan', n.fqan,
            'timestamp', r.measured_at, 'gatheredAt', g.gathered_at,
            'monitoringHost', g.monitoring_host
        ) AS text),
        r.received_at,
        false
    FROM result_repeat AS r
    JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
    JOIN gatherer AS g ON g.gatherer_id = r.gatherer_id
    WHERE r.message_id = wanted AND r.measured_at >= begins AND r.measured_at < ends
    UNION ALL
    SELECT
        'serviceEndpoint',
        CAST(json_build_object(
            'siteName', e.siteName, 'hostName', e.hostName, 'serviceFlavour', e.serviceFlavour,
            'voName', e.voName, 'validFrom', e.validFrom
        ) AS text),
        e.receivedAt,
        e.holds
    FROM endpoint_statement AS e WHERE e.messageId = wanted
    UNION ALL
    SELECT
        'siteGroup',
        CAST(json_build_object(
            'siteName', g.siteName, 'groupName', g.groupName, 'groupType', g.groupType,
            'validFrom', g.validFrom
        ) AS text),
        g.receivedAt,
        g.holds
    FROM group_statement AS g WHERE g.messageId = wanted
    UNION ALL
    SELECT
        'siteContact',
        CAST(json_build_object('siteName', c.siteName) AS text),
        c.receivedAt,
        c.holds
    FROM contact_statement AS c WHERE c.messageId = wanted
    UNION ALL
    SELECT
        'downtime',
        CAST(json_build_object(
            'downtimeId', d.downtimeId, 'siteName', d.siteName, 'hostName', d.hostName,
            'serviceFlavour', d.serviceFlavour
        ) AS text),
        d.receivedAt,
        d.holds
    FROM downtime_statement AS d WHERE d.messageId = wanted
$$;
COMMENT ON FUNCTION rows_of_message IS
    'The rows of the built-in classes that a message has stored, as a JSON object of their key '
    'columns, and whether they hold; of results, those measured in [begins, ends). So a loader, which can''t read results, '
    'finds those of a message whose id it knows.';
