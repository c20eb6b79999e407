-- Inserts into the class views: check, look the names up (or create them), merge.
--
-- Redelivery is normal: the broker re-sends whatever was not acked. So a second copy changes
-- nothing, and which status, end or announcement wins does not depend on the order of arrival.
--
-- A time is accepted if it reads the same after being understood: YYYY-MM-DDThh:mm:ssZ, nothing
-- else. Where a time may be absent, 1e18 stands for later than any and -1e18 for earlier.

-- metricOutput: of two statuses for one moment the worse stays, with its whole row ------------

-- Makes a metric instance and the names it refers to; RAISE(IGNORE) keeps the row itself out.
CREATE TRIGGER new_instance_insert BEFORE INSERT ON new_instance BEGIN
    SELECT CASE
        WHEN coalesce(NEW.host_name, '') = '' THEN RAISE(ABORT, 'hostName: is no host')
        WHEN coalesce(NEW.service_flavour, '') = ''
            THEN RAISE(ABORT, 'serviceFlavour: is no flavour')
        WHEN coalesce(NEW.metric_name, '') = '' THEN RAISE(ABORT, 'metricName: is no metric')
        WHEN instr(
            NEW.host_name || NEW.service_flavour || NEW.metric_name || NEW.vo || NEW.fqan, char(31)
        )
            THEN RAISE(ABORT, 'hostName: and the other names must not hold a unit separator')
    END;

    INSERT INTO host (name) VALUES (NEW.host_name) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.service_flavour) ON CONFLICT (name) DO NOTHING;
    INSERT INTO metric (name) VALUES (NEW.metric_name) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (NEW.vo) ON CONFLICT (name) DO NOTHING;
    INSERT INTO fqan (name) VALUES (NEW.fqan) ON CONFLICT (name) DO NOTHING;
    INSERT INTO endpoint (host_id, service_flavour_id)
    SELECT h.host_id, f.service_flavour_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.service_flavour
    WHERE h.name = NEW.host_name
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, names)
    SELECT
        e.endpoint_id, m.metric_id, v.vo_id, q.fqan_id,
        NEW.host_name || char(31) || NEW.service_flavour || char(31) || NEW.metric_name
        || char(31) || NEW.vo || char(31) || NEW.fqan
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.service_flavour
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN metric AS m ON m.name = NEW.metric_name
    JOIN vo AS v ON v.name = NEW.vo
    JOIN fqan AS q ON q.name = NEW.fqan
    WHERE h.name = NEW.host_name;
    SELECT RAISE(IGNORE);
END;

-- Stores a result of a probe.
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput BEGIN
    SELECT CASE
        WHEN NEW.timestamp IS NULL
            OR NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp)
            THEN RAISE(ABORT, 'timestamp: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NOT EXISTS (SELECT 1 FROM metric_status WHERE name = upper(NEW.metricStatus))
            THEN RAISE(ABORT, 'metricStatus: is none of OK, WARNING, CRITICAL, UNKNOWN')
    END;

    INSERT INTO new_instance (host_name, service_flavour, metric_name, vo, fqan)
    SELECT
        lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType), NEW.metricName,
        coalesce(NEW.voName, ''), coalesce(NEW.voFqan, '')
    WHERE NOT EXISTS (
        SELECT 1 FROM metric_instance
        WHERE names = lower(NEW.hostName) || char(31)
            || coalesce(NEW.serviceFlavour, NEW.serviceType) || char(31)
            || NEW.metricName || char(31)
            || coalesce(NEW.voName, '') || char(31)
            || coalesce(NEW.voFqan, '')
    );
    INSERT INTO host (name) VALUES (coalesce(NEW.gatheredAt, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO result_origin (
        service_uri, service_type, site_name, metric_type, data_type,
        monitoring_host, role, nagios_name, encrypted
    )
    VALUES (
        coalesce(NEW.serviceURI, ''), coalesce(NEW.serviceType, ''), coalesce(NEW.siteName, ''),
        coalesce(NEW.metricType, ''), coalesce(NEW.dataType, ''),
        coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''), coalesce(NEW.nagiosName, ''),
        coalesce(NEW.encrypted, '')
    )
    ON CONFLICT DO NOTHING;

    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, status, origin_id,
        summary, performance_data, message_id
    )
    SELECT
        i.instance_id, unixepoch(NEW.timestamp), g.host_id, s.status, o.origin_id,
        NEW.summaryData, NEW.performanceData, NEW.messageId
    FROM metric_instance AS i
    JOIN host AS g ON g.name = coalesce(NEW.gatheredAt, '')
    JOIN metric_status AS s ON s.name = upper(NEW.metricStatus)
    JOIN result_origin AS o
        ON o.service_uri = coalesce(NEW.serviceURI, '')
        AND o.service_type = coalesce(NEW.serviceType, '')
        AND o.site_name = coalesce(NEW.siteName, '')
        AND o.metric_type = coalesce(NEW.metricType, '')
        AND o.data_type = coalesce(NEW.dataType, '')
        AND o.monitoring_host = coalesce(NEW.monitoringHost, '')
        AND o.role = coalesce(NEW.role, '')
        AND o.nagios_name = coalesce(NEW.nagiosName, '')
        AND o.encrypted = coalesce(NEW.encrypted, '')
    WHERE i.names = lower(NEW.hostName) || char(31)
        || coalesce(NEW.serviceFlavour, NEW.serviceType) || char(31)
        || NEW.metricName || char(31)
        || coalesce(NEW.voName, '') || char(31)
        || coalesce(NEW.voFqan, '')
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        origin_id = excluded.origin_id,
        summary = excluded.summary,
        performance_data = excluded.performance_data,
        message_id = excluded.message_id
    WHERE excluded.status > metric_result.status;

    -- changes() is 1 if the statement above stored the row, 0 if what was there stays.
    INSERT INTO metric_result_detail (result_id, details)
    SELECT r.result_id, NEW.detailsData
    FROM metric_instance AS i
    JOIN host AS g ON g.name = coalesce(NEW.gatheredAt, '')
    JOIN metric_result AS r
        ON r.instance_id = i.instance_id
        AND r.measured_at = unixepoch(NEW.timestamp)
        AND r.gatherer_id = g.host_id
    WHERE changes() = 1
        AND NEW.detailsData IS NOT NULL
        AND i.names = lower(NEW.hostName) || char(31)
            || coalesce(NEW.serviceFlavour, NEW.serviceType) || char(31)
            || NEW.metricName || char(31)
            || coalesce(NEW.voName, '') || char(31)
            || coalesce(NEW.voFqan, '');
END;

-- Forgets the details of a result that a worse replaced.
CREATE TRIGGER metric_result_worsen AFTER UPDATE OF status ON metric_result BEGIN
    DELETE FROM metric_result_detail WHERE result_id = OLD.result_id;
END;

-- serviceEndpoint: the first row stays; validTo: a value beats none, of two the earlier ----

-- Stores that an endpoint belongs to a site.
CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is no site')
        WHEN coalesce(NEW.hostName, '') = '' THEN RAISE(ABORT, 'hostName: is no host')
        WHEN coalesce(NEW.serviceFlavour, '') = ''
            THEN RAISE(ABORT, 'serviceFlavour: is no flavour')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validFrom)
            THEN RAISE(ABORT, 'validFrom: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.validTo IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validTo)
            THEN RAISE(ABORT, 'validTo: is no time YYYY-MM-DDThh:mm:ssZ')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO host (name) VALUES (lower(NEW.hostName)) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.serviceFlavour) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (coalesce(NEW.voName, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO endpoint (host_id, service_flavour_id)
    SELECT h.host_id, f.service_flavour_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    WHERE h.name = lower(NEW.hostName)
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;

    INSERT INTO endpoint_membership (
        site_id, endpoint_id, vo_id, valid_from, valid_to,
        service_uri, production, monitored, message_id
    )
    SELECT
        s.site_id, e.endpoint_id, v.vo_id, unixepoch(NEW.validFrom), unixepoch(NEW.validTo),
        NEW.serviceURI, NEW.production, NEW.monitored, NEW.messageId
    FROM site AS s
    JOIN host AS h ON h.name = lower(NEW.hostName)
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN vo AS v ON v.name = coalesce(NEW.voName, '')
    WHERE s.name = NEW.siteName
    ON CONFLICT (site_id, endpoint_id, vo_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(endpoint_membership.valid_to, 1e18);
END;

-- siteGroup: as serviceEndpoint -----------------------------------------------------------------

-- Stores that a site belongs to a group.
CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is no site')
        WHEN coalesce(NEW.groupName, '') = '' THEN RAISE(ABORT, 'groupName: is no group')
        WHEN coalesce(NEW.groupType, '') = '' THEN RAISE(ABORT, 'groupType: is no type of group')
        WHEN NEW.weight < 0 OR NEW.weight GLOB '*[^0-9]*' OR NEW.weight = ''
            THEN RAISE(ABORT, 'weight: is no weight')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validFrom)
            THEN RAISE(ABORT, 'validFrom: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.validTo IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validTo)
            THEN RAISE(ABORT, 'validTo: is no time YYYY-MM-DDThh:mm:ssZ')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO site_group (group_type, name) VALUES (NEW.groupType, NEW.groupName)
    ON CONFLICT (group_type, name) DO NOTHING;

    INSERT INTO site_group_member (
        site_group_id, site_id, valid_from, valid_to, weight, message_id
    )
    SELECT
        g.site_group_id, s.site_id, unixepoch(NEW.validFrom), unixepoch(NEW.validTo),
        NEW.weight, NEW.messageId
    FROM site AS s
    JOIN site_group AS g ON g.group_type = NEW.groupType AND g.name = NEW.groupName
    WHERE s.name = NEW.siteName
    ON CONFLICT (site_id, site_group_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(site_group_member.valid_to, 1e18);
END;

-- downtime: the newest announcement wins; one without a timestamp is older than any with one -

-- Stores an announced downtime.
CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') || coalesce(NEW.hostName, '') = ''
            THEN RAISE(ABORT, 'hostName: is no host, and there is no siteName')
        WHEN NEW.startTime IS NULL
            OR NEW.startTime IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.startTime)
            THEN RAISE(ABORT, 'startTime: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.endTime IS NULL
            OR NEW.endTime IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.endTime)
            THEN RAISE(ABORT, 'endTime: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NEW.endTime < NEW.startTime THEN RAISE(ABORT, 'endTime: is before startTime')
        WHEN coalesce(NEW.classification, '') = ''
            THEN RAISE(ABORT, 'classification: is no classification')
        WHEN coalesce(NEW.severity, '') = '' THEN RAISE(ABORT, 'severity: is no severity')
        WHEN NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp)
            THEN RAISE(ABORT, 'timestamp: is no time YYYY-MM-DDThh:mm:ssZ')
    END;

    INSERT INTO site (name) VALUES (coalesce(NEW.siteName, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO host (name) VALUES (lower(coalesce(NEW.hostName, '')))
    ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (coalesce(NEW.serviceFlavour, ''))
    ON CONFLICT (name) DO NOTHING;

    INSERT INTO announced_downtime (
        downtime_id, site_id, host_id, service_flavour_id, start_key,
        start_time, end_time, classification, severity, description, announced_at, message_id
    )
    SELECT
        coalesce(NEW.downtimeId, ''), s.site_id, h.host_id, f.service_flavour_id,
        CASE WHEN coalesce(NEW.downtimeId, '') <> '' THEN 0 ELSE unixepoch(NEW.startTime) END,
        unixepoch(NEW.startTime), unixepoch(NEW.endTime), NEW.classification, NEW.severity,
        NEW.description, unixepoch(NEW.timestamp), NEW.messageId
    FROM site AS s
    JOIN host AS h ON h.name = lower(coalesce(NEW.hostName, ''))
    JOIN service_flavour AS f ON f.name = coalesce(NEW.serviceFlavour, '')
    WHERE s.name = coalesce(NEW.siteName, '')
    ON CONFLICT (downtime_id, site_id, host_id, service_flavour_id, start_key) DO UPDATE SET
        start_time = excluded.start_time,
        end_time = excluded.end_time,
        classification = excluded.classification,
        severity = excluded.severity,
        description = excluded.description,
        announced_at = excluded.announced_at,
        message_id = excluded.message_id
    WHERE excluded.announced_at > coalesce(announced_downtime.announced_at, -1e18);
END;
