-- Inserts into the class views: check the row, look up or create its names, merge.
--
-- Redelivery is normal: a broker re-sends each message that was not acked. So a second copy changes
-- nothing, and the status, end or announcement that wins does not depend on the order of arrival.
--
-- A time is accepted if parsing and formatting leave it unchanged: only YYYY-MM-DDThh:mm:ssZ. In
-- comparisons with a time that may be missing, 1e18 is later than any time and -1e18 earlier.

-- Claims ----------------------------------------------------------------------------------------
-- Where a statement differs from the stored row, both are kept in the table claim before the row
-- changes.

-- Keeps the stored row unless there are claims about it, and the statement unless it is one of
-- them. Of a publisher that repeats itself the first and the last one are kept.
CREATE TRIGGER new_claim_insert BEFORE INSERT ON new_claim BEGIN
    INSERT INTO claim (class, key, publisher_id, message_id, received_at, record)
    SELECT
        NEW.class, NEW.key, NEW.row_publisher_id, NEW.row_message_id, NEW.row_received_at,
        json_patch(json_patch('{}', NEW.record), NEW.row_changes)
    WHERE NOT EXISTS (SELECT 1 FROM claim WHERE key = NEW.key AND class = NEW.class);
    INSERT INTO claim (class, key, publisher_id, message_id, received_at, record)
    SELECT
        NEW.class, NEW.key, NEW.publisher_id, NEW.message_id, NEW.received_at,
        json_patch('{}', NEW.record)
    WHERE NOT EXISTS (
        SELECT 1 FROM claim
        WHERE key = NEW.key
            AND class = NEW.class
            AND publisher_id = NEW.publisher_id
            AND message_id IS NEW.message_id
            AND record = json_patch('{}', NEW.record)
    );
    UPDATE lost_claims SET statements = statements + 1 WHERE changes() = 1 AND NOT NEW.will_change;
    DELETE FROM claim
    WHERE key = NEW.key
        AND class = NEW.class
        AND publisher_id = NEW.publisher_id
        AND record = json_patch('{}', NEW.record)
        AND claim_id NOT IN (
            SELECT first_last.value
            FROM (
                SELECT min(claim_id) AS first, max(claim_id) AS last FROM claim
                WHERE key = NEW.key
                    AND class = NEW.class
                    AND publisher_id = NEW.publisher_id
                    AND record = json_patch('{}', NEW.record)
            ) AS ends
            CROSS JOIN json_each(json_array(ends.first, ends.last)) AS first_last
        );
    -- The row itself is not stored.
    SELECT RAISE(IGNORE);
END;

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

-- serviceEndpoint: the first row is kept, with the earliest validTo of all ----------------------

-- Stores an endpoint of a site.
CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is not a site name')
        WHEN coalesce(NEW.hostName, '') = '' THEN RAISE(ABORT, 'hostName: is not a host name')
        WHEN coalesce(NEW.serviceFlavour, '') = ''
            THEN RAISE(ABORT, 'serviceFlavour: is not a service flavour')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.validFrom), 'unixepoch')
            THEN RAISE(ABORT, 'validFrom: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.validTo
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.validTo), 'unixepoch')
            THEN RAISE(ABORT, 'validTo: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO host (name) VALUES (lower(NEW.hostName)) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.serviceFlavour) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (coalesce(NEW.voName, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO publisher (identity, name)
    SELECT identity, identity
    FROM (SELECT coalesce(NULLIF(NEW.publisher, ''), 'operator') AS identity)
    WHERE true
    ON CONFLICT (identity) DO NOTHING;
    INSERT INTO endpoint (host_id, service_flavour_id)
    SELECT h.host_id, f.service_flavour_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    WHERE h.name = lower(NEW.hostName)
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;

    INSERT INTO new_claim (
        class, key, publisher_id, message_id, received_at, record,
        row_publisher_id, row_message_id, row_received_at, row_changes, will_change
    )
    SELECT
        'serviceEndpoint', json_array(m.site_id, m.endpoint_id, m.vo_id, m.valid_from),
        p.publisher_id, NEW.messageId, coalesce(unixepoch(NEW.receivedAt), unixepoch()),
        json_object(
            'siteName', NEW.siteName, 'hostName', lower(NEW.hostName),
            'serviceFlavour', NEW.serviceFlavour, 'serviceURI', NEW.serviceURI,
            'voName', NULLIF(NEW.voName, ''), 'production', NEW.production,
            'monitored', NEW.monitored, 'validFrom', NEW.validFrom, 'validTo', NEW.validTo
        ),
        m.publisher_id, m.message_id, m.received_at,
        json_object(
            'serviceURI', m.service_uri, 'production', m.production, 'monitored', m.monitored,
            'validTo', strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch')
        ),
        coalesce(unixepoch(NEW.validTo) < coalesce(m.valid_to, 1e18), false)
    FROM site AS s
    JOIN host AS h ON h.name = lower(NEW.hostName)
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN vo AS v ON v.name = coalesce(NEW.voName, '')
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    JOIN endpoint_membership AS m
        ON m.site_id = s.site_id
        AND m.endpoint_id = e.endpoint_id
        AND m.vo_id = v.vo_id
        AND m.valid_from = unixepoch(NEW.validFrom)
    WHERE s.name = NEW.siteName
        AND (m.valid_to, m.service_uri, m.production, m.monitored, m.message_id, m.publisher_id)
            IS NOT (
                unixepoch(NEW.validTo), NEW.serviceURI, NEW.production, NEW.monitored,
                NEW.messageId, p.publisher_id
            );
    INSERT INTO endpoint_membership (
        site_id, endpoint_id, vo_id, valid_from, valid_to,
        service_uri, production, monitored, message_id, publisher_id, received_at
    )
    SELECT
        s.site_id, e.endpoint_id, v.vo_id, unixepoch(NEW.validFrom), unixepoch(NEW.validTo),
        NEW.serviceURI, NEW.production, NEW.monitored, NEW.messageId, p.publisher_id,
        coalesce(unixepoch(NEW.receivedAt), unixepoch())
    FROM site AS s
    JOIN host AS h ON h.name = lower(NEW.hostName)
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN vo AS v ON v.name = coalesce(NEW.voName, '')
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    WHERE s.name = NEW.siteName
    ON CONFLICT (site_id, endpoint_id, vo_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(endpoint_membership.valid_to, 1e18);
END;

-- siteGroup: like serviceEndpoint ---------------------------------------------------------------

-- Stores a member of a group.
CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is not a site name')
        WHEN coalesce(NEW.groupName, '') = '' THEN RAISE(ABORT, 'groupName: is not a group name')
        WHEN coalesce(NEW.groupType, '') = '' THEN RAISE(ABORT, 'groupType: is not a group type')
        WHEN NEW.weight < 0 OR NEW.weight GLOB '*[^0-9]*' OR NEW.weight = ''
            THEN RAISE(ABORT, 'weight: is not a weight')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.validFrom), 'unixepoch')
            THEN RAISE(ABORT, 'validFrom: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.validTo
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.validTo), 'unixepoch')
            THEN RAISE(ABORT, 'validTo: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO site_group (group_type, name) VALUES (NEW.groupType, NEW.groupName)
    ON CONFLICT (group_type, name) DO NOTHING;
    INSERT INTO publisher (identity, name)
    SELECT identity, identity
    FROM (SELECT coalesce(NULLIF(NEW.publisher, ''), 'operator') AS identity)
    WHERE true
    ON CONFLICT (identity) DO NOTHING;

    INSERT INTO new_claim (
        class, key, publisher_id, message_id, received_at, record,
        row_publisher_id, row_message_id, row_received_at, row_changes, will_change
    )
    SELECT
        'siteGroup', json_array(m.site_id, m.site_group_id, m.valid_from),
        p.publisher_id, NEW.messageId, coalesce(unixepoch(NEW.receivedAt), unixepoch()),
        json_object(
            'siteName', NEW.siteName, 'groupName', NEW.groupName, 'groupType', NEW.groupType,
            'weight', CAST(NEW.weight AS integer), 'validFrom', NEW.validFrom,
            'validTo', NEW.validTo
        ),
        m.publisher_id, m.message_id, m.received_at,
        json_object(
            'weight', m.weight, 'validTo', strftime('%Y-%m-%dT%H:%M:%SZ', m.valid_to, 'unixepoch')
        ),
        coalesce(unixepoch(NEW.validTo) < coalesce(m.valid_to, 1e18), false)
    FROM site AS s
    JOIN site_group AS g ON g.group_type = NEW.groupType AND g.name = NEW.groupName
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    JOIN site_group_member AS m
        ON m.site_id = s.site_id
        AND m.site_group_id = g.site_group_id
        AND m.valid_from = unixepoch(NEW.validFrom)
    WHERE s.name = NEW.siteName
        AND (m.valid_to, m.weight, m.message_id, m.publisher_id) IS NOT (
            unixepoch(NEW.validTo), CAST(NEW.weight AS integer), NEW.messageId, p.publisher_id
        );
    INSERT INTO site_group_member (
        site_group_id, site_id, valid_from, valid_to, weight, message_id, publisher_id, received_at
    )
    SELECT
        g.site_group_id, s.site_id, unixepoch(NEW.validFrom), unixepoch(NEW.validTo),
        NEW.weight, NEW.messageId, p.publisher_id, coalesce(unixepoch(NEW.receivedAt), unixepoch())
    FROM site AS s
    JOIN site_group AS g ON g.group_type = NEW.groupType AND g.name = NEW.groupName
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    WHERE s.name = NEW.siteName
    ON CONFLICT (site_id, site_group_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(site_group_member.valid_to, 1e18);
END;

-- siteContact: the newest announcement wins, and of several of one time the greatest text --------

-- Stores who to call about a site; an empty contact removes it.
CREATE TRIGGER siteContact_insert INSTEAD OF INSERT ON siteContact BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is not a site name')
        WHEN length(NEW.contact) > 255
            THEN RAISE(ABORT, 'contact: is longer than 255 characters')
        WHEN NEW.timestamp IS NULL
            OR NEW.timestamp
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.timestamp), 'unixepoch')
            THEN RAISE(ABORT, 'timestamp: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO publisher (identity, name)
    SELECT identity, identity
    FROM (SELECT coalesce(NULLIF(NEW.publisher, ''), 'operator') AS identity)
    WHERE true
    ON CONFLICT (identity) DO NOTHING;

    INSERT INTO new_claim (
        class, key, publisher_id, message_id, received_at, record,
        row_publisher_id, row_message_id, row_received_at, row_changes, will_change
    )
    SELECT
        'siteContact', json_array(c.site_id),
        p.publisher_id, NEW.messageId, coalesce(unixepoch(NEW.receivedAt), unixepoch()),
        json_object(
            'siteName', NEW.siteName, 'contact', NULLIF(NEW.contact, ''),
            'timestamp', NEW.timestamp
        ),
        c.publisher_id, c.message_id, c.received_at,
        json_object(
            'contact', NULLIF(c.contact, ''),
            'timestamp', strftime('%Y-%m-%dT%H:%M:%SZ', c.announced_at, 'unixepoch')
        ),
        (unixepoch(NEW.timestamp), coalesce(NEW.contact, '')) > (c.announced_at, c.contact)
    FROM site AS s
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    JOIN site_contact AS c ON c.site_id = s.site_id
    WHERE s.name = NEW.siteName
        AND (c.contact, c.announced_at, c.message_id, c.publisher_id) IS NOT (
            coalesce(NEW.contact, ''), unixepoch(NEW.timestamp), NEW.messageId, p.publisher_id
        );
    INSERT INTO site_contact (
        site_id, contact, announced_at, message_id, publisher_id, received_at
    )
    SELECT
        s.site_id, coalesce(NEW.contact, ''), unixepoch(NEW.timestamp), NEW.messageId,
        p.publisher_id, coalesce(unixepoch(NEW.receivedAt), unixepoch())
    FROM site AS s
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    WHERE s.name = NEW.siteName
    ON CONFLICT (site_id) DO UPDATE SET
        contact = excluded.contact,
        announced_at = excluded.announced_at,
        message_id = excluded.message_id,
        publisher_id = excluded.publisher_id,
        received_at = excluded.received_at
    WHERE (excluded.announced_at, excluded.contact)
        > (site_contact.announced_at, site_contact.contact);
END;

-- downtime: the newest announcement wins; without a timestamp one counts as the oldest ----------

-- Stores an announced downtime.
CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') || coalesce(NEW.hostName, '') = ''
            THEN RAISE(ABORT, 'hostName: is not a host name, and siteName is missing')
        WHEN NEW.startTime IS NULL
            OR NEW.startTime
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.startTime), 'unixepoch')
            THEN RAISE(ABORT, 'startTime: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.endTime IS NULL
            OR NEW.endTime
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.endTime), 'unixepoch')
            THEN RAISE(ABORT, 'endTime: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.endTime < NEW.startTime THEN RAISE(ABORT, 'endTime: is before startTime')
        WHEN coalesce(NEW.classification, '') = ''
            THEN RAISE(ABORT, 'classification: is not a classification')
        WHEN coalesce(NEW.severity, '') = '' THEN RAISE(ABORT, 'severity: is not a severity')
        WHEN NEW.timestamp
                IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', unixepoch(NEW.timestamp), 'unixepoch')
            THEN RAISE(ABORT, 'timestamp: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
    END;

    INSERT INTO site (name) VALUES (coalesce(NEW.siteName, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO host (name) VALUES (lower(coalesce(NEW.hostName, '')))
    ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (coalesce(NEW.serviceFlavour, ''))
    ON CONFLICT (name) DO NOTHING;
    INSERT INTO publisher (identity, name)
    SELECT identity, identity
    FROM (SELECT coalesce(NULLIF(NEW.publisher, ''), 'operator') AS identity)
    WHERE true
    ON CONFLICT (identity) DO NOTHING;

    INSERT INTO new_claim (
        class, key, publisher_id, message_id, received_at, record,
        row_publisher_id, row_message_id, row_received_at, row_changes, will_change
    )
    SELECT
        'downtime',
        json_array(a.downtime_id, a.site_id, a.host_id, a.service_flavour_id, a.start_key),
        p.publisher_id, NEW.messageId, coalesce(unixepoch(NEW.receivedAt), unixepoch()),
        json_object(
            'downtimeId', NULLIF(NEW.downtimeId, ''), 'siteName', NULLIF(NEW.siteName, ''),
            'hostName', NULLIF(lower(NEW.hostName), ''),
            'serviceFlavour', NULLIF(NEW.serviceFlavour, ''), 'startTime', NEW.startTime,
            'endTime', NEW.endTime, 'classification', NEW.classification,
            'severity', NEW.severity, 'description', NEW.description, 'timestamp', NEW.timestamp
        ),
        a.publisher_id, a.message_id, a.received_at,
        json_object(
            'startTime', strftime('%Y-%m-%dT%H:%M:%SZ', a.start_time, 'unixepoch'),
            'endTime', strftime('%Y-%m-%dT%H:%M:%SZ', a.end_time, 'unixepoch'),
            'classification', a.classification, 'severity', a.severity,
            'description', a.description,
            'timestamp', strftime('%Y-%m-%dT%H:%M:%SZ', a.announced_at, 'unixepoch')
        ),
        coalesce(unixepoch(NEW.timestamp) > coalesce(a.announced_at, -1e18), false)
    FROM site AS s
    JOIN host AS h ON h.name = lower(coalesce(NEW.hostName, ''))
    JOIN service_flavour AS f ON f.name = coalesce(NEW.serviceFlavour, '')
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    JOIN announced_downtime AS a
        ON a.downtime_id = coalesce(NEW.downtimeId, '')
        AND a.site_id = s.site_id
        AND a.host_id = h.host_id
        AND a.service_flavour_id = f.service_flavour_id
        AND a.start_key = CASE
            WHEN coalesce(NEW.downtimeId, '') <> '' THEN 0
            ELSE unixepoch(NEW.startTime)
        END
    WHERE s.name = coalesce(NEW.siteName, '')
        AND (
            a.start_time, a.end_time, a.classification, a.severity, a.description,
            a.announced_at, a.message_id, a.publisher_id
        ) IS NOT (
            unixepoch(NEW.startTime), unixepoch(NEW.endTime), NEW.classification, NEW.severity,
            NEW.description, unixepoch(NEW.timestamp), NEW.messageId, p.publisher_id
        );
    INSERT INTO announced_downtime (
        downtime_id, site_id, host_id, service_flavour_id, start_key,
        start_time, end_time, classification, severity, description, announced_at, message_id,
        publisher_id, received_at
    )
    SELECT
        coalesce(NEW.downtimeId, ''), s.site_id, h.host_id, f.service_flavour_id,
        CASE WHEN coalesce(NEW.downtimeId, '') <> '' THEN 0 ELSE unixepoch(NEW.startTime) END,
        unixepoch(NEW.startTime), unixepoch(NEW.endTime), NEW.classification, NEW.severity,
        NEW.description, unixepoch(NEW.timestamp), NEW.messageId, p.publisher_id,
        coalesce(unixepoch(NEW.receivedAt), unixepoch())
    FROM site AS s
    JOIN host AS h ON h.name = lower(coalesce(NEW.hostName, ''))
    JOIN service_flavour AS f ON f.name = coalesce(NEW.serviceFlavour, '')
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    WHERE s.name = coalesce(NEW.siteName, '')
    ON CONFLICT (downtime_id, site_id, host_id, service_flavour_id, start_key) DO UPDATE SET
        start_time = excluded.start_time,
        end_time = excluded.end_time,
        classification = excluded.classification,
        severity = excluded.severity,
        description = excluded.description,
        announced_at = excluded.announced_at,
        message_id = excluded.message_id,
        publisher_id = excluded.publisher_id,
        received_at = excluded.received_at
    WHERE excluded.announced_at > coalesce(announced_downtime.announced_at, -1e18);
END;
