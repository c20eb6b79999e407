-- Inserts into the class views: stage the rows, check them, look up or create their names, merge.
--
-- The INSTEAD OF trigger of a view stages the rows of a statement one by one, and <class>_load()
-- stores all of them when the statement ends: a set costs a fraction of as many single rows. A
-- loader may bypass the trigger: open_staging(), COPY into the staging table, <class>_load().
--
-- Redelivery is normal: a broker re-sends each message that was not acked. So a second copy changes
-- nothing.
--
-- One transaction at a time creates names and partitions, and holds a lock until it ends:
-- two that created the same names in a different order would deadlock on the unique indexes.
-- Existing names and partitions need no lock.
--
-- These functions run with the rights of their owner: a loader only needs INSERT on the view.

-- Helpers ---------------------------------------------------------------------------------------

CREATE FUNCTION demand(fulfilled boolean, attribute text, value text, problem text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF fulfilled IS NOT TRUE THEN
        RAISE EXCEPTION '%: % %', attribute, quote_nullable(value), problem
            USING ERRCODE = 'check_violation', COLUMN = attribute;
    END IF;
END
$$;
COMMENT ON FUNCTION demand IS
    'Reject the row unless the condition is fulfilled, naming the attribute and its value.';

CREATE FUNCTION is_time(value timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT isfinite(value) AND value = CAST(value AS timestamptz(0))
$$;
COMMENT ON FUNCTION is_time IS 'Whether a time is finite and in whole seconds.';

CREATE FUNCTION demand_time(
    attribute text, value timestamptz, may_miss boolean DEFAULT false
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT coalesce(is_time(value), may_miss) THEN
        PERFORM demand(false, attribute, CAST(value AS text), 'is not a time');
    END IF;
END
$$;
COMMENT ON FUNCTION demand_time IS 'Reject the row unless the value is a time, or may be missing.';

CREATE FUNCTION lock_names() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    -- A lock that only conflicts with itself, on a table that never changes. Anybody who can connect
    -- could take an advisory lock.
    BEGIN
        LOCK TABLE metric_status IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
        RETURN;
    EXCEPTION WHEN lock_not_available THEN
        IF current_setting('sam.stored', true) = 'yes' THEN
            RAISE EXCEPTION 'another transaction is creating names; retry this transaction'
                USING ERRCODE = 'serialization_failure';
        END IF;
    END;
    LOCK TABLE metric_status IN SHARE UPDATE EXCLUSIVE MODE;
END
$$;
COMMENT ON FUNCTION lock_names IS
    'Wait to be the one transaction that creates names. A transaction that has already stored '
    'something fails instead of waiting, because others may be waiting for its rows.';

CREATE FUNCTION make_names(kind text, wanted text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    new_names text[];
BEGIN
    -- A sub-query instead of a join uses the index regardless of the statistics.
    EXECUTE format(
        'SELECT array_agg(DISTINCT w.name ORDER BY w.name) FROM unnest($1) AS w (name)
        WHERE (SELECT k.name FROM %I AS k WHERE k.name = w.name COLLATE "C") IS NULL', kind
    ) INTO new_names USING wanted;
    IF new_names IS NOT NULL THEN
        PERFORM lock_names();
        EXECUTE format(
            'INSERT INTO %I (name) SELECT unnest($1) ON CONFLICT (name) DO NOTHING', kind
        ) USING new_names;
    END IF;
END
$$;
COMMENT ON FUNCTION make_names IS 'Create the names that are missing from the table of this kind.';

CREATE FUNCTION make_publishers(identities text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    new_identities text[];
BEGIN
    SELECT array_agg(DISTINCT w.identity ORDER BY w.identity) INTO new_identities
    FROM unnest(identities) AS w (identity)
    WHERE (
        SELECT p.publisher_id FROM publisher AS p WHERE p.identity = w.identity COLLATE "C"
    ) IS NULL;
    IF new_identities IS NOT NULL THEN
        PERFORM lock_names();
        INSERT INTO publisher (identity, name)
        SELECT i, i FROM unnest(new_identities) AS i
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
COMMENT ON FUNCTION make_publishers IS 'Create the publishers that are missing.';

CREATE FUNCTION name_publishers(identities text[], names text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM make_publishers(identities);
    UPDATE publisher AS p SET name = w.name
    FROM unnest(identities, names) AS w (identity, name)
    WHERE p.identity = w.identity COLLATE "C" AND p.name <> w.name;
END
$$;
COMMENT ON FUNCTION name_publishers IS
    'Store the names that the policy has for these identities, and create missing publishers.';

CREATE FUNCTION identity_or_operator(identity text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce(NULLIF(identity, ''), 'operator:' || session_user)
$$;
COMMENT ON FUNCTION identity_or_operator IS
    'The identity that a loader has given, or else the login that typed the row.';

CREATE FUNCTION make_endpoints(host_names text[], flavours text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    new_hosts integer[];
    new_flavours integer[];
BEGIN
    PERFORM make_names('host', host_names);
    PERFORM make_names('service_flavour', flavours);
    SELECT array_agg(h ORDER BY h, f), array_agg(f ORDER BY h, f) INTO new_hosts, new_flavours
    FROM (
        SELECT DISTINCT
            (SELECT x.host_id FROM host AS x WHERE x.name = w.host COLLATE "C") AS h,
            (SELECT x.service_flavour_id FROM service_flavour AS x
                WHERE x.name = w.flavour COLLATE "C") AS f
        FROM unnest(host_names, flavours) AS w (host, flavour)
    ) AS wanted
    WHERE (
        SELECT e.endpoint_id FROM endpoint AS e WHERE e.host_id = h AND e.service_flavour_id = f
    ) IS NULL;
    IF new_hosts IS NOT NULL THEN
        PERFORM lock_names();
        INSERT INTO endpoint (host_id, service_flavour_id)
        SELECT * FROM unnest(new_hosts, new_flavours)
        ON CONFLICT (host_id, service_flavour_id) DO NOTHING;
    END IF;
END
$$;
COMMENT ON FUNCTION make_endpoints IS
    'Create the missing endpoints, and the names of their hosts and service flavours.';

CREATE FUNCTION has_relation(name text) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    -- Not to_regclass(): its cache may lack relations that others have just committed.
    SELECT EXISTS (
        SELECT FROM pg_class AS c
        WHERE c.relname = name AND c.relnamespace = CAST(current_schema() AS regnamespace)
    )
$$;
COMMENT ON FUNCTION has_relation IS
    'Whether a relation of that name exists, committed or created by this transaction.';

CREATE FUNCTION make_partitions(days date[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    day date;
    parent text;
    partition text;
    created integer := 0;
BEGIN
    -- Each new day costs locks, for which all databases of a server share the room.
    IF cardinality(days) > 50 AND NOT pg_has_role(session_user, current_user, 'MEMBER') THEN
        RAISE EXCEPTION '% days at once, the limit is 50', cardinality(days)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    FOR day, parent IN
        SELECT d, p
        FROM (SELECT DISTINCT unnest(days) AS d) AS wanted
        CROSS JOIN (VALUES ('metric_result'), ('metric_result_detail')) AS parents (p)
        ORDER BY d, p
    LOOP
        partition := parent || to_char(day, '_YYYYMMDD');
        CONTINUE WHEN has_relation(partition);
        PERFORM lock_names();
        CONTINUE WHEN has_relation(partition);  -- created while we waited
        -- Created first and then attached: sessions that use other days need not wait.
        EXECUTE format(
            'CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)',
            partition, parent
        );
        EXECUTE format(
            'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
            parent, partition, day || ' 00:00:00Z', day + 1 || ' 00:00:00Z'
        );
        created := created + 1;
    END LOOP;
    RETURN created;
END
$$;
COMMENT ON FUNCTION make_partitions IS
    'Create the missing partitions of these UTC days; returns how many were created.';

CREATE FUNCTION make_temporary(name text, definition text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    table_owner regrole;
BEGIN
    SELECT relowner INTO table_owner FROM pg_class
    WHERE oid = to_regclass('pg_temp.' || quote_ident(name));
    IF table_owner IS NULL THEN
        EXECUTE format('CREATE TEMPORARY TABLE %I (%s) ON COMMIT DELETE ROWS', name, definition);
    ELSIF table_owner <> CAST(quote_ident(current_user) AS regrole) THEN
        -- Its triggers would run with our rights.
        RAISE EXCEPTION 'temporary table % belongs to %', name, table_owner
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN table_owner IS NULL;
END
$$;
COMMENT ON FUNCTION make_temporary IS
    'Create a temporary table unless it exists; returns whether it was created.';

-- Staging ---------------------------------------------------------------------------------------

CREATE FUNCTION open_staging(class text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    staging CONSTANT text := 'staged_' || class;
    done CONSTANT text := 'sam.stored_' || class;
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_trigger
        WHERE tgrelid = CAST(quote_ident(class) AS regclass)
            AND tgname = class || '_insert'
            AND tgenabled <> 'D'
    ) THEN
        RAISE EXCEPTION 'view % has no trigger %_insert', class, class
            USING ERRCODE = 'undefined_object';
    END IF;
    IF NOT has_table_privilege(session_user, quote_ident(class), 'INSERT') THEN
        RAISE EXCEPTION 'permission denied for view %', class
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF make_temporary(staging, CASE class
        WHEN 'metricoutput' THEN
            'names text COLLATE "C", gatheredAt text COLLATE "C",
            monitoringHost text COLLATE "C", metricStatus text, timestamp timestamptz,
            summaryData text, performanceData text, detailsData text, messageId text,
            receivedAt timestamptz'
        ELSE 'LIKE ' || quote_ident(class)
    END) THEN
        EXECUTE format('GRANT INSERT ON pg_temp.%I TO PUBLIC', staging);  -- only of this session
    ELSIF current_setting(done, true) = 'yes' THEN
        EXECUTE format('DELETE FROM pg_temp.%I', staging);
        PERFORM set_config(done, 'no', true);
    END IF;
END
$$;
COMMENT ON FUNCTION open_staging IS
    'Create this session''s table pg_temp.staged_<class>, or delete rows from it that are already '
    'stored. Requires INSERT on the view. The table has the columns of the view, except that for '
    'metricOutput the names are joined as by source_names().';

CREATE FUNCTION close_staging(class text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('sam.stored_' || class, 'yes', true), set_config('sam.stored', 'yes', true);
END
$$;
COMMENT ON FUNCTION close_staging IS
    'Record, for open_staging() and lock_names(), that the staged rows are stored.';

CREATE FUNCTION note_duplicates(class text, arrivals bigint[]) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('sam.duplicates_' || class, CAST(arrivals AS text), true);
    RETURN cardinality(arrivals);
END
$$;
COMMENT ON FUNCTION note_duplicates IS
    'Record, for a loader that informs the senders, which of the staged rows, counted from 1, '
    'changed nothing; returns how many.';

CREATE FUNCTION stage_begin() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM open_staging(TG_TABLE_NAME);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION stage_begin IS
    'Trigger function: prepares the staging table before an INSERT into a class view.';

CREATE FUNCTION stage_end() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    is_small boolean;
BEGIN
    EXECUTE format('SELECT %I()', TG_TABLE_NAME || '_load');
    EXECUTE format('SELECT count(*) <= 100 FROM pg_temp.%I', 'staged_' || TG_TABLE_NAME)
        INTO is_small;
    IF is_small THEN  -- typed by a person, who expects to see it; loaders fold many batches at once
        PERFORM fold_news();
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION stage_end IS
    'Trigger function: stores the staged rows at the end of an INSERT.';
