-- Inserts into metricOutput (see 30_claims.sql).

-- metricOutput: of two results for one moment the one with the worse status is kept -------------

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

-- Creates missing names, and stores a result if it is new or worse than the stored one. Where a
-- trigger fires, it uses VALUES: a SELECT would write to a temporary table first.
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
        instance_id, measured_at, gatherer_id, status, source_id,
        summary, performance_data, message_id, received_at
    )
    SELECT
        k.instance_id, NEW.measured_at, g.gatherer_id, NEW.status, k.source_id,
        NEW.summary, NEW.performance_data, NEW.message_id, NEW.received_at
    FROM result_source AS k
    CROSS JOIN gatherer AS g
    WHERE k.names = NEW.names
        AND g.gathered_at = NEW.gathered_at
        AND g.monitoring_host = NEW.monitoring_host
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        source_id = excluded.source_id,
        summary = excluded.summary,
        performance_data = excluded.performance_data,
        message_id = excluded.message_id,
        received_at = excluded.received_at
    WHERE excluded.status > metric_result.status;
    -- changes() is 1 if the statement above stored the row, 0 if it kept the stored one.
    UPDATE lost_result SET
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
    WHERE lost_result_id = 1 AND (changes() = 0 OR is_won);
    -- The details of the stored row, unless they were stored with it.
    INSERT INTO metric_result_detail (measured_at, instance_id, gatherer_id, status, details)
    SELECT r.measured_at, r.instance_id, r.gatherer_id, r.status, NEW.details
    FROM result_source AS k
    CROSS JOIN gatherer AS g
    CROSS JOIN metric_result AS r
        ON r.instance_id = k.instance_id
        AND r.measured_at = NEW.measured_at
        AND r.gatherer_id = g.gatherer_id
    WHERE NEW.details IS NOT NULL
        AND k.names = NEW.names
        AND g.gathered_at = NEW.gathered_at
        AND g.monitoring_host = NEW.monitoring_host
        AND (r.source_id, r.status, r.summary, r.performance_data, r.message_id)
            IS (k.source_id, NEW.status, NEW.summary, NEW.performance_data, NEW.message_id)
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        details = excluded.details
    WHERE metric_result_detail.status <> excluded.status;
    -- The row itself is not stored.
    SELECT RAISE(IGNORE);
END;

-- Keeps the result of a call as a claim if it differs from the stored row, or has replaced one.
CREATE TRIGGER lost_result_update BEFORE UPDATE OF names ON lost_result BEGIN
    INSERT INTO new_claim (
        class, key, publisher_id, message_id, received_at, record,
        row_publisher_id, row_message_id, row_received_at, row_changes, will_change
    )
    SELECT
        'metricOutput', json_array(r.instance_id, r.measured_at, r.gatherer_id),
        k.publisher_id, NEW.message_id, NEW.received_at,
        json_object(
            'hostName', NEW.names ->> 0, 'serviceFlavour', NEW.names ->> 1,
            'metricName', NEW.names ->> 2, 'voName', NULLIF(NEW.names ->> 3, ''),
            'voFqan', NULLIF(NEW.names ->> 4, ''), 'serviceURI', NULLIF(NEW.names ->> 5, ''),
            'serviceType', NULLIF(NEW.names ->> 6, ''), 'siteName', NULLIF(NEW.names ->> 7, ''),
            'metricType', NULLIF(NEW.names ->> 8, ''), 'dataType', NULLIF(NEW.names ->> 9, ''),
            'role', NULLIF(NEW.names ->> 10, ''), 'nagiosName', NULLIF(NEW.names ->> 11, ''),
            'encrypted', NULLIF(NEW.names ->> 12, ''),
            'gatheredAt', NULLIF(NEW.gathered_at, ''),
            'monitoringHost', NULLIF(NEW.monitoring_host, ''),
            'metricStatus', (SELECT name FROM metric_status WHERE status = NEW.status),
            'timestamp', strftime('%Y-%m-%dT%H:%M:%SZ', NEW.measured_at, 'unixepoch'),
            'summaryData', NEW.summary, 'performanceData', NEW.performance_data,
            'detailsData', NEW.details
        ),
        o.publisher_id, r.message_id, r.received_at,
        json_object(
            'serviceURI', NULLIF(o.service_uri, ''), 'serviceType', NULLIF(o.service_type, ''),
            'siteName', NULLIF(o.site_name, ''), 'metricType', NULLIF(o.metric_type, ''),
            'dataType', NULLIF(o.data_type, ''), 'role', NULLIF(o.role, ''),
            'nagiosName', NULLIF(o.nagios_name, ''), 'encrypted', NULLIF(o.encrypted, ''),
            'metricStatus', (SELECT name FROM metric_status WHERE status = r.status),
            'summaryData', r.summary, 'performanceData', r.performance_data,
            'detailsData', (
                SELECT d.details FROM metric_result_detail AS d
                WHERE d.instance_id = r.instance_id
                    AND d.measured_at = r.measured_at
                    AND d.gatherer_id = r.gatherer_id
                    AND d.status = r.status
            )
        ),
        OLD.is_won
    FROM result_source AS k
    CROSS JOIN gatherer AS g
    CROSS JOIN metric_result AS r
        ON r.instance_id = k.instance_id
        AND r.measured_at = NEW.measured_at
        AND r.gatherer_id = g.gatherer_id
    CROSS JOIN result_source AS o ON o.source_id = r.source_id
    WHERE k.names = NEW.names
        AND g.gathered_at = NEW.gathered_at
        AND g.monitoring_host = NEW.monitoring_host
        AND (
            OLD.is_won
            OR (r.source_id, r.status, r.summary, r.performance_data, r.message_id)
            IS NOT (k.source_id, NEW.status, NEW.summary, NEW.performance_data, NEW.message_id)
        );
    UPDATE lost_result SET is_won = 0 WHERE is_won;
    -- The row keeps its NULLs.
    SELECT RAISE(IGNORE);
END;

-- Keeps the row that a worse result is about to replace as a claim, unless there are claims about
-- it, and notes for new_result_insert that it was replaced.
CREATE TRIGGER metric_result_replace BEFORE UPDATE OF status ON metric_result BEGIN
    INSERT INTO claim (class, key, publisher_id, message_id, received_at, record)
    SELECT
        'metricOutput', json_array(OLD.instance_id, OLD.measured_at, OLD.gatherer_id),
        k.publisher_id, OLD.message_id, OLD.received_at,
        json_patch(
            '{}',
            json_object(
                'hostName', k.names ->> 0, 'serviceFlavour', k.names ->> 1,
                'metricName', k.names ->> 2, 'voName', NULLIF(k.names ->> 3, ''),
                'voFqan', NULLIF(k.names ->> 4, ''), 'serviceURI', NULLIF(k.names ->> 5, ''),
                'serviceType', NULLIF(k.names ->> 6, ''), 'siteName', NULLIF(k.names ->> 7, ''),
                'metricType', NULLIF(k.names ->> 8, ''), 'dataType', NULLIF(k.names ->> 9, ''),
                'role', NULLIF(k.names ->> 10, ''), 'nagiosName', NULLIF(k.names ->> 11, ''),
                'encrypted', NULLIF(k.names ->> 12, ''),
                'gatheredAt', NULLIF(g.gathered_at, ''),
                'monitoringHost', NULLIF(g.monitoring_host, ''),
                'metricStatus', (SELECT name FROM metric_status WHERE status = OLD.status),
                'timestamp', strftime('%Y-%m-%dT%H:%M:%SZ', OLD.measured_at, 'unixepoch'),
                'summaryData', OLD.summary, 'performanceData', OLD.performance_data,
                'detailsData', (
                    SELECT d.details FROM metric_result_detail AS d
                    WHERE d.instance_id = OLD.instance_id
                        AND d.measured_at = OLD.measured_at
                        AND d.gatherer_id = OLD.gatherer_id
                        AND d.status = OLD.status
                )
            )
        )
    FROM result_source AS k
    CROSS JOIN gatherer AS g ON g.gatherer_id = OLD.gatherer_id
    WHERE k.source_id = OLD.source_id
        AND NOT EXISTS (
            SELECT 1 FROM claim
            WHERE key = json_array(OLD.instance_id, OLD.measured_at, OLD.gatherer_id)
                AND class = 'metricOutput'
        );
    UPDATE lost_result SET is_won = 1;
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
