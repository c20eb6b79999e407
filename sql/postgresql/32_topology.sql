-- Inserts into serviceEndpoint, siteGroup, siteContact and downtime (see 30_staging.sql).

-- serviceEndpoint: the first row is kept, with the earliest validTo of all ----------------------

CREATE FUNCTION serviceEndpoint_staged() RETURNS TABLE (
    site_id integer,
    endpoint_id integer,
    vo_id integer,
    valid_from timestamptz,
    valid_to timestamptz,
    service_uri text,
    production text,
    monitored text,
    publisher_id integer, message_id text, received_at timestamptz,
    arrival bigint, said jsonb
)
LANGUAGE plpgsql STABLE SET timezone = 'UTC' AS $$
BEGIN
    RETURN QUERY
    SELECT
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
        s.validFrom, s.validTo, s.serviceURI, s.production, s.monitored,
        (
            SELECT x.publisher_id FROM publisher AS x
            WHERE x.identity = identity_or_operator(s.publisher)
        ),
        s.messageId, coalesce(s.receivedAt, now()), row_number() OVER (ORDER BY s.ctid),
        to_jsonb(s)
    FROM pg_temp.staged_serviceendpoint AS s;
END
$$;
COMMENT ON FUNCTION serviceEndpoint_staged IS
    'The staged rows with the ids of their names, in the columns of the table of the class.';

CREATE FUNCTION serviceEndpoint_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    r record;
    staged_rows bigint;
    new_rows tid[];
    stored bigint[] := '{}';
    changed bigint[] := '{}';
    duplicates integer := 0;
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_serviceendpoint ORDER BY ctid LOOP
        PERFORM demand(r.siteName <> '', 'siteName', r.siteName, 'is not a site name');
        PERFORM demand(r.hostName <> '', 'hostName', r.hostName, 'is not a host name');
        PERFORM demand(
            r.serviceFlavour <> '', 'serviceFlavour', r.serviceFlavour,
            'is not a service flavour'
        );
        PERFORM demand(
            is_time(r.validFrom), 'validFrom', CAST(r.validFrom AS text), 'is not a time'
        );
        PERFORM demand(
            r.validTo IS NULL OR is_time(r.validTo),
            'validTo', CAST(r.validTo AS text), 'is not a time'
        );
    END LOOP;
    PERFORM make_names('site', array_agg(siteName)) FROM pg_temp.staged_serviceendpoint;
    PERFORM make_names('vo', array_agg(coalesce(voName, ''))) FROM pg_temp.staged_serviceendpoint;
    PERFORM make_publishers(array_agg(identity_or_operator(publisher)))
    FROM pg_temp.staged_serviceendpoint;
    PERFORM make_endpoints(array_agg(lower(hostName)), array_agg(serviceFlavour))
    FROM pg_temp.staged_serviceendpoint;

    WITH new AS (
        INSERT INTO endpoint_membership (
            site_id, endpoint_id, vo_id, valid_from, valid_to, service_uri, production, monitored,
            message_id, publisher_id, received_at
        )
        SELECT DISTINCT ON (site_id, endpoint_id, vo_id, valid_from)
            site_id, endpoint_id, vo_id, valid_from, valid_to, service_uri, production, monitored,
            message_id, publisher_id, received_at
        FROM serviceEndpoint_staged()
        ORDER BY
            site_id, endpoint_id, vo_id, valid_from,
            arrival
        ON CONFLICT (site_id, endpoint_id, vo_id, valid_from) DO NOTHING
        RETURNING ctid
    )
    SELECT coalesce(array_agg(new.ctid), '{}') INTO new_rows FROM new;

    SELECT count(*) INTO staged_rows FROM pg_temp.staged_serviceendpoint;
    IF cardinality(new_rows) < staged_rows THEN
        IF new_rows <> '{}' THEN
            stored := ARRAY(
                SELECT DISTINCT ON (k.ctid) s.arrival
                FROM serviceEndpoint_staged() AS s
                JOIN endpoint_membership AS k USING (site_id, endpoint_id, vo_id, valid_from)
                WHERE k.ctid = ANY (new_rows)
                ORDER BY k.ctid, s.arrival
            );
        END IF;
        PERFORM open_statements();
        INSERT INTO pg_temp.sam_statements
        SELECT
            CAST(
                json_build_array(
                    s.site_id, s.endpoint_id, s.vo_id, CAST(extract(epoch FROM s.valid_from) AS
                    bigint)
                ) AS text
            ),
            said.publisher_id, said.message_id, said.received_at, claim_record(said.view_row),
            said.arrival
        FROM serviceEndpoint_staged() AS s
        CROSS JOIN LATERAL (
            SELECT * FROM endpoint_membership AS k
            WHERE k.site_id = s.site_id
                AND k.endpoint_id = s.endpoint_id
                AND k.vo_id = s.vo_id
                AND k.valid_from = s.valid_from
            LIMIT 1  -- uses the index regardless of the statistics
            FOR UPDATE
        ) AS k
        CROSS JOIN LATERAL (
            VALUES
                (k.publisher_id, k.message_id, k.received_at, s.said || jsonb_build_object(
                    'validto', k.valid_to, 'serviceuri', k.service_uri, 'production',
                    k.production, 'monitored', k.monitored
                ), 0),
                (s.publisher_id, s.message_id, s.received_at, s.said, s.arrival)
        ) AS said (publisher_id, message_id, received_at, view_row, arrival)
        WHERE (
                k.valid_to, k.service_uri, k.production, k.monitored, k.message_id,
                k.publisher_id
            ) IS DISTINCT FROM (
                s.valid_to, s.service_uri, s.production, s.monitored, s.message_id,
                s.publisher_id
            );
        IF FOUND THEN
            PERFORM keep_claims('serviceEndpoint');
            WITH changed AS (
                UPDATE endpoint_membership AS k SET valid_to = e.valid_to
                FROM (
                    SELECT DISTINCT ON (site_id, endpoint_id, vo_id, valid_from) *
                    FROM serviceEndpoint_staged()
                    ORDER BY site_id, endpoint_id, vo_id, valid_from, valid_to, arrival
                ) AS e
                WHERE (k.site_id, k.endpoint_id, k.vo_id, k.valid_from)
                        = (e.site_id, e.endpoint_id, e.vo_id, e.valid_from)
                    AND e.valid_to < coalesce(k.valid_to, 'infinity')
                RETURNING e.arrival
            )
            SELECT coalesce(array_agg(arrival), '{}') INTO changed FROM changed;
        END IF;
        duplicates := note_duplicates('serviceendpoint', ARRAY(
            SELECT generate_series(1, staged_rows) EXCEPT SELECT unnest(stored || changed)
        ));
    END IF;
    PERFORM close_staging('serviceendpoint');
    RETURN duplicates;
END
$$;
COMMENT ON FUNCTION serviceEndpoint_load IS
    'Store the staged endpoints; returns how many were duplicates, which changed nothing.';

CREATE FUNCTION serviceEndpoint_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO pg_temp.staged_serviceendpoint VALUES (NEW.*);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION serviceEndpoint_stage IS 'Trigger function: stages an endpoint of a site.';

CREATE TRIGGER serviceEndpoint_begin BEFORE INSERT ON serviceEndpoint
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER serviceEndpoint_begin ON serviceEndpoint IS 'Prepares the staging table.';
CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint
FOR EACH ROW EXECUTE FUNCTION serviceEndpoint_stage();
COMMENT ON TRIGGER serviceEndpoint_insert ON serviceEndpoint IS 'Stages an endpoint of a site.';
CREATE TRIGGER serviceEndpoint_end AFTER INSERT ON serviceEndpoint
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER serviceEndpoint_end ON serviceEndpoint IS 'Stores the staged endpoints.';

-- siteGroup: like serviceEndpoint ---------------------------------------------------------------

CREATE FUNCTION siteGroup_staged() RETURNS TABLE (
    site_id integer,
    site_group_id integer,
    valid_from timestamptz,
    valid_to timestamptz,
    weight integer,
    publisher_id integer, message_id text, received_at timestamptz,
    arrival bigint, said jsonb
)
LANGUAGE plpgsql STABLE SET timezone = 'UTC' AS $$
BEGIN
    RETURN QUERY
    SELECT
        (SELECT x.site_id FROM site AS x WHERE x.name = s.siteName),
        (
            SELECT x.site_group_id FROM site_group AS x
            WHERE x.group_type = s.groupType AND x.name = s.groupName
        ),
        s.validFrom, s.validTo, s.weight,
        (
            SELECT x.publisher_id FROM publisher AS x
            WHERE x.identity = identity_or_operator(s.publisher)
        ),
        s.messageId, coalesce(s.receivedAt, now()), row_number() OVER (ORDER BY s.ctid),
        to_jsonb(s)
    FROM pg_temp.staged_sitegroup AS s;
END
$$;
COMMENT ON FUNCTION siteGroup_staged IS
    'The staged rows with the ids of their names, in the columns of the table of the class.';

CREATE FUNCTION siteGroup_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    r record;
    staged_rows bigint;
    new_rows tid[];
    stored bigint[] := '{}';
    changed bigint[] := '{}';
    duplicates integer := 0;
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_sitegroup ORDER BY ctid LOOP
        PERFORM demand(r.siteName <> '', 'siteName', r.siteName, 'is not a site name');
        PERFORM demand(r.groupName <> '', 'groupName', r.groupName, 'is not a group name');
        PERFORM demand(r.groupType <> '', 'groupType', r.groupType, 'is not a group type');
        PERFORM demand(
            coalesce(r.weight, 0) >= 0, 'weight', CAST(r.weight AS text), 'is not a weight'
        );
        PERFORM demand(
            is_time(r.validFrom), 'validFrom', CAST(r.validFrom AS text), 'is not a time'
        );
        PERFORM demand(
            r.validTo IS NULL OR is_time(r.validTo),
            'validTo', CAST(r.validTo AS text), 'is not a time'
        );
    END LOOP;
    PERFORM make_names('site', array_agg(siteName)) FROM pg_temp.staged_sitegroup;
    PERFORM make_publishers(array_agg(identity_or_operator(publisher)))
    FROM pg_temp.staged_sitegroup;
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

    WITH new AS (
        INSERT INTO site_group_member (
            site_id, site_group_id, valid_from, valid_to, weight, message_id, publisher_id,
            received_at
        )
        SELECT DISTINCT ON (site_id, site_group_id, valid_from)
            site_id, site_group_id, valid_from, valid_to, weight, message_id, publisher_id,
            received_at
        FROM siteGroup_staged()
        ORDER BY
            site_id, site_group_id, valid_from,
            arrival
        ON CONFLICT (site_id, site_group_id, valid_from) DO NOTHING
        RETURNING ctid
    )
    SELECT coalesce(array_agg(new.ctid), '{}') INTO new_rows FROM new;

    SELECT count(*) INTO staged_rows FROM pg_temp.staged_sitegroup;
    IF cardinality(new_rows) < staged_rows THEN
        IF new_rows <> '{}' THEN
            stored := ARRAY(
                SELECT DISTINCT ON (k.ctid) s.arrival
                FROM siteGroup_staged() AS s
                JOIN site_group_member AS k USING (site_id, site_group_id, valid_from)
                WHERE k.ctid = ANY (new_rows)
                ORDER BY k.ctid, s.arrival
            );
        END IF;
        PERFORM open_statements();
        INSERT INTO pg_temp.sam_statements
        SELECT
            CAST(
                json_build_array(
                    s.site_id, s.site_group_id, CAST(extract(epoch FROM s.valid_from) AS bigint)
                ) AS text
            ),
            said.publisher_id, said.message_id, said.received_at, claim_record(said.view_row),
            said.arrival
        FROM siteGroup_staged() AS s
        CROSS JOIN LATERAL (
            SELECT * FROM site_group_member AS k
            WHERE k.site_id = s.site_id
                AND k.site_group_id = s.site_group_id
                AND k.valid_from = s.valid_from
            LIMIT 1  -- uses the index regardless of the statistics
            FOR UPDATE
        ) AS k
        CROSS JOIN LATERAL (
            VALUES
                (k.publisher_id, k.message_id, k.received_at, s.said || jsonb_build_object(
                    'validto', k.valid_to, 'weight', k.weight
                ), 0),
                (s.publisher_id, s.message_id, s.received_at, s.said, s.arrival)
        ) AS said (publisher_id, message_id, received_at, view_row, arrival)
        WHERE (
                k.valid_to, k.weight, k.message_id, k.publisher_id
            ) IS DISTINCT FROM (
                s.valid_to, s.weight, s.message_id, s.publisher_id
            );
        IF FOUND THEN
            PERFORM keep_claims('siteGroup');
            WITH changed AS (
                UPDATE site_group_member AS k SET valid_to = e.valid_to
                FROM (
                    SELECT DISTINCT ON (site_id, site_group_id, valid_from) *
                    FROM siteGroup_staged()
                    ORDER BY site_id, site_group_id, valid_from, valid_to, arrival
                ) AS e
                WHERE (k.site_id, k.site_group_id, k.valid_from)
                        = (e.site_id, e.site_group_id, e.valid_from)
                    AND e.valid_to < coalesce(k.valid_to, 'infinity')
                RETURNING e.arrival
            )
            SELECT coalesce(array_agg(arrival), '{}') INTO changed FROM changed;
        END IF;
        duplicates := note_duplicates('sitegroup', ARRAY(
            SELECT generate_series(1, staged_rows) EXCEPT SELECT unnest(stored || changed)
        ));
    END IF;
    PERFORM close_staging('sitegroup');
    RETURN duplicates;
END
$$;
COMMENT ON FUNCTION siteGroup_load IS
    'Store the staged members of groups; returns how many were duplicates, which changed nothing.';

CREATE FUNCTION siteGroup_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO pg_temp.staged_sitegroup VALUES (NEW.*);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION siteGroup_stage IS 'Trigger function: stages a member of a group.';

CREATE TRIGGER siteGroup_begin BEFORE INSERT ON siteGroup
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER siteGroup_begin ON siteGroup IS 'Prepares the staging table.';
CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup
FOR EACH ROW EXECUTE FUNCTION siteGroup_stage();
COMMENT ON TRIGGER siteGroup_insert ON siteGroup IS 'Stages a member of a group.';
CREATE TRIGGER siteGroup_end AFTER INSERT ON siteGroup
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER siteGroup_end ON siteGroup IS 'Stores the staged members of groups.';

-- siteContact: the newest announcement wins, and of several of one time the greatest text --------

CREATE FUNCTION siteContact_staged() RETURNS TABLE (
    site_id integer,
    contact text,
    announced_at timestamptz,
    publisher_id integer, message_id text, received_at timestamptz,
    arrival bigint, said jsonb
)
LANGUAGE plpgsql STABLE SET timezone = 'UTC' AS $$
BEGIN
    RETURN QUERY
    SELECT
        (SELECT x.site_id FROM site AS x WHERE x.name = s.siteName),
        coalesce(s.contact, ''), s.timestamp,
        (
            SELECT x.publisher_id FROM publisher AS x
            WHERE x.identity = identity_or_operator(s.publisher)
        ),
        s.messageId, coalesce(s.receivedAt, now()), row_number() OVER (ORDER BY s.ctid),
        to_jsonb(s)
    FROM pg_temp.staged_sitecontact AS s;
END
$$;
COMMENT ON FUNCTION siteContact_staged IS
    'The staged rows with the ids of their names, in the columns of the table of the class.';

CREATE FUNCTION siteContact_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    r record;
    staged_rows bigint;
    new_rows tid[];
    stored bigint[] := '{}';
    changed bigint[] := '{}';
    duplicates integer := 0;
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_sitecontact ORDER BY ctid LOOP
        PERFORM demand(r.siteName <> '', 'siteName', r.siteName, 'is not a site name');
        PERFORM demand(
            length(coalesce(r.contact, '')) <= 255,
            'contact', r.contact, 'is longer than 255 characters'
        );
        PERFORM demand(
            is_time(r.timestamp), 'timestamp', CAST(r.timestamp AS text), 'is not a time'
        );
    END LOOP;
    PERFORM make_names('site', array_agg(siteName)) FROM pg_temp.staged_sitecontact;
    PERFORM make_publishers(array_agg(identity_or_operator(publisher)))
    FROM pg_temp.staged_sitecontact;

    WITH new AS (
        INSERT INTO site_contact (
            site_id, contact, announced_at, message_id, publisher_id, received_at
        )
        SELECT DISTINCT ON (site_id)
            site_id, contact, announced_at, message_id, publisher_id, received_at
        FROM siteContact_staged()
        ORDER BY
            site_id,
            announced_at DESC, contact COLLATE "C" DESC, arrival
        ON CONFLICT (site_id) DO NOTHING
        RETURNING ctid
    )
    SELECT coalesce(array_agg(new.ctid), '{}') INTO new_rows FROM new;

    SELECT count(*) INTO staged_rows FROM pg_temp.staged_sitecontact;
    IF cardinality(new_rows) < staged_rows THEN
        IF new_rows <> '{}' THEN
            stored := ARRAY(
                SELECT DISTINCT ON (k.ctid) s.arrival
                FROM siteContact_staged() AS s
                JOIN site_contact AS k USING (site_id)
                WHERE k.ctid = ANY (new_rows)
                ORDER BY k.ctid, s.announced_at DESC, s.contact COLLATE "C" DESC, s.arrival
            );
        END IF;
        PERFORM open_statements();
        INSERT INTO pg_temp.sam_statements
        SELECT
            CAST(
                json_build_array(
                    s.site_id
                ) AS text
            ),
            said.publisher_id, said.message_id, said.received_at, claim_record(said.view_row),
            said.arrival
        FROM siteContact_staged() AS s
        CROSS JOIN LATERAL (
            SELECT * FROM site_contact AS k
            WHERE k.site_id = s.site_id
            LIMIT 1  -- uses the index regardless of the statistics
            FOR UPDATE
        ) AS k
        CROSS JOIN LATERAL (
            VALUES
                (k.publisher_id, k.message_id, k.received_at, s.said || jsonb_build_object(
                    'contact', k.contact, 'timestamp', k.announced_at
                ), 0),
                (s.publisher_id, s.message_id, s.received_at, s.said, s.arrival)
        ) AS said (publisher_id, message_id, received_at, view_row, arrival)
        WHERE (
                k.contact, k.announced_at, k.message_id, k.publisher_id
            ) IS DISTINCT FROM (
                s.contact, s.announced_at, s.message_id, s.publisher_id
            );
        IF FOUND THEN
            PERFORM keep_claims('siteContact');
            WITH changed AS (
                UPDATE site_contact AS k SET
                    contact = n.contact,
                    announced_at = n.announced_at,
                    message_id = n.message_id,
                    publisher_id = n.publisher_id,
                    received_at = n.received_at
                FROM (
                    SELECT DISTINCT ON (site_id) * FROM siteContact_staged()
                    ORDER BY site_id, announced_at DESC, contact COLLATE "C" DESC, arrival
                ) AS n
                WHERE k.site_id = n.site_id
                    AND (n.announced_at, n.contact COLLATE "C") > (k.announced_at, k.contact)
                RETURNING n.arrival
            )
            SELECT coalesce(array_agg(arrival), '{}') INTO changed FROM changed;
        END IF;
        duplicates := note_duplicates('sitecontact', ARRAY(
            SELECT generate_series(1, staged_rows) EXCEPT SELECT unnest(stored || changed)
        ));
    END IF;
    PERFORM close_staging('sitecontact');
    RETURN duplicates;
END
$$;
COMMENT ON FUNCTION siteContact_load IS
    'Store the staged contacts; returns how many were duplicates, which changed nothing.';

CREATE FUNCTION siteContact_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO pg_temp.staged_sitecontact VALUES (NEW.*);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION siteContact_stage IS 'Trigger function: stages the contact of a site.';

CREATE TRIGGER siteContact_begin BEFORE INSERT ON siteContact
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER siteContact_begin ON siteContact IS 'Prepares the staging table.';
CREATE TRIGGER siteContact_insert INSTEAD OF INSERT ON siteContact
FOR EACH ROW EXECUTE FUNCTION siteContact_stage();
COMMENT ON TRIGGER siteContact_insert ON siteContact IS 'Stages the contact of a site.';
CREATE TRIGGER siteContact_end AFTER INSERT ON siteContact
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER siteContact_end ON siteContact IS 'Stores the staged contacts.';

-- downtime: the newest announcement wins; without a timestamp one counts as the oldest ----------

CREATE FUNCTION downtime_staged() RETURNS TABLE (
    downtime_id text,
    site_id integer,
    host_id integer,
    service_flavour_id integer,
    start_key bigint,
    start_time timestamptz,
    end_time timestamptz,
    classification text,
    severity text,
    description text,
    announced_at timestamptz,
    publisher_id integer, message_id text, received_at timestamptz,
    arrival bigint, said jsonb
)
LANGUAGE plpgsql STABLE SET timezone = 'UTC' AS $$
BEGIN
    RETURN QUERY
    SELECT
        coalesce(s.downtimeId, ''),
        (SELECT x.site_id FROM site AS x WHERE x.name = coalesce(s.siteName, '')),
        (SELECT x.host_id FROM host AS x WHERE x.name = coalesce(lower(s.hostName), '')),
        (
            SELECT x.service_flavour_id FROM service_flavour AS x
            WHERE x.name = coalesce(s.serviceFlavour, '')
        ),
        CASE
            WHEN coalesce(s.downtimeId, '') <> '' THEN 0
            ELSE CAST(extract(epoch FROM s.startTime) AS bigint)
        END,
        s.startTime, s.endTime, s.classification, s.severity, s.description, s.timestamp,
        (
            SELECT x.publisher_id FROM publisher AS x
            WHERE x.identity = identity_or_operator(s.publisher)
        ),
        s.messageId, coalesce(s.receivedAt, now()), row_number() OVER (ORDER BY s.ctid),
        to_jsonb(s)
    FROM pg_temp.staged_downtime AS s;
END
$$;
COMMENT ON FUNCTION downtime_staged IS
    'The staged rows with the ids of their names, in the columns of the table of the class.';

CREATE FUNCTION downtime_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    r record;
    staged_rows bigint;
    new_rows tid[];
    stored bigint[] := '{}';
    changed bigint[] := '{}';
    duplicates integer := 0;
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_downtime ORDER BY ctid LOOP
        PERFORM demand(
            concat(r.siteName, r.hostName) <> '', 'hostName', r.hostName,
            'is not a host name, and siteName is missing'
        );
        PERFORM demand(
            is_time(r.startTime), 'startTime', CAST(r.startTime AS text), 'is not a time'
        );
        PERFORM demand(is_time(r.endTime), 'endTime', CAST(r.endTime AS text), 'is not a time');
        PERFORM demand(
            r.endTime >= r.startTime,
            'endTime', CAST(r.endTime AS text), 'is before startTime'
        );
        PERFORM demand(
            r.classification <> '', 'classification', r.classification,
            'is not a classification'
        );
        PERFORM demand(r.severity <> '', 'severity', r.severity, 'is not a severity');
        PERFORM demand(
            r.timestamp IS NULL OR is_time(r.timestamp),
            'timestamp', CAST(r.timestamp AS text), 'is not a time'
        );
    END LOOP;
    PERFORM make_names('site', array_agg(coalesce(siteName, ''))) FROM pg_temp.staged_downtime;
    PERFORM make_names('host', array_agg(coalesce(lower(hostName), '')))
    FROM pg_temp.staged_downtime;
    PERFORM make_names('service_flavour', array_agg(coalesce(serviceFlavour, '')))
    FROM pg_temp.staged_downtime;
    PERFORM make_publishers(array_agg(identity_or_operator(publisher)))
    FROM pg_temp.staged_downtime;

    WITH new AS (
        INSERT INTO announced_downtime (
            downtime_id, site_id, host_id, service_flavour_id, start_key, start_time, end_time,
            classification, severity, description, announced_at, message_id, publisher_id,
            received_at
        )
        SELECT DISTINCT ON (downtime_id, site_id, host_id, service_flavour_id, start_key)
            downtime_id, site_id, host_id, service_flavour_id, start_key, start_time, end_time,
            classification, severity, description, announced_at, message_id, publisher_id,
            received_at
        FROM downtime_staged()
        ORDER BY
            downtime_id, site_id, host_id, service_flavour_id, start_key,
            announced_at DESC NULLS LAST, arrival
        ON CONFLICT (downtime_id, site_id, host_id, service_flavour_id, start_key) DO NOTHING
        RETURNING ctid
    )
    SELECT coalesce(array_agg(new.ctid), '{}') INTO new_rows FROM new;

    SELECT count(*) INTO staged_rows FROM pg_temp.staged_downtime;
    IF cardinality(new_rows) < staged_rows THEN
        IF new_rows <> '{}' THEN
            stored := ARRAY(
                SELECT DISTINCT ON (k.ctid) s.arrival
                FROM downtime_staged() AS s
                JOIN announced_downtime AS k
                USING (downtime_id, site_id, host_id, service_flavour_id, start_key)
                WHERE k.ctid = ANY (new_rows)
                ORDER BY k.ctid, s.announced_at DESC NULLS LAST, s.arrival
            );
        END IF;
        PERFORM open_statements();
        INSERT INTO pg_temp.sam_statements
        SELECT
            CAST(
                json_build_array(
                    s.downtime_id, s.site_id, s.host_id, s.service_flavour_id, s.start_key
                ) AS text
            ),
            said.publisher_id, said.message_id, said.received_at, claim_record(said.view_row),
            said.arrival
        FROM downtime_staged() AS s
        CROSS JOIN LATERAL (
            SELECT * FROM announced_downtime AS k
            WHERE k.downtime_id = s.downtime_id
                AND k.site_id = s.site_id
                AND k.host_id = s.host_id
                AND k.service_flavour_id = s.service_flavour_id
                AND k.start_key = s.start_key
            LIMIT 1  -- uses the index regardless of the statistics
            FOR UPDATE
        ) AS k
        CROSS JOIN LATERAL (
            VALUES
                (k.publisher_id, k.message_id, k.received_at, s.said || jsonb_build_object(
                    'starttime', k.start_time, 'endtime', k.end_time, 'classification',
                    k.classification, 'severity', k.severity, 'description', k.description,
                    'timestamp', k.announced_at
                ), 0),
                (s.publisher_id, s.message_id, s.received_at, s.said, s.arrival)
        ) AS said (publisher_id, message_id, received_at, view_row, arrival)
        WHERE (
                k.start_time, k.end_time, k.classification, k.severity, k.description,
                k.announced_at, k.message_id, k.publisher_id
            ) IS DISTINCT FROM (
                s.start_time, s.end_time, s.classification, s.severity, s.description,
                s.announced_at, s.message_id, s.publisher_id
            );
        IF FOUND THEN
            PERFORM keep_claims('downtime');
            WITH changed AS (
                UPDATE announced_downtime AS k SET
                    start_time = n.start_time,
                    end_time = n.end_time,
                    classification = n.classification,
                    severity = n.severity,
                    description = n.description,
                    announced_at = n.announced_at,
                    message_id = n.message_id,
                    publisher_id = n.publisher_id,
                    received_at = n.received_at
                FROM (
                    SELECT DISTINCT ON (
                        downtime_id, site_id, host_id, service_flavour_id, start_key
                    ) *
                    FROM downtime_staged()
                    ORDER BY
                        downtime_id, site_id, host_id, service_flavour_id, start_key,
                        announced_at DESC NULLS LAST, arrival
                ) AS n
                WHERE (k.downtime_id, k.site_id, k.host_id, k.service_flavour_id, k.start_key)
                        = (n.downtime_id, n.site_id, n.host_id, n.service_flavour_id, n.start_key)
                    AND n.announced_at > coalesce(k.announced_at, '-infinity')
                RETURNING n.arrival
            )
            SELECT coalesce(array_agg(arrival), '{}') INTO changed FROM changed;
        END IF;
        duplicates := note_duplicates('downtime', ARRAY(
            SELECT generate_series(1, staged_rows) EXCEPT SELECT unnest(stored || changed)
        ));
    END IF;
    PERFORM close_staging('downtime');
    RETURN duplicates;
END
$$;
COMMENT ON FUNCTION downtime_load IS
    'Store the staged downtimes; returns how many were duplicates, which changed nothing.';

CREATE FUNCTION downtime_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO pg_temp.staged_downtime VALUES (NEW.*);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION downtime_stage IS 'Trigger function: stages an announced downtime.';

CREATE TRIGGER downtime_begin BEFORE INSERT ON downtime
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER downtime_begin ON downtime IS 'Prepares the staging table.';
CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime
FOR EACH ROW EXECUTE FUNCTION downtime_stage();
COMMENT ON TRIGGER downtime_insert ON downtime IS 'Stages an announced downtime.';
CREATE TRIGGER downtime_end AFTER INSERT ON downtime
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER downtime_end ON downtime IS 'Stores the staged downtimes.';
