-- Inserts into the class views: stage the rows, check them, look up or create their names, merge.
--
-- The INSTEAD OF trigger of a view stages the rows of a statement one by one, and <class>_load()
-- stores all of them when the statement ends: a set costs a fraction of as many single rows. A
-- loader may bypass the trigger: open_staging(), COPY into the staging table, <class>_load().
--
-- Redelivery is normal: a broker re-sends each message that was not acked. So a second copy changes
-- nothing, and the status, end or announcement that wins does not depend on the order of arrival.
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

CREATE FUNCTION lock_import() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    LOCK TABLE endpoint_membership IN SHARE UPDATE EXCLUSIVE MODE;
END
$$;
COMMENT ON FUNCTION lock_import IS
    'Wait to be the one transaction that imports a snapshot of the topology; loaders go on.';

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

-- Claims ----------------------------------------------------------------------------------------
-- Where a statement differs from the stored row, both are kept in the table claim before the row
-- changes. The row is locked from then on.

CREATE FUNCTION claim_record(view_row jsonb) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CAST(
        jsonb_object_agg(
            key,
            CASE key
                WHEN 'hostname' THEN to_jsonb(lower((value #>> '{}') COLLATE "C"))
                ELSE value
            END
        ) AS text
    )
    FROM jsonb_each(jsonb_strip_nulls(view_row))
    WHERE value <> '""' AND key NOT IN ('messageid', 'publisher', 'receivedat')
$$;
COMMENT ON FUNCTION claim_record IS
    'The columns of a row of a view as a claim has them: in normalised form, without absent ones '
    'and without facts about the message. Requires the time zone UTC.';

CREATE FUNCTION open_statements() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM make_temporary('sam_statements', '
        key text COLLATE "C", publisher_id integer, message_id text COLLATE "C",
        received_at timestamptz, record text COLLATE "C", arrival bigint
    ');
    DELETE FROM pg_temp.sam_statements;
END
$$;
COMMENT ON FUNCTION open_statements IS
    'Create, or empty, the table of statements for keep_claims().';

CREATE FUNCTION keep_claims(class_name text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO claim (class, key, publisher_id, message_id, received_at, record)
    SELECT class_name, key, publisher_id, message_id, received_at, record
    FROM (
        SELECT DISTINCT ON (key, publisher_id, message_id, record) *
        FROM pg_temp.sam_statements AS s
        WHERE NOT EXISTS (
            SELECT FROM claim AS c
            WHERE c.key = s.key
                AND c.class = class_name
                AND (
                    s.arrival = 0
                    OR (c.publisher_id, c.record) = (s.publisher_id, s.record)
                    AND c.message_id IS NOT DISTINCT FROM s.message_id
                )
        )
        ORDER BY key, publisher_id, message_id, record, arrival
    ) AS new
    ORDER BY arrival;

    DELETE FROM claim AS c
    WHERE c.key IN (SELECT s.key FROM pg_temp.sam_statements AS s)
        AND c.class = class_name
        AND EXISTS (
            SELECT FROM claim AS b
            WHERE (b.key, b.class, b.publisher_id, b.record)
                    = (c.key, c.class, c.publisher_id, c.record)
                AND b.claim_id < c.claim_id
        )
        AND EXISTS (
            SELECT FROM claim AS a
            WHERE (a.key, a.class, a.publisher_id, a.record)
                    = (c.key, c.class, c.publisher_id, c.record)
                AND a.claim_id > c.claim_id
        );
END
$$;
COMMENT ON FUNCTION keep_claims IS
    'Keep the statements in pg_temp.sam_statements as claims, unless they are known. The stored '
    'row has arrival 0, and is kept unless there are claims about it already. Of a publisher that '
    'repeats itself the first and the last one are kept.';

-- metricOutput: of two results for one moment the one with the worse status is kept -------------

CREATE FUNCTION source_names(
    host_name text, flavour text, metric_name text, vo text, fqan text, service_uri text,
    service_type text, site_name text, metric_type text, data_type text, role text,
    nagios_name text, encrypted text, publisher text
) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT concat_ws(
        E'\x1f', coalesce(lower(host_name COLLATE "C"), ''), coalesce(flavour, service_type, ''),
        coalesce(metric_name, ''), coalesce(vo, ''), coalesce(fqan, ''), coalesce(service_uri, ''),
        coalesce(service_type, ''), coalesce(site_name, ''), coalesce(metric_type, ''),
        coalesce(data_type, ''), coalesce(role, ''), coalesce(nagios_name, ''),
        coalesce(encrypted, ''), identity_or_operator(publisher)
    )
$$;
COMMENT ON FUNCTION source_names IS
    'The names that identify the source of a result, joined by unit separators.';

CREATE FUNCTION metricOutput_check() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    r record;
    parts text[];
BEGIN
    FOR r IN SELECT * FROM pg_temp.staged_metricoutput ORDER BY ctid LOOP
        parts := string_to_array(r.names, E'\x1f');
        PERFORM demand(
            cardinality(parts) = 14, 'hostName', parts[1],
            'or another name contains a unit separator'
        );
        PERFORM demand(parts[1] <> '', 'hostName', parts[1], 'is not a host name');
        PERFORM demand(parts[2] <> '', 'serviceFlavour', parts[2], 'is not a service flavour');
        PERFORM demand(parts[3] <> '', 'metricName', parts[3], 'is not a metric name');
        PERFORM demand(
            EXISTS (SELECT FROM metric_status WHERE name = r.metricStatus),
            'metricStatus', r.metricStatus, 'must be one of OK, WARNING, CRITICAL, UNKNOWN'
        );
        PERFORM demand(
            is_time(r.timestamp), 'timestamp', CAST(r.timestamp AS text), 'is not a time'
        );
    END LOOP;
END
$$;
COMMENT ON FUNCTION metricOutput_check IS 'Reject the first staged result that is not valid.';

CREATE FUNCTION metricOutput_names() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    new_gathered_at text[];
    new_monitoring_hosts text[];
BEGIN
    SELECT array_agg(gatheredAt), array_agg(monitoringHost)
    INTO new_gathered_at, new_monitoring_hosts
    FROM (
        SELECT DISTINCT gatheredAt, monitoringHost FROM pg_temp.staged_metricoutput ORDER BY 1, 2
    ) AS s
    WHERE (
        SELECT g.gatherer_id FROM gatherer AS g
        WHERE g.gathered_at = s.gatheredAt AND g.monitoring_host = s.monitoringHost
    ) IS NULL;
    IF new_gathered_at IS NOT NULL THEN
        PERFORM lock_names();
        INSERT INTO gatherer (gathered_at, monitoring_host)
        SELECT * FROM unnest(new_gathered_at, new_monitoring_hosts)
        ON CONFLICT (gathered_at, monitoring_host) DO NOTHING;
    END IF;

    PERFORM make_temporary('sam_sources', '
        parts text[] COLLATE "C", names text COLLATE "C",
        endpoint_id integer, metric_id integer, vo_id integer, fqan_id integer
    ');
    INSERT INTO pg_temp.sam_sources (parts, names)
    SELECT string_to_array(names, E'\x1f'), names
    FROM (SELECT DISTINCT names FROM pg_temp.staged_metricoutput) AS s
    WHERE (SELECT k.source_id FROM result_source AS k WHERE k.names = s.names) IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    PERFORM lock_names();
    PERFORM make_endpoints(array_agg(parts[1]), array_agg(parts[2])) FROM pg_temp.sam_sources;
    PERFORM make_names('metric', array_agg(parts[3])) FROM pg_temp.sam_sources;
    PERFORM make_names('vo', array_agg(parts[4])) FROM pg_temp.sam_sources;
    PERFORM make_names('fqan', array_agg(parts[5])) FROM pg_temp.sam_sources;
    PERFORM make_publishers(array_agg(parts[14])) FROM pg_temp.sam_sources;
    UPDATE pg_temp.sam_sources SET
        endpoint_id = (
            SELECT e.endpoint_id FROM endpoint AS e
            WHERE e.host_id = (SELECT h.host_id FROM host AS h WHERE h.name = parts[1])
                AND e.service_flavour_id = (
                    SELECT f.service_flavour_id FROM service_flavour AS f WHERE f.name = parts[2]
                )
        ),
        metric_id = (SELECT m.metric_id FROM metric AS m WHERE m.name = parts[3]),
        vo_id = (SELECT v.vo_id FROM vo AS v WHERE v.name = parts[4]),
        fqan_id = (SELECT q.fqan_id FROM fqan AS q WHERE q.name = parts[5]);

    INSERT INTO instance_status (endpoint_id, metric_id, vo_id)
    SELECT DISTINCT endpoint_id, metric_id, vo_id FROM pg_temp.sam_sources ORDER BY 1, 2, 3
    ON CONFLICT (endpoint_id, metric_id, vo_id) DO NOTHING;
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, status_id)
    SELECT
        n.endpoint_id, n.metric_id, n.vo_id, n.fqan_id,
        (
            SELECT i.status_id FROM instance_status AS i
            WHERE i.endpoint_id = n.endpoint_id
                AND i.metric_id = n.metric_id
                AND i.vo_id = n.vo_id
        )
    FROM (SELECT DISTINCT endpoint_id, metric_id, vo_id, fqan_id FROM pg_temp.sam_sources) AS n
    ORDER BY 1, 2, 3, 4
    ON CONFLICT (endpoint_id, metric_id, vo_id, fqan_id) DO NOTHING;
    INSERT INTO result_source (
        instance_id, publisher_id, service_uri, service_type, site_name, metric_type, data_type,
        role, nagios_name, encrypted, names
    )
    SELECT
        (
            SELECT i.instance_id FROM metric_instance AS i
            WHERE i.endpoint_id = n.endpoint_id
                AND i.metric_id = n.metric_id
                AND i.vo_id = n.vo_id
                AND i.fqan_id = n.fqan_id
        ),
        (SELECT p.publisher_id FROM publisher AS p WHERE p.identity = parts[14]),
        parts[6], parts[7], parts[8], parts[9], parts[10], parts[11], parts[12], parts[13], names
    FROM pg_temp.sam_sources AS n
    ON CONFLICT DO NOTHING;
    DELETE FROM pg_temp.sam_sources;
END
$$;
COMMENT ON FUNCTION metricOutput_names IS
    'Create the missing gatherers, names, instances and sources of the staged results.';

CREATE FUNCTION metricOutput_add() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    ranks CONSTANT text[] := (SELECT array_agg(name ORDER BY status) FROM metric_status);
BEGIN
    WITH staged AS MATERIALIZED (
        SELECT
            k.instance_id,
            CASE WHEN is_time(s.timestamp) THEN s.timestamp END AS measured_at,
            (
                SELECT g.gatherer_id FROM gatherer AS g
                WHERE g.gathered_at = s.gatheredAt AND g.monitoring_host = s.monitoringHost
            ) AS gatherer_id,
            k.source_id,
            CAST(array_position(ranks, s.metricStatus) - 1 AS smallint) AS status,
            s.summaryData, s.performanceData, s.detailsData, s.messageId,
            coalesce(s.receivedAt, now()) AS received_at
        FROM pg_temp.staged_metricoutput AS s
        LEFT JOIN LATERAL (
            SELECT * FROM result_source AS k
            WHERE k.names = s.names
            LIMIT 1  -- uses the index regardless of the statistics
        ) AS k ON true
    ),
    stored AS (
        INSERT INTO metric_result (
            instance_id, measured_at, gatherer_id, source_id, status,
            summary, performance_data, message_id, received_at
        )
        SELECT
            instance_id, measured_at, gatherer_id, source_id, status,
            summaryData, performanceData, messageId, received_at
        FROM staged
    ),
    detailed AS (
        INSERT INTO metric_result_detail (instance_id, measured_at, gatherer_id, status, details)
        SELECT instance_id, measured_at, gatherer_id, status, detailsData
        FROM staged
        WHERE detailsData IS NOT NULL
    )
    INSERT INTO load_news (instance_ids, measured_ats, statuses, summaries)
    SELECT
        array_agg(instance_id), array_agg(measured_at), array_agg(status), array_agg(summaryData)
    FROM staged
    HAVING count(*) > 0;
END
$$;
COMMENT ON FUNCTION metricOutput_add IS
    'Store the staged results. Fails unless all of them are valid and new, and all their names '
    'exist.';

CREATE FUNCTION metricOutput_record(
    names text, gatherer integer, measured_at timestamptz, status_code smallint, summary text,
    performance_data text, details text
) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT claim_record(jsonb_build_object(
        'hostname', p[1], 'serviceflavour', p[2], 'metricname', p[3], 'voname', p[4],
        'vofqan', p[5], 'serviceuri', p[6], 'servicetype', p[7], 'sitename', p[8],
        'metrictype', p[9], 'datatype', p[10], 'role', p[11], 'nagiosname', p[12],
        'encrypted', p[13], 'gatheredat', g.gathered_at, 'monitoringhost', g.monitoring_host,
        'metricstatus', m.name, 'timestamp', measured_at, 'summarydata', summary,
        'performancedata', performance_data, 'detailsdata', details
    ))
    FROM string_to_array(names, E'\x1f') AS p
    JOIN gatherer AS g ON g.gatherer_id = gatherer
    JOIN metric_status AS m ON m.status = status_code
$$;
COMMENT ON FUNCTION metricOutput_record IS 'A result as a claim has it.';

CREATE FUNCTION metricOutput_contest() RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
BEGIN
    PERFORM open_statements();
    PERFORM make_temporary('sam_known', '
        instance_id integer, measured_at timestamptz, gatherer_id integer, source_id integer,
        status smallint, summary text, performance_data text, message_id text,
        received_at timestamptz, details text
    ');
    DELETE FROM pg_temp.sam_known;
    -- An update that changes nothing locks and returns a row, and finds its partition by the key.
    WITH known AS (
        INSERT INTO metric_result AS known (
            instance_id, measured_at, gatherer_id, source_id, status,
            summary, performance_data, message_id
        )
        SELECT
            instance_id, measured_at, gatherer_id, source_id, status,
            summary, performance_data, message_id
        FROM pg_temp.sam_results
        WHERE is_best AND NOT is_stored
        ORDER BY instance_id, measured_at, gatherer_id
        ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET status = known.status
        WHERE (
                known.source_id, known.status, known.summary, known.performance_data,
                known.message_id
            ) IS DISTINCT FROM (
                excluded.source_id, excluded.status, excluded.summary, excluded.performance_data,
                excluded.message_id
            )
            OR (known.instance_id, known.measured_at, known.gatherer_id) IN (
                SELECT s.instance_id, s.measured_at, s.gatherer_id
                FROM pg_temp.sam_results AS s
                WHERE NOT s.is_best
            )
        RETURNING *
    )
    INSERT INTO pg_temp.sam_known
    SELECT
        instance_id, measured_at, gatherer_id, source_id, status, summary, performance_data,
        message_id, received_at, NULL
    FROM known
    UNION ALL
    SELECT
        s.instance_id, s.measured_at, s.gatherer_id, s.source_id, s.status, s.summary,
        s.performance_data, s.message_id, s.received_at, s.details
    FROM pg_temp.sam_results AS s
    WHERE s.is_stored
        AND (s.instance_id, s.measured_at, s.gatherer_id) IN (
            SELECT o.instance_id, o.measured_at, o.gatherer_id
            FROM pg_temp.sam_results AS o
            WHERE NOT o.is_best
        );
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- EXECUTE knows the times while it plans, so that only the partitions between them are locked.
    EXECUTE $statement$
    UPDATE pg_temp.sam_known AS n SET details = d.details
    FROM metric_result_detail AS d
    WHERE d.measured_at BETWEEN $1 AND $2
        AND (d.instance_id, d.measured_at, d.gatherer_id, d.status)
            = (n.instance_id, n.measured_at, n.gatherer_id, n.status)
        AND n.details IS NULL
    $statement$ USING
        (SELECT min(n.measured_at) FROM pg_temp.sam_known AS n),
        (SELECT max(n.measured_at) FROM pg_temp.sam_known AS n);

    INSERT INTO pg_temp.sam_statements
    SELECT
        CAST(json_build_array(
            s.instance_id, CAST(extract(epoch FROM s.measured_at) AS bigint), s.gatherer_id
        ) AS text),
        k.publisher_id, s.message_id, s.received_at,
        metricOutput_record(
            k.names, s.gatherer_id, s.measured_at, s.status, s.summary, s.performance_data,
            s.details
        ),
        s.arrival
    FROM (
        SELECT n.*, 0 AS arrival
        FROM pg_temp.sam_known AS n
        WHERE EXISTS (
            SELECT FROM pg_temp.sam_results AS s
            WHERE (s.instance_id, s.measured_at, s.gatherer_id)
                    = (n.instance_id, n.measured_at, n.gatherer_id)
                AND (s.source_id, s.status, s.summary, s.performance_data, s.message_id)
                    IS DISTINCT FROM
                    (n.source_id, n.status, n.summary, n.performance_data, n.message_id)
        )
        UNION ALL
        SELECT
            n.instance_id, n.measured_at, n.gatherer_id, n.source_id, n.status, n.summary,
            n.performance_data, n.message_id, n.received_at, n.details, n.arrival
        FROM pg_temp.sam_results AS n
        JOIN pg_temp.sam_known AS p USING (instance_id, measured_at, gatherer_id)
        WHERE (n.source_id, n.status, n.summary, n.performance_data, n.message_id)
            IS DISTINCT FROM
            (p.source_id, p.status, p.summary, p.performance_data, p.message_id)
    ) AS s
    JOIN result_source AS k ON k.source_id = s.source_id;
    PERFORM keep_claims('metricOutput');
END
$$;
COMMENT ON FUNCTION metricOutput_contest IS
    'Keep claims about the results in pg_temp.sam_results that differ from the stored ones.';

CREATE FUNCTION metricOutput_merge() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    duplicates bigint[];
BEGIN
    PERFORM metricOutput_check();
    PERFORM metricOutput_names();
    -- From here on a prune can't drop an empty partition that we are about to fill.
    LOCK TABLE ONLY metric_result, ONLY metric_result_detail IN ROW EXCLUSIVE MODE;
    PERFORM make_partitions(array_agg(DISTINCT CAST(timestamp AT TIME ZONE 'UTC' AS date)))
    FROM pg_temp.staged_metricoutput;

    PERFORM make_temporary('sam_results', '
        instance_id integer, measured_at timestamptz, gatherer_id integer, source_id integer,
        status smallint, summary text, performance_data text, details text, message_id text,
        received_at timestamptz, arrival bigint, is_best boolean, is_stored boolean
    ');
    DELETE FROM pg_temp.sam_results;
    WITH staged AS MATERIALIZED (
        SELECT
            k.instance_id, s.timestamp AS measured_at, g.gatherer_id, k.source_id, r.status,
            s.summaryData, s.performanceData, s.detailsData, s.messageId,
            coalesce(s.receivedAt, now()) AS received_at,
            row_number() OVER (ORDER BY s.ctid) AS arrival,
            1 = row_number() OVER (
                PARTITION BY k.instance_id, s.timestamp, g.gatherer_id
                ORDER BY r.status DESC, s.ctid
            ) AS is_best
        FROM pg_temp.staged_metricoutput AS s
        JOIN metric_status AS r ON r.name = s.metricStatus
        CROSS JOIN LATERAL (SELECT * FROM result_source AS k WHERE k.names = s.names LIMIT 1) AS k
        CROSS JOIN LATERAL (
            SELECT * FROM gatherer AS g
            WHERE g.gathered_at = s.gatheredAt AND g.monitoring_host = s.monitoringHost
            LIMIT 1
        ) AS g
    ),
    new AS (
        INSERT INTO metric_result (
            instance_id, measured_at, gatherer_id, source_id, status,
            summary, performance_data, message_id, received_at
        )
        SELECT
            instance_id, measured_at, gatherer_id, source_id, status,
            summaryData, performanceData, messageId, received_at
        FROM staged
        WHERE is_best
        ORDER BY instance_id, measured_at, gatherer_id
        ON CONFLICT (instance_id, measured_at, gatherer_id) DO NOTHING
        RETURNING instance_id, measured_at, gatherer_id
    )
    INSERT INTO pg_temp.sam_results
    SELECT
        s.instance_id, s.measured_at, s.gatherer_id, s.source_id, s.status, s.summaryData,
        s.performanceData, s.detailsData, s.messageId, s.received_at, s.arrival, s.is_best,
        s.is_best AND new.instance_id IS NOT NULL
    FROM staged AS s
    LEFT JOIN new USING (instance_id, measured_at, gatherer_id);

    PERFORM metricOutput_contest();
    WITH worse AS (
        INSERT INTO metric_result AS known (
            instance_id, measured_at, gatherer_id, source_id, status,
            summary, performance_data, message_id, received_at
        )
        SELECT
            s.instance_id, s.measured_at, s.gatherer_id, s.source_id, s.status,
            s.summary, s.performance_data, s.message_id, s.received_at
        FROM pg_temp.sam_results AS s
        JOIN pg_temp.sam_known AS p USING (instance_id, measured_at, gatherer_id)
        WHERE s.is_best AND NOT s.is_stored AND s.status > p.status
        ORDER BY s.instance_id, s.measured_at, s.gatherer_id
        ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
            source_id = excluded.source_id,
            status = excluded.status,
            summary = excluded.summary,
            performance_data = excluded.performance_data,
            message_id = excluded.message_id,
            received_at = excluded.received_at
        RETURNING instance_id, measured_at, gatherer_id
    ),
    outcome AS (
        SELECT s.*, s.is_stored OR s.is_best AND worse.instance_id IS NOT NULL AS has_won
        FROM pg_temp.sam_results AS s
        LEFT JOIN worse USING (instance_id, measured_at, gatherer_id)
    ),
    stored AS (SELECT * FROM outcome WHERE has_won),
    detailed AS (
        INSERT INTO metric_result_detail (instance_id, measured_at, gatherer_id, status, details)
        SELECT instance_id, measured_at, gatherer_id, status, details
        FROM stored
        WHERE details IS NOT NULL
        ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
            status = excluded.status,
            details = excluded.details
    ),
    news AS (
        INSERT INTO load_news (instance_ids, measured_ats, statuses, summaries)
        SELECT array_agg(instance_id), array_agg(measured_at), array_agg(status), array_agg(summary)
        FROM stored
        HAVING count(*) > 0
    )
    SELECT coalesce(array_agg(arrival) FILTER (WHERE NOT has_won), '{}') INTO duplicates
    FROM outcome;
    RETURN note_duplicates('metricoutput', duplicates);
END
$$;
COMMENT ON FUNCTION metricOutput_merge IS
    'Store the staged results, new or known, or reject the first one that is not valid; returns '
    'how many were duplicates.';

CREATE FUNCTION metricOutput_load() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    duplicates integer := 0;
BEGIN
    BEGIN
        PERFORM metricOutput_add();
    EXCEPTION
        WHEN unique_violation OR not_null_violation OR check_violation THEN
            duplicates := metricOutput_merge();
    END;
    PERFORM close_staging('metricoutput');
    RETURN duplicates;
END
$$;
COMMENT ON FUNCTION metricOutput_load IS
    'Store the staged results; returns how many were duplicates, which changed nothing. Nearly '
    'always all of them are valid and new, so the function first tries metricOutput_add(), which '
    'does half the work.';

CREATE FUNCTION metricOutput_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO pg_temp.staged_metricoutput VALUES (
        source_names(
            NEW.hostName, NEW.serviceFlavour, NEW.metricName, NEW.voName, NEW.voFqan,
            NEW.serviceURI, NEW.serviceType, NEW.siteName, NEW.metricType, NEW.dataType,
            NEW.role, NEW.nagiosName, NEW.encrypted, NEW.publisher
        ),
        coalesce(NEW.gatheredAt, ''), coalesce(NEW.monitoringHost, ''),
        upper(NEW.metricStatus COLLATE "C"), NEW.timestamp,
        NEW.summaryData, NEW.performanceData, NEW.detailsData, NEW.messageId, NEW.receivedAt
    );
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION metricOutput_stage IS 'Trigger function: stages a result of a probe.';

CREATE TRIGGER metricOutput_begin BEFORE INSERT ON metricOutput
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER metricOutput_begin ON metricOutput IS 'Prepares the staging table.';
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput
FOR EACH ROW EXECUTE FUNCTION metricOutput_stage();
COMMENT ON TRIGGER metricOutput_insert ON metricOutput IS 'Stages a result of a probe.';
CREATE TRIGGER metricOutput_end AFTER INSERT ON metricOutput
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER metricOutput_end ON metricOutput IS 'Stores the staged results.';

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
