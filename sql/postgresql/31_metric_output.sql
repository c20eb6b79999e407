-- Inserts into metricOutput (see 30_staging.sql).

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
