-- Inserts into the class views: check, look the names up (or create them), merge.
--
-- Redelivery is normal: the broker re-sends whatever was not acked. So a second copy changes
-- nothing, and which status, end or announcement wins does not depend on the order of arrival.
--
-- A time is accepted if it reads the same after being understood: YYYY-MM-DDThh:mm:ssZ, nothing
-- else. Where a time may be absent, 1e18 stands for later than any and -1e18 for earlier.

-- metricOutput: of two statuses for one moment the worse stays, with its whole row ------------

-- Checks a result of a probe, makes the names that are new, and stores it by new_result.
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput BEGIN
    SELECT CASE
        WHEN NEW.timestamp IS NULL
            OR NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp)
            THEN RAISE(ABORT, 'timestamp: is no time YYYY-MM-DDThh:mm:ssZ')
        WHEN NOT EXISTS (SELECT 1 FROM metric_status WHERE name = upper(NEW.metricStatus))
            THEN RAISE(ABORT, 'metricStatus: is none of OK, WARNING, CRITICAL, UNKNOWN')
    END;

    INSERT INTO host (name) VALUES (coalesce(NEW.gatheredAt, '')) ON CONFLICT (name) DO NOTHING;
    -- Whatever else is new is made by result_source_insert.
    INSERT INTO result_source (
        instance_id, service_uri, service_type, site_name, metric_type, data_type,
        monitoring_host, role, nagios_name, encrypted, names
    )
    VALUES (
        NULL, coalesce(NEW.serviceURI, ''), coalesce(NEW.serviceType, ''),
        coalesce(NEW.siteName, ''), coalesce(NEW.metricType, ''), coalesce(NEW.dataType, ''),
        coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''), coalesce(NEW.nagiosName, ''),
        coalesce(NEW.encrypted, ''),
        json_array(
            lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType), NEW.metricName,
            coalesce(NEW.voName, ''), coalesce(NEW.voFqan, ''), coalesce(NEW.serviceURI, ''),
            coalesce(NEW.serviceType, ''), coalesce(NEW.siteName, ''), coalesce(NEW.metricType, ''),
            coalesce(NEW.dataType, ''), coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''),
            coalesce(NEW.nagiosName, ''), coalesce(NEW.encrypted, '')
        )
    )
    ON CONFLICT (names) DO NOTHING;

    INSERT INTO new_result (
        source_id, measured_at, day, gatherer_id, status,
        summary, performance_data, message_id, details
    )
    VALUES (
        (
            SELECT source_id FROM result_source
            WHERE names = json_array(
                lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType), NEW.metricName,
                coalesce(NEW.voName, ''), coalesce(NEW.voFqan, ''), coalesce(NEW.serviceURI, ''),
                coalesce(NEW.serviceType, ''), coalesce(NEW.siteName, ''), coalesce(NEW.metricType, ''),
                coalesce(NEW.dataType, ''), coalesce(NEW.monitoringHost, ''), coalesce(NEW.role, ''),
                coalesce(NEW.nagiosName, ''), coalesce(NEW.encrypted, '')
            )
        ),
        unixepoch(NEW.timestamp), substr(NEW.timestamp, 1, 10),
        (SELECT host_id FROM host WHERE name = coalesce(NEW.gatheredAt, '')),
        (SELECT status FROM metric_status WHERE name = upper(NEW.metricStatus)),
        NEW.summaryData, NEW.performanceData, NEW.messageId, NEW.detailsData
    );
END;

-- Makes the metric instance of a new source, and whatever that refers to.
CREATE TRIGGER result_source_insert AFTER INSERT ON result_source BEGIN
    SELECT CASE
        WHEN coalesce(NEW.names ->> 0, '') = '' THEN RAISE(ABORT, 'hostName: is no host')
        WHEN coalesce(NEW.names ->> 1, '') = '' THEN RAISE(ABORT, 'serviceFlavour: is no flavour')
        WHEN coalesce(NEW.names ->> 2, '') = '' THEN RAISE(ABORT, 'metricName: is no metric')
    END;

    INSERT INTO host (name) VALUES (NEW.names ->> 0) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.names ->> 1) ON CONFLICT (name) DO NOTHING;
    INSERT INTO metric (name) VALUES (NEW.names ->> 2) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (NEW.names ->> 3) ON CONFLICT (name) DO NOTHING;
    INSERT INTO fqan (name) VALUES (NEW.names ->> 4) ON CONFLICT (name) DO NOTHING;
    INSERT INTO endpoint (host_id, service_flavour_id)
    SELECT h.host_id, f.service_flavour_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.names ->> 1
    WHERE h.name = NEW.names ->> 0
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;
    INSERT INTO instance_status (endpoint_id, metric_id, vo_id)
    SELECT e.endpoint_id, m.metric_id, v.vo_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.names ->> 1
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN metric AS m ON m.name = NEW.names ->> 2
    JOIN vo AS v ON v.name = NEW.names ->> 3
    WHERE h.name = NEW.names ->> 0
    ON CONFLICT (endpoint_id, metric_id, vo_id) DO NOTHING;
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, status_id)
    SELECT c.endpoint_id, c.metric_id, c.vo_id, q.fqan_id, c.status_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.names ->> 1
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN metric AS m ON m.name = NEW.names ->> 2
    JOIN vo AS v ON v.name = NEW.names ->> 3
    JOIN fqan AS q ON q.name = NEW.names ->> 4
    JOIN instance_status AS c
        ON c.endpoint_id = e.endpoint_id AND c.metric_id = m.metric_id AND c.vo_id = v.vo_id
    WHERE h.name = NEW.names ->> 0
    ON CONFLICT (endpoint_id, metric_id, vo_id, fqan_id) DO NOTHING;
    UPDATE result_source SET instance_id = (
        SELECT i.instance_id
        FROM host AS h
        JOIN service_flavour AS f ON f.name = NEW.names ->> 1
        JOIN endpoint AS e
            ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
        JOIN metric AS m ON m.name = NEW.names ->> 2
        JOIN vo AS v ON v.name = NEW.names ->> 3
        JOIN fqan AS q ON q.name = NEW.names ->> 4
        JOIN metric_instance AS i
            ON i.endpoint_id = e.endpoint_id
            AND i.metric_id = m.metric_id
            AND i.vo_id = v.vo_id
            AND i.fqan_id = q.fqan_id
        WHERE h.name = NEW.names ->> 0
    )
    WHERE source_id = NEW.source_id;
END;

-- Stores a result that is new, or worse than the one that is there, and what follows from it.
CREATE TRIGGER new_result_insert BEFORE INSERT ON new_result BEGIN
    SELECT RAISE(IGNORE)
    FROM result_source AS k
    JOIN metric_result AS r ON r.instance_id = k.instance_id
    WHERE k.source_id = NEW.source_id
        AND r.measured_at = NEW.measured_at
        AND r.gatherer_id = NEW.gatherer_id
        AND r.status >= NEW.status;

    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, status, source_id,
        summary, performance_data, message_id
    )
    VALUES (
        (SELECT instance_id FROM result_source WHERE source_id = NEW.source_id),
        NEW.measured_at, NEW.gatherer_id, NEW.status, NEW.source_id,
        NEW.summary, NEW.performance_data, NEW.message_id
    )
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        source_id = excluded.source_id,
        summary = excluded.summary,
        performance_data = excluded.performance_data,
        message_id = excluded.message_id;
    INSERT INTO metric_result_detail (measured_at, instance_id, gatherer_id, status, details)
    SELECT NEW.measured_at, instance_id, NEW.gatherer_id, NEW.status, NEW.details
    FROM result_source
    WHERE source_id = NEW.source_id AND NEW.details IS NOT NULL
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        details = excluded.details;

    -- The report of a day reads the results of the day before, too. A day of the future needs no
    -- mark, as it was never computed.
    INSERT INTO changed_day (day)
    SELECT NEW.day
    WHERE NOT EXISTS (SELECT 1 FROM changed_day WHERE day = NEW.day AND change_no IS NULL)
        AND NEW.day BETWEEN coalesce((SELECT day FROM horizon), '') AND date('now')
    UNION ALL
    SELECT date(NEW.day, '+1 day')
    WHERE NOT EXISTS (
        SELECT 1 FROM changed_day WHERE day = date(NEW.day, '+1 day') AND change_no IS NULL
    )
        AND date(NEW.day, '+1 day')
            BETWEEN coalesce((SELECT day FROM horizon), '') AND date('now')
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE change_no IS NOT NULL;

    -- The newest time, or a worse result of it: of that one, since is to be found.
    UPDATE instance_status SET
        status = NEW.status,
        since = CASE
            WHEN measured_at = NEW.measured_at THEN NULL
            WHEN status = NEW.status THEN since
            ELSE NEW.measured_at
        END,
        measured_at = NEW.measured_at,
        other_at = CASE
            WHEN measured_at = NEW.measured_at OR status = NEW.status THEN other_at
            ELSE measured_at
        END,
        summary = NEW.summary
    WHERE status_id = (
            SELECT i.status_id
            FROM result_source AS k
            JOIN metric_instance AS i ON i.instance_id = k.instance_id
            WHERE k.source_id = NEW.source_id
        )
        AND (
            measured_at IS NULL
            OR measured_at < NEW.measured_at
            OR (measured_at = NEW.measured_at AND status < NEW.status)
        );
    -- A late one has no effect before other_at, nor if it says what is known since earlier. Between
    -- other_at and since there is no result; a run in between is cut, so since is to be found.
    UPDATE instance_status SET
        since = CASE
            WHEN other_at = NEW.measured_at THEN NULL
            WHEN status = NEW.status THEN NEW.measured_at
            WHEN since > NEW.measured_at THEN since
        END,
        other_at = CASE
            WHEN since > NEW.measured_at AND status <> NEW.status THEN NEW.measured_at
            ELSE other_at
        END
    WHERE status_id = (
            SELECT i.status_id
            FROM result_source AS k
            JOIN metric_instance AS i ON i.instance_id = k.instance_id
            WHERE k.source_id = NEW.source_id
        )
        AND measured_at > NEW.measured_at
        AND coalesce(other_at, -1e18) <= NEW.measured_at
        AND CASE
            WHEN status = NEW.status THEN since > NEW.measured_at
            ELSE coalesce(other_at, -1e18) < NEW.measured_at
        END;
    -- Keeps the row itself out.
    SELECT RAISE(IGNORE);
END;

-- Finds since when a status holds in the results. Where they were forgotten, what was known stays.
CREATE TRIGGER instance_status_recompute AFTER UPDATE OF since ON instance_status
WHEN NEW.since IS NULL AND NEW.measured_at IS NOT NULL BEGIN
    -- The newest time when no result had the status, or a worse one had another.
    UPDATE instance_status SET other_at = coalesce(
        (
            SELECT max((
                SELECT r.measured_at FROM metric_result AS r
                WHERE r.instance_id = i.instance_id
                    AND r.measured_at < NEW.measured_at
                    AND r.status <> NEW.status
                    AND (
                        r.status > NEW.status
                        OR NOT EXISTS (
                            SELECT 1
                            FROM metric_instance AS j
                            JOIN metric_result AS q ON q.instance_id = j.instance_id
                            WHERE j.status_id = NEW.status_id
                                AND q.measured_at = r.measured_at
                                AND q.status >= NEW.status
                        )
                    )
                ORDER BY r.measured_at DESC LIMIT 1
            ))
            FROM metric_instance AS i
            WHERE i.status_id = NEW.status_id
        ),
        CASE WHEN OLD.status = NEW.status THEN OLD.other_at END
    )
    WHERE status_id = NEW.status_id;
    UPDATE instance_status SET since = min(
        coalesce(
            (
                SELECT min((
                    SELECT min(r.measured_at) FROM metric_result AS r
                    WHERE r.instance_id = i.instance_id
                        AND r.measured_at > coalesce(instance_status.other_at, -1e18)
                ))
                FROM metric_instance AS i
                WHERE i.status_id = NEW.status_id
            ),
            NEW.measured_at
        ),
        CASE
            WHEN OLD.status = NEW.status AND OLD.since > coalesce(other_at, -1e18) THEN OLD.since
            ELSE NEW.measured_at
        END
    )
    WHERE status_id = NEW.status_id;
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

-- What topology and downtimes change in reports ------------------------------------------------
--
-- A row of the topology counts on the days at whose 00:00:00Z it is valid, a downtime on the days
-- it touches. A change marks the days where the old and the new row differ: none before the horizon
-- or the first changed day (before that nothing is reported), none after today, and none that is
-- marked already.

-- Marks days that are not marked yet.
CREATE TRIGGER new_change_insert BEFORE INSERT ON new_change BEGIN
    INSERT INTO changed_day (day)
    WITH RECURSIVE
    span (first_day, last_day) AS (
        SELECT
            max(
                NEW.first_day,
                coalesce((SELECT day FROM horizon), ''),
                (SELECT min(day) FROM changed_day)
            ),
            min(NEW.last_day, date('now'))
    ),
    step (day, last_day) AS (
        SELECT first_day, last_day FROM span
        -- One of many rows that change the same days: nothing to do.
        WHERE (
            SELECT count(*) FROM changed_day
            WHERE change_no IS NULL AND day BETWEEN first_day AND last_day
        ) <= julianday(last_day) - julianday(first_day)
        UNION ALL
        SELECT date(day, '+1 day'), last_day FROM step WHERE day < last_day
    )
    SELECT day FROM step WHERE true
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE change_no IS NOT NULL;
    -- Keeps the row itself out.
    SELECT RAISE(IGNORE);
END;

-- Marks the days of a new membership.
CREATE TRIGGER endpoint_membership_insert AFTER INSERT ON endpoint_membership BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.valid_from - 1, 'unixepoch', '+1 day'),
        coalesce(date(NEW.valid_to - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days between the old and the new end of a membership.
CREATE TRIGGER endpoint_membership_update AFTER UPDATE OF valid_to ON endpoint_membership
WHEN OLD.valid_to IS NOT NEW.valid_to BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(
            max(
                NEW.valid_from,
                coalesce(min(OLD.valid_to, NEW.valid_to), OLD.valid_to, NEW.valid_to)
            ) - 1, 'unixepoch', '+1 day'
        ),
        coalesce(date(max(OLD.valid_to, NEW.valid_to) - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days of a new member of a group.
CREATE TRIGGER site_group_member_insert AFTER INSERT ON site_group_member BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.valid_from - 1, 'unixepoch', '+1 day'),
        coalesce(date(NEW.valid_to - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days between the old and the new end of a member of a group.
CREATE TRIGGER site_group_member_update AFTER UPDATE OF valid_to ON site_group_member
WHEN OLD.valid_to IS NOT NEW.valid_to BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(
            max(
                NEW.valid_from,
                coalesce(min(OLD.valid_to, NEW.valid_to), OLD.valid_to, NEW.valid_to)
            ) - 1, 'unixepoch', '+1 day'
        ),
        coalesce(date(max(OLD.valid_to, NEW.valid_to) - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days of a new downtime; a cancelled one has none.
CREATE TRIGGER announced_downtime_insert AFTER INSERT ON announced_downtime
WHEN NEW.end_time > NEW.start_time BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (date(NEW.start_time, 'unixepoch'), date(NEW.end_time - 1, 'unixepoch'));
END;

-- Marks the days of a downtime before and after it was changed.
CREATE TRIGGER announced_downtime_update AFTER UPDATE ON announced_downtime BEGIN
    INSERT INTO new_change (first_day, last_day)
    SELECT date(start_time, 'unixepoch'), date(end_time - 1, 'unixepoch')
    FROM (
        SELECT OLD.start_time AS start_time, OLD.end_time AS end_time
        UNION ALL SELECT NEW.start_time, NEW.end_time
    )
    WHERE end_time > start_time;
END;
