-- Inserts into the class views: check the row, look up or create its names, store it. First those
-- into metricOutput.
--
-- Redelivery is normal: a broker re-sends each message that was not acked. So a second copy changes
-- nothing. Results with the same natural key that differ in status, summary, performance data or
-- details stand side by side, whoever sent them; one that equals a stored result is a redelivery.
--
-- A time is accepted if parsing and formatting leave it unchanged: only YYYY-MM-DDThh:mm:ssZ. A
-- modifier ('+0 days') makes strftime() carry a day that the month does not have into the next one.

-- Joins the names of a result, and passes it to new_result.
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput BEGIN
    INSERT INTO new_result (
        names, measured_at, gathered_at, monitoring_host, status,
        summary, performance_data, message_id, received_at, details
    )
    VALUES (
        json_array(
            lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType), NEW.metricName,
            coalesce(NEW.voName, ''), coalesce(NEW.voFqan, ''), coalesce(NEW.serviceURI, ''),
            coalesce(NEW.serviceType, ''), coalesce(NEW.siteName, ''), coalesce(NEW.metricType, ''),
            coalesce(NEW.dataType, ''), coalesce(NEW.role, ''), coalesce(NEW.nagiosName, ''),
            coalesce(NEW.encrypted, ''), coalesce(NULLIF(NEW.publisher, ''), 'operator')
        ),
        CASE NEW.timestamp
            WHEN strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.timestamp), 'unixepoch')
                THEN unixepoch(NEW.timestamp)
        END,
        coalesce(NEW.gatheredAt, ''), coalesce(NEW.monitoringHost, ''),
        (SELECT status FROM metric_status WHERE name = upper(NEW.metricStatus)),
        NEW.summaryData, NEW.performanceData, NEW.messageId,
        coalesce(unixepoch(NEW.receivedAt), unixepoch()), NEW.detailsData
    );
END;

-- Creates missing names, and stores a result. Where a trigger fires, it uses VALUES: a SELECT would
-- write to a temporary table first.
CREATE TRIGGER new_result_insert BEFORE INSERT ON new_result BEGIN
    SELECT CASE
        WHEN NEW.measured_at IS NULL
            THEN RAISE(ABORT, 'timestamp: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.status IS NULL
            THEN RAISE(ABORT, 'metricStatus: must be one of OK, WARNING, CRITICAL, UNKNOWN')
    END;

    INSERT INTO gatherer (gathered_at, monitoring_host)
    VALUES (NEW.gathered_at, NEW.monitoring_host)
    ON CONFLICT (gathered_at, monitoring_host) DO NOTHING;
    INSERT INTO result_source (names) VALUES (NEW.names) ON CONFLICT (names) DO NOTHING;
    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, status, source_id, has_details,
        summary, performance_data, message_id, received_at
    )
    SELECT
        k.instance_id, NEW.measured_at, g.gatherer_id, NEW.status, k.source_id,
        NEW.details IS NOT NULL, NEW.summary, NEW.performance_data, NEW.message_id,
        NEW.received_at
    FROM result_source AS k
    CROSS JOIN gatherer AS g
    WHERE k.names = NEW.names
        AND g.gathered_at = NEW.gathered_at
        AND g.monitoring_host = NEW.monitoring_host
    ON CONFLICT (instance_id, measured_at, gatherer_id, ordinal) DO NOTHING;
    -- changes() is 1 if the statement above stored the row.
    UPDATE known_key SET
        names = NEW.names,
        measured_at = NEW.measured_at,
        gathered_at = NEW.gathered_at,
        monitoring_host = NEW.monitoring_host,
        status = NEW.status,
        summary = NEW.summary,
        performance_data = NEW.performance_data,
        message_id = NEW.message_id,
        received_at = NEW.received_at,
        details = NEW.details
    WHERE known_key_id = 1 AND changes() = 0;
    INSERT INTO metric_result_detail (measured_at, instance_id, gatherer_id, details)
    SELECT NEW.measured_at, k.instance_id, g.gatherer_id, NEW.details
    FROM result_source AS k
    CROSS JOIN gatherer AS g
    WHERE NEW.details IS NOT NULL
        AND (SELECT outcome = 0 FROM known_key)
        AND k.names = NEW.names
        AND g.gathered_at = NEW.gathered_at
        AND g.monitoring_host = NEW.monitoring_host;
    UPDATE known_key SET duplicates = duplicates + (outcome = 1), outcome = 0 WHERE outcome > 0;
    -- The row itself is not stored.
    SELECT RAISE(IGNORE);
END;

-- Stores a result beside those of the same key if it differs from all of them. Otherwise its publisher
-- is remembered, unless it is known to have sent it.
CREATE TRIGGER known_key_update BEFORE UPDATE OF names ON known_key BEGIN
    INSERT INTO result_repeat (
        instance_id, measured_at, gatherer_id, ordinal, source_id, message_id, received_at
    )
    SELECT
        r.instance_id, r.measured_at, r.gatherer_id, r.ordinal, k.source_id, NEW.message_id,
        NEW.received_at
    FROM result_source AS k
    CROSS JOIN gatherer AS g
    CROSS JOIN metric_result AS r
        ON r.instance_id = k.instance_id
        AND r.measured_at = NEW.measured_at
        AND r.gatherer_id = g.gatherer_id
    LEFT JOIN metric_result_detail AS d
        ON d.instance_id = r.instance_id
        AND d.measured_at = r.measured_at
        AND d.gatherer_id = r.gatherer_id
        AND d.ordinal = r.ordinal
    WHERE k.names = NEW.names
        AND g.gathered_at = NEW.gathered_at
        AND g.monitoring_host = NEW.monitoring_host
        AND (r.status, r.summary, r.performance_data, r.has_details)
            IS (NEW.status, NEW.summary, NEW.performance_data, NEW.details IS NOT NULL)
        AND coalesce(d.details = NEW.details, true)  -- it may have been pruned
        AND k.publisher_id NOT IN (
            SELECT publisher_id FROM result_source WHERE source_id = r.source_id
            UNION ALL
            SELECT o.publisher_id
            FROM result_repeat AS p
            JOIN result_source AS o ON o.source_id = p.source_id
            WHERE (p.instance_id, p.measured_at, p.gatherer_id, p.ordinal)
                = (r.instance_id, r.measured_at, r.gatherer_id, r.ordinal)
        );
    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, ordinal, status, source_id, has_details,
        summary, performance_data, message_id, received_at
    )
    SELECT
        k.instance_id, NEW.measured_at, g.gatherer_id, max(r.ordinal) + 1, NEW.status, k.source_id,
        NEW.details IS NOT NULL, NEW.summary, NEW.performance_data, NEW.message_id,
        NEW.received_at
    FROM result_source AS k
    CROSS JOIN gatherer AS g
    CROSS JOIN metric_result AS r
        ON r.instance_id = k.instance_id
        AND r.measured_at = NEW.measured_at
        AND r.gatherer_id = g.gatherer_id
    LEFT JOIN metric_result_detail AS d
        ON d.instance_id = r.instance_id
        AND d.measured_at = r.measured_at
        AND d.gatherer_id = r.gatherer_id
        AND d.ordinal = r.ordinal
    WHERE k.names = NEW.names
        AND g.gathered_at = NEW.gathered_at
        AND g.monitoring_host = NEW.monitoring_host
    GROUP BY k.source_id, g.gatherer_id
    HAVING max(
        (r.status, r.summary, r.performance_data, r.has_details)
            IS (NEW.status, NEW.summary, NEW.performance_data, NEW.details IS NOT NULL)
        AND coalesce(d.details = NEW.details, true)
    ) = 0;
    UPDATE known_key SET outcome = 1 + changes();
    INSERT INTO metric_result_detail (measured_at, instance_id, gatherer_id, ordinal, details)
    SELECT measured_at, instance_id, gatherer_id, ordinal, NEW.details
    FROM metric_result
    WHERE (SELECT outcome = 2 FROM known_key)
        AND NEW.details IS NOT NULL
        AND result_id = last_insert_rowid();
    -- The row keeps its NULLs.
    SELECT RAISE(IGNORE);
END;

-- Checks a new source, creates its missing names and, by new_instance, its metric instance.
CREATE TRIGGER result_source_insert AFTER INSERT ON result_source BEGIN
    SELECT CASE
        WHEN coalesce(NEW.names ->> 0, '') = '' THEN RAISE(ABORT, 'hostName: is not a host name')
        WHEN coalesce(NEW.names ->> 1, '') = ''
            THEN RAISE(ABORT, 'serviceFlavour: is not a service flavour')
        WHEN coalesce(NEW.names ->> 2, '') = ''
            THEN RAISE(ABORT, 'metricName: is not a metric name')
        -- In JSON two backslashes are one literal backslash, even before u001f.
        WHEN instr(replace(NEW.names, '\\', ''), '\u001f')
            THEN RAISE(ABORT, 'hostName: this or another name contains a unit separator')
    END;

    INSERT INTO host (name) VALUES (NEW.names ->> 0) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.names ->> 1) ON CONFLICT (name) DO NOTHING;
    INSERT INTO metric (name) VALUES (NEW.names ->> 2) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (NEW.names ->> 3) ON CONFLICT (name) DO NOTHING;
    INSERT INTO fqan (name) VALUES (NEW.names ->> 4) ON CONFLICT (name) DO NOTHING;
    INSERT INTO publisher (identity, name) VALUES (NEW.names ->> 13, NEW.names ->> 13)
    ON CONFLICT (identity) DO NOTHING;
    INSERT INTO new_instance (host_id, service_flavour_id, metric_id, vo_id, fqan_id, source_id)
    VALUES (
        (SELECT host_id FROM host WHERE name = NEW.names ->> 0),
        (SELECT service_flavour_id FROM service_flavour WHERE name = NEW.names ->> 1),
        (SELECT metric_id FROM metric WHERE name = NEW.names ->> 2),
        (SELECT vo_id FROM vo WHERE name = NEW.names ->> 3),
        (SELECT fqan_id FROM fqan WHERE name = NEW.names ->> 4),
        NEW.source_id
    );
END;

-- Creates the metric instance of a new source, and fills in the columns derived from its names.
CREATE TRIGGER new_instance_insert BEFORE INSERT ON new_instance BEGIN
    INSERT INTO endpoint (host_id, service_flavour_id)
    VALUES (NEW.host_id, NEW.service_flavour_id)
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;
    INSERT INTO instance_status (endpoint_id, metric_id, vo_id)
    SELECT endpoint_id, NEW.metric_id, NEW.vo_id
    FROM endpoint
    WHERE host_id = NEW.host_id AND service_flavour_id = NEW.service_flavour_id
    ON CONFLICT (endpoint_id, metric_id, vo_id) DO NOTHING;
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, status_id)
    SELECT c.endpoint_id, c.metric_id, c.vo_id, NEW.fqan_id, c.status_id
    FROM endpoint AS e
    CROSS JOIN instance_status AS c ON c.endpoint_id = e.endpoint_id
    WHERE e.host_id = NEW.host_id
        AND e.service_flavour_id = NEW.service_flavour_id
        AND c.metric_id = NEW.metric_id
        AND c.vo_id = NEW.vo_id
    ON CONFLICT (endpoint_id, metric_id, vo_id, fqan_id) DO NOTHING;
    UPDATE result_source SET
        service_uri = names ->> 5,
        service_type = names ->> 6,
        site_name = names ->> 7,
        metric_type = names ->> 8,
        data_type = names ->> 9,
        role = names ->> 10,
        nagios_name = names ->> 11,
        encrypted = names ->> 12,
        publisher_id = (SELECT p.publisher_id FROM publisher AS p WHERE p.identity = names ->> 13),
        instance_id = (
            SELECT i.instance_id
            FROM endpoint AS e
            CROSS JOIN metric_instance AS i ON i.endpoint_id = e.endpoint_id
            WHERE e.host_id = NEW.host_id
                AND e.service_flavour_id = NEW.service_flavour_id
                AND i.metric_id = NEW.metric_id
                AND i.vo_id = NEW.vo_id
                AND i.fqan_id = NEW.fqan_id
        )
    WHERE source_id = NEW.source_id;
    SELECT RAISE(IGNORE);
END;
