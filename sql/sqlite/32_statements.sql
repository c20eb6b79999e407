-- Inserts into serviceEndpoint, siteGroup, siteContact and downtime.
--
-- Each row is a statement and is added, unless the same message has said it before, or it is what a
-- file said last. Of the statements about a key that were not withdrawn the last one holds, in this
-- order: other sources before 'hand', then said_at, message id, arrival. So a person has the last
-- word, and the order of arrival decides only where nothing else is known.

-- Marks the days of a new statement that holds. Statements with equal facts whose periods overlap
-- differ only between their starts and between their ends.
CREATE TRIGGER new_holder_insert BEFORE INSERT ON new_holder BEGIN
    INSERT INTO new_change (first_day, last_day)
    SELECT
        CASE
            WHEN NEW.is_downtime THEN date(begins, 'unixepoch')
            ELSE date(begins - 1, 'unixepoch', '+1 day')
        END,
        date(ends - 1, 'unixepoch')
    FROM (
        SELECT
            coalesce(
                NEW.has_same_facts AND NEW.start < NEW.old_stop AND NEW.old_start < NEW.stop, false
            ) AS is_moved
    ) AS change
    JOIN (
        SELECT
            1 AS if_moved,
            min(NEW.start, NEW.old_start) AS begins, max(NEW.start, NEW.old_start) AS ends
        UNION ALL
        SELECT 1, min(NEW.stop, NEW.old_stop), max(NEW.stop, NEW.old_stop)
        UNION ALL
        SELECT 0, NEW.start, NEW.stop
        UNION ALL
        SELECT 0, NEW.old_start, NEW.old_stop
    ) AS span ON if_moved = is_moved
    WHERE begins < ends;
    SELECT RAISE(IGNORE);
END;

-- serviceEndpoint --------------------------------------------------------------------------------

-- Stores an endpoint of a site.
CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is not a site name')
        WHEN coalesce(NEW.hostName, '') = '' THEN RAISE(ABORT, 'hostName: is not a host name')
        WHEN coalesce(NEW.serviceFlavour, '') = ''
            THEN RAISE(ABORT, 'serviceFlavour: is not a service flavour')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validFrom, '+0 days')
            THEN RAISE(ABORT, 'validFrom: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.validTo IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validTo, '+0 days')
            THEN RAISE(ABORT, 'validTo: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp, '+0 days')
            THEN RAISE(ABORT, 'timestamp: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.source NOT IN ('message', 'hand', 'file') AND NEW.source NOT LIKE 'feed _%'
            THEN RAISE(ABORT, 'source: is not message, hand, file or feed NAME')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO host (name) VALUES (lower(NEW.hostName)) ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (NEW.serviceFlavour) ON CONFLICT (name) DO NOTHING;
    INSERT INTO vo (name) VALUES (coalesce(NEW.voName, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO publisher (identity, name)
    SELECT i, i FROM (SELECT coalesce(NULLIF(NEW.publisher, ''), 'operator') AS i) WHERE true
    ON CONFLICT (identity) DO NOTHING;
    INSERT INTO endpoint (host_id, service_flavour_id)
    SELECT h.host_id, f.service_flavour_id
    FROM host AS h
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    WHERE h.name = lower(NEW.hostName)
    ON CONFLICT (host_id, service_flavour_id) DO NOTHING;

    INSERT INTO endpoint_membership (
        site_id, endpoint_id, vo_id, valid_from, valid_to, service_uri, grid_site,
        production, monitored, said_at, source, message_id, publisher_id, received_at
    )
    SELECT
        s.site_id, e.endpoint_id, v.vo_id, unixepoch(NEW.validFrom), unixepoch(NEW.validTo),
        NEW.serviceURI, NEW.gridSite, NEW.production, NEW.monitored,
        coalesce(unixepoch(NEW.timestamp), unixepoch(NEW.receivedAt), unixepoch()),
        -- Without a message id a person says it.
        coalesce(NULLIF(NEW.source, 'message'), CASE WHEN NEW.messageId IS NULL THEN 'hand' END),
        CASE WHEN coalesce(NEW.source, 'message') = 'message' THEN NEW.messageId END,
        p.publisher_id, coalesce(unixepoch(NEW.receivedAt), unixepoch())
    FROM site AS s
    JOIN host AS h ON h.name = lower(NEW.hostName)
    JOIN service_flavour AS f ON f.name = NEW.serviceFlavour
    JOIN endpoint AS e
        ON e.host_id = h.host_id AND e.service_flavour_id = f.service_flavour_id
    JOIN vo AS v ON v.name = coalesce(NEW.voName, '')
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    WHERE s.name = NEW.siteName;
END;

-- Leaves out what was said before.
CREATE TRIGGER endpoint_membership_repeat BEFORE INSERT ON endpoint_membership
WHEN EXISTS (
    SELECT 1 FROM endpoint_membership AS k
    WHERE (k.site_id, k.key) = (NEW.site_id, NEW.key)
        AND k.content IS NEW.content
        AND k.source IS NEW.source
        AND CASE NEW.source
            WHEN 'file' THEN k.statement_id = (
                SELECT statement_id FROM endpoint_membership
                WHERE (site_id, key) = (NEW.site_id, NEW.key)
                    AND source = 'file'
                    AND withdrawn_at IS NULL
                ORDER BY rank DESC, statement_id DESC
                LIMIT 1
            )
            ELSE (k.publisher_id, k.message_id) = (NEW.publisher_id, NEW.message_id)
        END
) BEGIN
    SELECT RAISE(IGNORE);
END;

-- Finds out which statement holds now. Of equal statements of a publisher with no other between
-- them the first and the last are kept.
CREATE TRIGGER endpoint_membership_insert AFTER INSERT ON endpoint_membership BEGIN
    INSERT INTO new_holder (is_downtime, start, stop, old_start, old_stop, has_same_facts)
    SELECT
        0, NEW.valid_from, coalesce(NEW.valid_to, 253402300800),
        k.valid_from, CASE WHEN k.holds THEN coalesce(k.valid_to, 253402300800) END,
        (k.service_uri, k.grid_site, k.production, k.monitored)
            IS (NEW.service_uri, NEW.grid_site, NEW.production, NEW.monitored)
    FROM (SELECT 1)
    LEFT JOIN endpoint_membership AS k
        ON k.holds AND (k.site_id, k.key) = (NEW.site_id, NEW.key)
    WHERE k.holds IS NULL OR (k.rank, k.statement_id) < (NEW.rank, NEW.statement_id);
    UPDATE endpoint_membership SET holds = NOT holds
    WHERE (site_id, key) = (NEW.site_id, NEW.key)
        AND (holds OR statement_id = NEW.statement_id)
        AND NOT EXISTS (
            SELECT 1 FROM endpoint_membership AS k
            WHERE (k.site_id, k.key) = (NEW.site_id, NEW.key)
                AND k.holds
                AND (k.rank, k.statement_id) > (NEW.rank, NEW.statement_id)
        );
    DELETE FROM endpoint_membership WHERE statement_id IN (
        SELECT statement_id
        FROM (
            SELECT
                statement_id,
                lag(said) OVER w = said
                    AND lead(said) OVER w = said
                    AND lag(received_at) OVER w <= received_at
                    AND lead(received_at) OVER w >= received_at AS is_between
            FROM endpoint_membership
            WHERE (site_id, key) = (NEW.site_id, NEW.key)
            WINDOW w AS (ORDER BY rank, statement_id)
        )
        WHERE is_between
    );
END;

-- siteGroup --------------------------------------------------------------------------------------

-- Stores a member of a group.
CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is not a site name')
        WHEN coalesce(NEW.groupName, '') = '' THEN RAISE(ABORT, 'groupName: is not a group name')
        WHEN coalesce(NEW.groupType, '') = '' THEN RAISE(ABORT, 'groupType: is not a group type')
        WHEN NEW.weight < 0 OR NEW.weight GLOB '*[^0-9]*' OR NEW.weight = ''
            THEN RAISE(ABORT, 'weight: is not a weight')
        WHEN NEW.validFrom IS NULL
            OR NEW.validFrom IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validFrom, '+0 days')
            THEN RAISE(ABORT, 'validFrom: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.validTo IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.validTo, '+0 days')
            THEN RAISE(ABORT, 'validTo: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp, '+0 days')
            THEN RAISE(ABORT, 'timestamp: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.source NOT IN ('message', 'hand', 'file') AND NEW.source NOT LIKE 'feed _%'
            THEN RAISE(ABORT, 'source: is not message, hand, file or feed NAME')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO site_group (group_type, name) VALUES (NEW.groupType, NEW.groupName)
    ON CONFLICT (group_type, name) DO NOTHING;
    INSERT INTO publisher (identity, name)
    SELECT i, i FROM (SELECT coalesce(NULLIF(NEW.publisher, ''), 'operator') AS i) WHERE true
    ON CONFLICT (identity) DO NOTHING;

    INSERT INTO site_group_member (
        site_group_id, site_id, valid_from, valid_to, weight,
        said_at, source, message_id, publisher_id, received_at
    )
    SELECT
        g.site_group_id, s.site_id, unixepoch(NEW.validFrom), unixepoch(NEW.validTo), NEW.weight,
        coalesce(unixepoch(NEW.timestamp), unixepoch(NEW.receivedAt), unixepoch()),
        -- Without a message id a person says it.
        coalesce(NULLIF(NEW.source, 'message'), CASE WHEN NEW.messageId IS NULL THEN 'hand' END),
        CASE WHEN coalesce(NEW.source, 'message') = 'message' THEN NEW.messageId END,
        p.publisher_id, coalesce(unixepoch(NEW.receivedAt), unixepoch())
    FROM site AS s
    JOIN site_group AS g ON g.group_type = NEW.groupType AND g.name = NEW.groupName
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    WHERE s.name = NEW.siteName;
END;

-- Leaves out what was said before.
CREATE TRIGGER site_group_member_repeat BEFORE INSERT ON site_group_member
WHEN EXISTS (
    SELECT 1 FROM site_group_member AS k
    WHERE (k.site_id, k.key) = (NEW.site_id, NEW.key)
        AND k.content IS NEW.content
        AND k.source IS NEW.source
        AND CASE NEW.source
            WHEN 'file' THEN k.statement_id = (
                SELECT statement_id FROM site_group_member
                WHERE (site_id, key) = (NEW.site_id, NEW.key)
                    AND source = 'file'
                    AND withdrawn_at IS NULL
                ORDER BY rank DESC, statement_id DESC
                LIMIT 1
            )
            ELSE (k.publisher_id, k.message_id) = (NEW.publisher_id, NEW.message_id)
        END
) BEGIN
    SELECT RAISE(IGNORE);
END;

-- Finds out which statement holds now. Of equal statements of a publisher with no other between
-- them the first and the last are kept.
CREATE TRIGGER site_group_member_insert AFTER INSERT ON site_group_member BEGIN
    INSERT INTO new_holder (is_downtime, start, stop, old_start, old_stop, has_same_facts)
    SELECT
        0, NEW.valid_from, coalesce(NEW.valid_to, 253402300800),
        k.valid_from, CASE WHEN k.holds THEN coalesce(k.valid_to, 253402300800) END,
        k.weight IS NEW.weight
    FROM (SELECT 1)
    LEFT JOIN site_group_member AS k
        ON k.holds AND (k.site_id, k.key) = (NEW.site_id, NEW.key)
    WHERE k.holds IS NULL OR (k.rank, k.statement_id) < (NEW.rank, NEW.statement_id);
    UPDATE site_group_member SET holds = NOT holds
    WHERE (site_id, key) = (NEW.site_id, NEW.key)
        AND (holds OR statement_id = NEW.statement_id)
        AND NOT EXISTS (
            SELECT 1 FROM site_group_member AS k
            WHERE (k.site_id, k.key) = (NEW.site_id, NEW.key)
                AND k.holds
                AND (k.rank, k.statement_id) > (NEW.rank, NEW.statement_id)
        );
    DELETE FROM site_group_member WHERE statement_id IN (
        SELECT statement_id
        FROM (
            SELECT
                statement_id,
                lag(said) OVER w = said
                    AND lead(said) OVER w = said
                    AND lag(received_at) OVER w <= received_at
                    AND lead(received_at) OVER w >= received_at AS is_between
            FROM site_group_member
            WHERE (site_id, key) = (NEW.site_id, NEW.key)
            WINDOW w AS (ORDER BY rank, statement_id)
        )
        WHERE is_between
    );
END;

-- siteContact ------------------------------------------------------------------------------------

-- Stores the contact of a site; an empty contact removes it.
CREATE TRIGGER siteContact_insert INSTEAD OF INSERT ON siteContact BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') = '' THEN RAISE(ABORT, 'siteName: is not a site name')
        WHEN length(NEW.contact) > 255
            THEN RAISE(ABORT, 'contact: is longer than 255 characters')
        WHEN NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp, '+0 days')
            THEN RAISE(ABORT, 'timestamp: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.source NOT IN ('message', 'hand', 'file') AND NEW.source NOT LIKE 'feed _%'
            THEN RAISE(ABORT, 'source: is not message, hand, file or feed NAME')
    END;

    INSERT INTO site (name) VALUES (NEW.siteName) ON CONFLICT (name) DO NOTHING;
    INSERT INTO publisher (identity, name)
    SELECT i, i FROM (SELECT coalesce(NULLIF(NEW.publisher, ''), 'operator') AS i) WHERE true
    ON CONFLICT (identity) DO NOTHING;

    INSERT INTO site_contact (
        site_id, contact, said_at, source, message_id, publisher_id, received_at
    )
    SELECT
        s.site_id, coalesce(NEW.contact, ''),
        coalesce(unixepoch(NEW.timestamp), unixepoch(NEW.receivedAt), unixepoch()),
        -- Without a message id a person says it.
        coalesce(NULLIF(NEW.source, 'message'), CASE WHEN NEW.messageId IS NULL THEN 'hand' END),
        CASE WHEN coalesce(NEW.source, 'message') = 'message' THEN NEW.messageId END,
        p.publisher_id, coalesce(unixepoch(NEW.receivedAt), unixepoch())
    FROM site AS s
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    WHERE s.name = NEW.siteName;
END;

-- Leaves out what was said before.
CREATE TRIGGER site_contact_repeat BEFORE INSERT ON site_contact
WHEN EXISTS (
    SELECT 1 FROM site_contact AS k
    WHERE (k.site_id, k.key) = (NEW.site_id, NEW.key)
        AND k.content IS NEW.content
        AND k.source IS NEW.source
        AND CASE NEW.source
            WHEN 'file' THEN k.statement_id = (
                SELECT statement_id FROM site_contact
                WHERE (site_id, key) = (NEW.site_id, NEW.key)
                    AND source = 'file'
                    AND withdrawn_at IS NULL
                ORDER BY rank DESC, statement_id DESC
                LIMIT 1
            )
            ELSE (k.publisher_id, k.message_id) = (NEW.publisher_id, NEW.message_id)
        END
) BEGIN
    SELECT RAISE(IGNORE);
END;

-- Finds out which statement holds now. Of equal statements of a publisher with no other between
-- them the first and the last are kept.
CREATE TRIGGER site_contact_insert AFTER INSERT ON site_contact BEGIN
    UPDATE site_contact SET holds = NOT holds
    WHERE (site_id, key) = (NEW.site_id, NEW.key)
        AND (holds OR statement_id = NEW.statement_id)
        AND NOT EXISTS (
            SELECT 1 FROM site_contact AS k
            WHERE (k.site_id, k.key) = (NEW.site_id, NEW.key)
                AND k.holds
                AND (k.rank, k.statement_id) > (NEW.rank, NEW.statement_id)
        );
    DELETE FROM site_contact WHERE statement_id IN (
        SELECT statement_id
        FROM (
            SELECT
                statement_id,
                lag(said) OVER w = said
                    AND lead(said) OVER w = said
                    AND lag(received_at) OVER w <= received_at
                    AND lead(received_at) OVER w >= received_at AS is_between
            FROM site_contact
            WHERE (site_id, key) = (NEW.site_id, NEW.key)
            WINDOW w AS (ORDER BY rank, statement_id)
        )
        WHERE is_between
    );
END;

-- downtime ---------------------------------------------------------------------------------------

-- Stores an announced downtime.
CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime BEGIN
    SELECT CASE
        WHEN coalesce(NEW.siteName, '') || coalesce(NEW.hostName, '') = ''
            THEN RAISE(ABORT, 'hostName: is not a host name, and siteName is missing')
        WHEN NEW.startTime IS NULL
            OR NEW.startTime IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.startTime, '+0 days')
            THEN RAISE(ABORT, 'startTime: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.endTime IS NULL
            OR NEW.endTime IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.endTime, '+0 days')
            THEN RAISE(ABORT, 'endTime: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.endTime < NEW.startTime THEN RAISE(ABORT, 'endTime: is before startTime')
        WHEN coalesce(NEW.classification, '') = ''
            THEN RAISE(ABORT, 'classification: is not a classification')
        WHEN coalesce(NEW.severity, '') = '' THEN RAISE(ABORT, 'severity: is not a severity')
        WHEN NEW.timestamp IS NOT strftime('%Y-%m-%dT%H:%M:%SZ', NEW.timestamp, '+0 days')
            THEN RAISE(ABORT, 'timestamp: is not a time (expected YYYY-MM-DDThh:mm:ssZ)')
        WHEN NEW.source NOT IN ('message', 'hand', 'file') AND NEW.source NOT LIKE 'feed _%'
            THEN RAISE(ABORT, 'source: is not message, hand, file or feed NAME')
    END;

    INSERT INTO site (name) VALUES (coalesce(NEW.siteName, '')) ON CONFLICT (name) DO NOTHING;
    INSERT INTO host (name) VALUES (lower(coalesce(NEW.hostName, '')))
    ON CONFLICT (name) DO NOTHING;
    INSERT INTO service_flavour (name) VALUES (coalesce(NEW.serviceFlavour, ''))
    ON CONFLICT (name) DO NOTHING;
    INSERT INTO publisher (identity, name)
    SELECT i, i FROM (SELECT coalesce(NULLIF(NEW.publisher, ''), 'operator') AS i) WHERE true
    ON CONFLICT (identity) DO NOTHING;

    INSERT INTO announced_downtime (
        downtime_id, site_id, host_id, service_flavour_id, start_key,
        start_time, end_time, classification, severity, description, announced_at,
        said_at, source, message_id, publisher_id, received_at
    )
    SELECT
        coalesce(NEW.downtimeId, ''), s.site_id, h.host_id, f.service_flavour_id,
        CASE WHEN coalesce(NEW.downtimeId, '') <> '' THEN 0 ELSE unixepoch(NEW.startTime) END,
        unixepoch(NEW.startTime), unixepoch(NEW.endTime), NEW.classification, NEW.severity,
        NEW.description,
        coalesce(
            CASE
                WHEN coalesce(NEW.source, '') NOT IN ('hand', 'file')
                    THEN unixepoch(NEW.announcedAt)
            END,
            unixepoch(NEW.receivedAt), unixepoch()
        ),
        coalesce(unixepoch(NEW.timestamp), unixepoch(NEW.receivedAt), unixepoch()),
        -- Without a message id a person says it.
        coalesce(NULLIF(NEW.source, 'message'), CASE WHEN NEW.messageId IS NULL THEN 'hand' END),
        CASE WHEN coalesce(NEW.source, 'message') = 'message' THEN NEW.messageId END,
        p.publisher_id, coalesce(unixepoch(NEW.receivedAt), unixepoch())
    FROM site AS s
    JOIN host AS h ON h.name = lower(coalesce(NEW.hostName, ''))
    JOIN service_flavour AS f ON f.name = coalesce(NEW.serviceFlavour, '')
    JOIN publisher AS p ON p.identity = coalesce(NULLIF(NEW.publisher, ''), 'operator')
    WHERE s.name = coalesce(NEW.siteName, '');
END;

-- Leaves out what was said before.
CREATE TRIGGER announced_downtime_repeat BEFORE INSERT ON announced_downtime
WHEN EXISTS (
    SELECT 1 FROM announced_downtime AS k
    WHERE (k.site_id, k.key) = (NEW.site_id, NEW.key)
        AND k.content IS NEW.content
        AND k.source IS NEW.source
        AND CASE NEW.source
            WHEN 'file' THEN k.statement_id = (
                SELECT statement_id FROM announced_downtime
                WHERE (site_id, key) = (NEW.site_id, NEW.key)
                    AND source = 'file'
                    AND withdrawn_at IS NULL
                ORDER BY rank DESC, statement_id DESC
                LIMIT 1
            )
            ELSE (k.publisher_id, k.message_id) = (NEW.publisher_id, NEW.message_id)
        END
) BEGIN
    SELECT RAISE(IGNORE);
END;

-- Finds out which statement holds now. Of equal statements of a publisher with no other between
-- them the first and the last are kept.
CREATE TRIGGER announced_downtime_insert AFTER INSERT ON announced_downtime BEGIN
    INSERT INTO new_holder (is_downtime, start, stop, old_start, old_stop, has_same_facts)
    SELECT
        1, NEW.start_time, NEW.end_time,
        k.start_time, k.end_time,
        -- It may count as announced earlier, or later since a statement contradicts it.
        (k.classification, k.severity, k.description)
                IS (NEW.classification, NEW.severity, NEW.description)
            AND NEW.announced_at >= k.announced_at
            AND (k.rank, k.statement_id) < (NEW.rank, NEW.statement_id)
    FROM (SELECT 1)
    LEFT JOIN announced_downtime AS k
        ON k.holds AND (k.site_id, k.key) = (NEW.site_id, NEW.key)
    WHERE k.holds IS NULL
        OR (k.rank, k.statement_id) < (NEW.rank, NEW.statement_id)
        OR k.content IS NOT NEW.content
        OR NEW.announced_at < k.announced_at;
    UPDATE announced_downtime SET holds = NOT holds
    WHERE (site_id, key) = (NEW.site_id, NEW.key)
        AND (holds OR statement_id = NEW.statement_id)
        AND NOT EXISTS (
            SELECT 1 FROM announced_downtime AS k
            WHERE (k.site_id, k.key) = (NEW.site_id, NEW.key)
                AND k.holds
                AND (k.rank, k.statement_id) > (NEW.rank, NEW.statement_id)
        );
    DELETE FROM announced_downtime WHERE statement_id IN (
        SELECT statement_id
        FROM (
            SELECT
                statement_id,
                lag(said) OVER w = said
                    AND lead(said) OVER w = said
                    AND lag(received_at) OVER w <= received_at
                    AND lead(received_at) OVER w >= received_at AS is_between
            FROM announced_downtime
            WHERE (site_id, key) = (NEW.site_id, NEW.key)
            WINDOW w AS (ORDER BY rank, statement_id)
        )
        WHERE is_between
    );
END;
