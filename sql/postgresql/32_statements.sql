-- Inserts into serviceEndpoint, siteGroup, siteContact and downtime (see 30_staging.sql).
--
-- Each row is a statement and is added, unless the same message has said it before, or it is what a
-- file said last. Of the statements about a key that were not withdrawn the last one holds, in this
-- order: other sources before 'hand', then said_at, message id, arrival. So a person has the last
-- word, and the order of arrival decides only where nothing else is known.

CREATE FUNCTION lock_statements() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    -- A lock that only conflicts with itself, on a table that never changes, as in lock_names().
    LOCK TABLE database_identity IN SHARE UPDATE EXCLUSIVE MODE;
END
$$;
COMMENT ON FUNCTION lock_statements IS
    'Wait to be the one transaction that stores or withdraws statements, since which of them holds '
    'depends on all others about its key.';

CREATE FUNCTION mark_statement_days(
    target text, same_key text, begins text, ends text, facts text[]
) RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    old_facts CONSTANT text := (
        SELECT string_agg(format('k.%I', c), ', ') FROM unnest(facts) AS c
    );
    new_facts CONSTANT text := (
        SELECT string_agg(format('n.%I', c), ', ') FROM unnest(facts) AS c
    );
BEGIN
    EXECUTE format(
        $statement$
        SELECT mark_days(array_agg(%1$s), array_agg(ends))
        FROM (
            SELECT
                k.%2$I AS old_start, coalesce(k.%3$I, 'infinity') AS old_stop,
                n.%2$I AS start, coalesce(n.%3$I, 'infinity') AS stop,
                (%4$s) IS NOT DISTINCT FROM (%5$s)
                    AND k.%2$I < coalesce(n.%3$I, 'infinity')
                    AND n.%2$I < coalesce(k.%3$I, 'infinity')
                    AND NOT (%9$s) AS is_moved
            FROM pg_temp.%6$I AS n
            LEFT JOIN pg_temp.%7$I AS k ON %8$s
            WHERE n.holds OR (%9$s)
        ) AS change
        CROSS JOIN LATERAL (
            VALUES
                (true, least(start, old_start), greatest(start, old_start)),
                (true, least(stop, old_stop), greatest(stop, old_stop)),
                (false, start, stop),
                (false, old_start, old_stop)
        ) AS span (if_moved, begins, ends)
        WHERE if_moved = coalesce(is_moved, false) AND begins < ends
        $statement$,
        -- A row of the topology counts on each day at whose beginning it is valid, a downtime on each
        -- day that it overlaps.
        CASE target WHEN 'announced_downtime' THEN 'date_trunc(''day'', begins)' ELSE 'begins' END,
        begins, ends, old_facts, new_facts,
        'new_' || target, 'held_' || target, same_key,
        CASE target
            WHEN 'announced_downtime' THEN format(
                'n.announced_at < k.announced_at OR NOT n.holds'
                ' AND (n.start_time, n.end_time, %s) IS DISTINCT FROM (k.start_time, k.end_time, %s)',
                new_facts, old_facts
            )
            ELSE 'false'
        END
    );
END
$$;
COMMENT ON FUNCTION mark_statement_days IS
    'Mark the days on which new statements that hold differ from those that have held. Statements '
    'with equal facts whose periods overlap differ only between their starts and between their ends; '
    'but a downtime may count as announced earlier, or later since a statement contradicts it.';

CREATE FUNCTION prepare_statements(class text, target text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format($statement$
        SELECT
            make_names('site', array_agg(coalesce(siteName, ''))),
            make_publishers(array_agg(identity_or_operator(publisher)))
        FROM pg_temp.%I
    $statement$, 'staged_' || class);
    PERFORM lock_statements();
    PERFORM make_temporary('new_' || target, format('LIKE %I', target));
    PERFORM make_temporary('held_' || target, format('LIKE %I, place tid', target));
    EXECUTE format('DELETE FROM pg_temp.%I', 'new_' || target);
    EXECUTE format('DELETE FROM pg_temp.%I', 'held_' || target);
END
$$;
COMMENT ON FUNCTION prepare_statements IS
    'Create the missing sites and publishers of the staged rows, and the empty temporary tables of '
    'store_statements(): new_<table>, which the caller fills, and held_<table>.';

CREATE FUNCTION store_statements(
    class text, target text, key text[], content text[], begins text, ends text, facts text[]
) RETURNS integer
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    new_ones CONSTANT text := 'new_' || target;
    held CONSTANT text := 'held_' || target;
    keys CONSTANT text := (SELECT string_agg(format('n.%I', c), ', ') FROM unnest(key) AS c);
    said CONSTANT text := (SELECT string_agg(format('n.%I', c), ', ') FROM unnest(content) AS c);
    known_said CONSTANT text := (
        SELECT string_agg(format('k.%I', c), ', ') FROM unnest(content) AS c
    );
    same_key CONSTANT text := (
        SELECT string_agg(format('k.%1$I = n.%1$I', c), ' AND ') FROM unnest(key) AS c
    );
    staged bigint[];
    stored bigint[];
BEGIN
    EXECUTE format('SELECT array_agg(statement_id ORDER BY statement_id) FROM pg_temp.%I', new_ones)
    INTO staged;

    -- Sub-queries with a limit use the index regardless of the statistics.
    EXECUTE format($statement$
        DELETE FROM pg_temp.%1$I AS n
        WHERE (
            SELECT true FROM %2$I AS k
            WHERE %3$s
                AND (%4$s) IS NOT DISTINCT FROM (%5$s)
                AND k.source IS NOT DISTINCT FROM n.source
                AND CASE n.source
                    WHEN 'file' THEN k.statement_id = (
                        SELECT k.statement_id FROM %2$I AS k
                        WHERE %3$s AND k.source = 'file' AND k.withdrawn_at IS NULL
                        ORDER BY k.said_at DESC, k.statement_id DESC
                        LIMIT 1
                    )
                    ELSE (k.publisher_id, k.message_id) = (n.publisher_id, n.message_id)
                END
            LIMIT 1
        )
        OR n.statement_id NOT IN (
            SELECT DISTINCT ON (
                %6$s, %5$s, n.publisher_id, coalesce(n.message_id, CAST(n.statement_id AS text))
            ) n.statement_id
            FROM pg_temp.%1$I AS n
            ORDER BY
                %6$s, %5$s, n.publisher_id, coalesce(n.message_id, CAST(n.statement_id AS text)),
                n.statement_id
        )
    $statement$, new_ones, target, same_key, known_said, said, keys);
    EXECUTE format($statement$
        INSERT INTO pg_temp.%1$I
        SELECT k.*
        FROM (SELECT DISTINCT %4$s FROM pg_temp.%2$I AS n) AS n
        CROSS JOIN LATERAL (
            SELECT k.*, k.ctid FROM %3$I AS k WHERE %5$s AND k.holds LIMIT 1
        ) AS k
    $statement$, held, new_ones, target, keys, same_key);
    EXECUTE format($statement$
        UPDATE pg_temp.%1$I SET holds = true
        WHERE statement_id IN (
            SELECT DISTINCT ON (%3$s) n.statement_id
            FROM (
                SELECT %3$s, n.source, n.said_at, n.message_id, n.statement_id
                FROM pg_temp.%1$I AS n
                UNION ALL
                SELECT %3$s, n.source, n.said_at, n.message_id, n.statement_id
                FROM pg_temp.%2$I AS n
            ) AS n
            ORDER BY
                %3$s, n.source IS NOT DISTINCT FROM 'hand' DESC, n.said_at DESC,
                coalesce(n.message_id, '') DESC, n.statement_id DESC
        )
    $statement$, new_ones, held, keys);
    EXECUTE format($statement$
        UPDATE %1$I SET holds = false
        WHERE ctid = ANY (ARRAY(
            SELECT k.place FROM pg_temp.%2$I AS k JOIN pg_temp.%3$I AS n ON %4$s WHERE n.holds
        ))
    $statement$, target, held, new_ones, same_key);
    EXECUTE format('INSERT INTO %I SELECT * FROM pg_temp.%I', target, new_ones);
    IF begins <> '' THEN
        PERFORM mark_statement_days(target, same_key, begins, ends, facts);
    END IF;

    -- A publisher may say the same every day: of equal statements with no other between them the first
    -- and the last are kept.
    EXECUTE format($statement$
        DELETE FROM %1$I WHERE ctid = ANY (ARRAY(
            SELECT place
            FROM (
                SELECT
                    place,
                    lag(what) OVER w IS NOT DISTINCT FROM what
                        AND lead(what) OVER w IS NOT DISTINCT FROM what
                        AND lag(received_at) OVER w <= received_at
                        AND lead(received_at) OVER w >= received_at AS is_between
                FROM (
                    SELECT k.*, ROW(k.publisher_id, k.source, k.withdrawn_at, %2$s) AS what
                    FROM pg_temp.%4$I AS n
                    CROSS JOIN LATERAL (SELECT k.ctid AS place, k.* FROM %1$I AS k WHERE %5$s) AS k
                ) AS n
                WINDOW w AS (
                    PARTITION BY %3$s
                    ORDER BY said_at, coalesce(message_id, ''), statement_id
                )
            ) AS neighbours
            WHERE is_between
        ))
    $statement$, target, known_said, keys, held, same_key);

    EXECUTE format('SELECT array_agg(statement_id) FROM pg_temp.%I', new_ones) INTO stored;
    PERFORM close_staging(class);
    IF cardinality(stored) = cardinality(staged) THEN
        RETURN 0;
    END IF;
    RETURN note_duplicates(class, ARRAY(
        SELECT s.number FROM unnest(staged) WITH ORDINALITY AS s (id, number)
        WHERE NOT s.id = ANY (coalesce(stored, '{}'))
    ));
END
$$;
COMMENT ON FUNCTION store_statements IS
    'Store the rows of new_<table> in the table, with these columns as key and content; returns '
    'how many were duplicates, which changed nothing. Reports read the facts of the statement that '
    'holds, from begins until ends.';

CREATE FUNCTION stage_statement() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT has_function_privilege(session_user, TG_TABLE_NAME || '_load()', 'EXECUTE') THEN
        -- Only loaders and the owner say who sent a row, and when it arrived.
        NEW.publisher := NULL;
        NEW.messageId := NULL;
        NEW.receivedAt := NULL;
    END IF;
    NEW.source := coalesce(
        NULLIF(NEW.source, 'message'), CASE WHEN NEW.messageId IS NULL THEN 'hand' END
    );
    PERFORM demand(
        coalesce(NEW.source, 'hand') IN ('hand', 'file') OR NEW.source LIKE 'feed _%',
        'source', NEW.source, 'is not hand, file or feed NAME'
    );
    EXECUTE format('INSERT INTO pg_temp.%I SELECT ($1).*', 'staged_' || TG_TABLE_NAME) USING NEW;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION stage_statement IS
    'Trigger function: stages a row of a class of statements. Without a message id a person says it.';

-- serviceEndpoint -------------------------------------------------------------------------------

CREATE FUNCTION serviceEndpoint_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_serviceendpoint ORDER BY ctid LOOP
        PERFORM demand(r.siteName <> '', 'siteName', r.siteName, 'is not a site name');
        PERFORM demand(r.hostName <> '', 'hostName', r.hostName, 'is not a host name');
        PERFORM demand(
            r.serviceFlavour <> '', 'serviceFlavour', r.serviceFlavour,
            'is not a service flavour'
        );
        PERFORM demand_time('validFrom', r.validFrom);
        PERFORM demand_time('validTo', r.validTo, may_miss => true);
        PERFORM demand_time('timestamp', r.timestamp, may_miss => true);
    END LOOP;
    PERFORM make_names('vo', array_agg(coalesce(voName, ''))) FROM pg_temp.staged_serviceendpoint;
    PERFORM make_endpoints(array_agg(lower(hostName)), array_agg(serviceFlavour))
    FROM pg_temp.staged_serviceendpoint;
    PERFORM prepare_statements('serviceendpoint', 'endpoint_membership');
    INSERT INTO pg_temp.new_endpoint_membership
    SELECT
        nextval('statement_number'),
        s.validFrom,
        date_trunc('second', coalesce(s.timestamp, s.receivedAt, now())),
        coalesce(s.receivedAt, now()),
        (SELECT x.site_id FROM site AS x WHERE x.name = s.siteName),
        (
            SELECT e.endpoint_id FROM endpoint AS e
            WHERE e.host_id = (SELECT h.host_id FROM host AS h WHERE h.name = lower(s.hostName))
                AND e.service_flavour_id = (
                    SELECT f.service_flavour_id FROM service_flavour AS f
                    WHERE f.name = s.serviceFlavour
                )
        ),
        (SELECT x.vo_id FROM vo AS x WHERE x.name = coalesce(s.voName, '')),
        (
            SELECT x.publisher_id FROM publisher AS x
            WHERE x.identity = identity_or_operator(s.publisher)
        ),
        false, s.validTo, CAST(NULL AS timestamptz),
        s.serviceURI, s.gridSite, s.production, s.monitored, s.source,
        CASE WHEN s.source IS NULL THEN s.messageId END
    FROM (SELECT * FROM pg_temp.staged_serviceendpoint ORDER BY ctid) AS s;
    RETURN store_statements(
        'serviceendpoint', 'endpoint_membership',
        key => '{site_id, endpoint_id, vo_id, valid_from}',
        content => '{valid_to, service_uri, grid_site, production, monitored}',
        begins => 'valid_from',
        ends => 'valid_to',
        facts => '{service_uri, grid_site, production, monitored}'
    );
END
$$;
COMMENT ON FUNCTION serviceEndpoint_load IS
    'Store the staged endpoints; returns how many were duplicates, which changed nothing.';

-- Prepare the staging table, stage the endpoints of sites, and store them.
CREATE TRIGGER serviceEndpoint_begin BEFORE INSERT ON serviceEndpoint
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint
FOR EACH ROW EXECUTE FUNCTION stage_statement();
CREATE TRIGGER serviceEndpoint_end AFTER INSERT ON serviceEndpoint
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();

-- siteGroup -------------------------------------------------------------------------------------

CREATE FUNCTION siteGroup_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_sitegroup ORDER BY ctid LOOP
        PERFORM demand(r.siteName <> '', 'siteName', r.siteName, 'is not a site name');
        PERFORM demand(r.groupName <> '', 'groupName', r.groupName, 'is not a group name');
        PERFORM demand(r.groupType <> '', 'groupType', r.groupType, 'is not a group type');
        PERFORM demand(
            coalesce(r.weight, 0) >= 0, 'weight', CAST(r.weight AS text), 'is not a weight'
        );
        PERFORM demand_time('validFrom', r.validFrom);
        PERFORM demand_time('validTo', r.validTo, may_miss => true);
        PERFORM demand_time('timestamp', r.timestamp, may_miss => true);
    END LOOP;
    IF EXISTS (
        SELECT FROM pg_temp.staged_sitegroup AS s
        LEFT JOIN site_group AS g ON g.group_type = s.groupType AND g.name = s.groupName
        WHERE g.site_group_id IS NULL
    ) THEN
        PERFORM lock_names();
        INSERT INTO site_group (group_type, name)
        SELECT DISTINCT groupType, groupName FROM pg_temp.staged_sitegroup ORDER BY 1, 2
        ON CONFLICT (group_type, name) DO NOTHING;
    END IF;
    PERFORM prepare_statements('sitegroup', 'site_group_member');
    INSERT INTO pg_temp.new_site_group_member
    SELECT
        nextval('statement_number'),
        s.validFrom,
        date_trunc('second', coalesce(s.timestamp, s.receivedAt, now())),
        coalesce(s.receivedAt, now()),
        (SELECT x.site_id FROM site AS x WHERE x.name = s.siteName),
        (
            SELECT x.site_group_id FROM site_group AS x
            WHERE x.group_type = s.groupType AND x.name = s.groupName
        ),
        (
            SELECT x.publisher_id FROM publisher AS x
            WHERE x.identity = identity_or_operator(s.publisher)
        ),
        s.weight, false, s.validTo, CAST(NULL AS timestamptz), s.source,
        CASE WHEN s.source IS NULL THEN s.messageId END
    FROM (SELECT * FROM pg_temp.staged_sitegroup ORDER BY ctid) AS s;
    RETURN store_statements(
        'sitegroup', 'site_group_member',
        key => '{site_id, site_group_id, valid_from}',
        content => '{valid_to, weight}',
        begins => 'valid_from',
        ends => 'valid_to',
        facts => '{weight}'
    );
END
$$;
COMMENT ON FUNCTION siteGroup_load IS
    'Store the staged members of groups; returns how many were duplicates, which changed nothing.';

-- Prepare the staging table, stage the members of groups, and store them.
CREATE TRIGGER siteGroup_begin BEFORE INSERT ON siteGroup
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup
FOR EACH ROW EXECUTE FUNCTION stage_statement();
CREATE TRIGGER siteGroup_end AFTER INSERT ON siteGroup
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();

-- siteContact -----------------------------------------------------------------------------------

CREATE FUNCTION siteContact_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_sitecontact ORDER BY ctid LOOP
        PERFORM demand(r.siteName <> '', 'siteName', r.siteName, 'is not a site name');
        PERFORM demand(
            length(coalesce(r.contact, '')) <= 255,
            'contact', r.contact, 'is longer than 255 characters'
        );
        PERFORM demand_time('timestamp', r.timestamp, may_miss => true);
    END LOOP;
    PERFORM prepare_statements('sitecontact', 'site_contact');
    INSERT INTO pg_temp.new_site_contact
    SELECT
        nextval('statement_number'),
        date_trunc('second', coalesce(s.timestamp, s.receivedAt, now())),
        coalesce(s.receivedAt, now()),
        (SELECT x.site_id FROM site AS x WHERE x.name = s.siteName),
        (
            SELECT x.publisher_id FROM publisher AS x
            WHERE x.identity = identity_or_operator(s.publisher)
        ),
        false, CAST(NULL AS timestamptz), coalesce(s.contact, ''), s.source,
        CASE WHEN s.source IS NULL THEN s.messageId END
    FROM (SELECT * FROM pg_temp.staged_sitecontact ORDER BY ctid) AS s;
    RETURN store_statements(
        'sitecontact', 'site_contact',
        key => '{site_id}', content => '{contact}', begins => '', ends => '', facts => '{}'
    );
END
$$;
COMMENT ON FUNCTION siteContact_load IS
    'Store the staged contacts; returns how many were duplicates, which changed nothing.';

-- Prepare the staging table, stage the contacts of sites, and store them.
CREATE TRIGGER siteContact_begin BEFORE INSERT ON siteContact
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
CREATE TRIGGER siteContact_insert INSTEAD OF INSERT ON siteContact
FOR EACH ROW EXECUTE FUNCTION stage_statement();
CREATE TRIGGER siteContact_end AFTER INSERT ON siteContact
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();

-- downtime --------------------------------------------------------------------------------------

CREATE FUNCTION downtime_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_downtime ORDER BY ctid LOOP
        PERFORM demand(
            concat(r.siteName, r.hostName) <> '', 'hostName', r.hostName,
            'is not a host name, and siteName is missing'
        );
        PERFORM demand_time('startTime', r.startTime);
        PERFORM demand_time('endTime', r.endTime);
        PERFORM demand(
            r.endTime >= r.startTime,
            'endTime', CAST(r.endTime AS text), 'is before startTime'
        );
        PERFORM demand(
            r.classification <> '', 'classification', r.classification,
            'is not a classification'
        );
        PERFORM demand(r.severity <> '', 'severity', r.severity, 'is not a severity');
        PERFORM demand_time('timestamp', r.timestamp, may_miss => true);
    END LOOP;
    PERFORM make_names('host', array_agg(coalesce(lower(hostName), '')))
    FROM pg_temp.staged_downtime;
    PERFORM make_names('service_flavour', array_agg(coalesce(serviceFlavour, '')))
    FROM pg_temp.staged_downtime;
    PERFORM prepare_statements('downtime', 'announced_downtime');
    INSERT INTO pg_temp.new_announced_downtime
    SELECT
        nextval('statement_number'),
        CASE
            WHEN coalesce(s.downtimeId, '') <> '' THEN 0
            ELSE CAST(extract(epoch FROM s.startTime) AS bigint)
        END,
        s.startTime,
        s.endTime,
        date_trunc('second', coalesce(s.timestamp, s.receivedAt, now())),
        coalesce(
            CASE WHEN coalesce(s.source, '') NOT IN ('hand', 'file') THEN s.announcedAt END,
            s.receivedAt, now()
        ),
        coalesce(s.receivedAt, now()),
        (SELECT x.site_id FROM site AS x WHERE x.name = coalesce(s.siteName, '')),
        (SELECT x.host_id FROM host AS x WHERE x.name = coalesce(lower(s.hostName), '')),
        (
            SELECT x.service_flavour_id FROM service_flavour AS x
            WHERE x.name = coalesce(s.serviceFlavour, '')
        ),
        (
            SELECT x.publisher_id FROM publisher AS x
            WHERE x.identity = identity_or_operator(s.publisher)
        ),
        false, CAST(NULL AS timestamptz), coalesce(s.downtimeId, ''),
        s.classification, s.severity, s.description, s.source,
        CASE WHEN s.source IS NULL THEN s.messageId END
    FROM (SELECT * FROM pg_temp.staged_downtime ORDER BY ctid) AS s;
    RETURN store_statements(
        'downtime', 'announced_downtime',
        key => '{site_id, host_id, service_flavour_id, start_key, downtime_id}',
        content => '{start_time, end_time, classification, severity, description}',
        begins => 'start_time',
        ends => 'end_time',
        facts => '{classification, severity, description}'
    );
END
$$;
COMMENT ON FUNCTION downtime_load IS
    'Store the staged downtimes; returns how many were duplicates, which changed nothing.';

-- Prepare the staging table, stage announced downtimes, and store them.
CREATE TRIGGER downtime_begin BEFORE INSERT ON downtime
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime
FOR EACH ROW EXECUTE FUNCTION stage_statement();
CREATE TRIGGER downtime_end AFTER INSERT ON downtime
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
