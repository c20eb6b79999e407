-- Inserts into serviceEndpoint, siteGroup, siteContact and downtime (see 30_claims.sql).

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
