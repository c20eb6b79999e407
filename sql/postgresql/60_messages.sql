-- Where a message is.

CREATE FUNCTION rows_of_message(wanted text, begins timestamptz, ends timestamptz)
RETURNS TABLE (message_class text, record text, received_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
    SELECT
        'metricOutput',
        CAST(json_build_object(
            'hostName', m.hostName, 'serviceFlavour', m.serviceFlavour,
            'metricName', m.metricName, 'voName', m.voName, 'voFqan', m.voFqan,
            'timestamp', m.timestamp, 'gatheredAt', m.gatheredAt,
            'monitoringHost', m.monitoringHost
        ) AS text),
        m.receivedAt
    FROM metricOutput AS m
    WHERE m.messageId = wanted AND m.timestamp >= begins AND m.timestamp < ends
    UNION ALL
    SELECT
        'serviceEndpoint',
        CAST(json_build_object(
            'siteName', e.siteName, 'hostName', e.hostName, 'serviceFlavour', e.serviceFlavour,
            'voName', e.voName, 'validFrom', e.validFrom
        ) AS text),
        e.receivedAt
    FROM serviceEndpoint AS e WHERE e.messageId = wanted
    UNION ALL
    SELECT
        'siteGroup',
        CAST(json_build_object(
            'siteName', g.siteName, 'groupName', g.groupName, 'groupType', g.groupType,
            'validFrom', g.validFrom
        ) AS text),
        g.receivedAt
    FROM siteGroup AS g WHERE g.messageId = wanted
    UNION ALL
    SELECT 'siteContact', CAST(json_build_object('siteName', c.siteName) AS text), c.receivedAt
    FROM siteContact AS c WHERE c.messageId = wanted
    UNION ALL
    SELECT
        'downtime',
        CAST(json_build_object(
            'downtimeId', d.downtimeId, 'siteName', d.siteName, 'hostName', d.hostName,
            'serviceFlavour', d.serviceFlavour
        ) AS text),
        d.receivedAt
    FROM downtime AS d WHERE d.messageId = wanted
$$;
COMMENT ON FUNCTION rows_of_message IS
    'The rows of the built-in classes that a message has stored, as a JSON object of their key '
    'columns; of results, those measured in [begins, ends). So a loader, which can''t read results, '
    'finds those of a message whose id it knows.';

CREATE FUNCTION claims_of_message(wanted text)
RETURNS TABLE (message_class text, record text, received_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.class, c.record, c.received_at FROM claim AS c WHERE c.message_id = wanted
$$;
COMMENT ON FUNCTION claims_of_message IS
    'The records of a message that are kept because other messages said something else about the '
    'same row.';
