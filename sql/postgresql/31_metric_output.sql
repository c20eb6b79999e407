-- Inserts into metricOutput (see 30_staging.sql).

-- Results with the same natural key that differ in status, summary, performance data or details stand
-- side by side, whoever sent them. One that equals a stored result is a redelivery.

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
        PERFORM demand_time('timestamp', r.timestamp);
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
            instance_id, measured_at, gatherer_id, source_id, status, has_details,
            summary, performance_data, message_id, received_at
        )
        SELECT
            instance_id, measured_at, gatherer_id, source_id, status, detailsData IS NOT NULL,
            summaryData, performanceData, messageId, received_at
        FROM staged
    ),
    detailed AS (
        INSERT INTO metric_result_detail (instance_id, measured_at, gatherer_id, details)
        SELECT instance_id, measured_at, gatherer_id, detailsData
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

CREATE FUNCTION metricOutput_compare() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM make_temporary('sam_contested', '
        instance_id integer, measured_at timestamptz, gatherer_id integer
    ');
    PERFORM make_temporary('sam_known', '
        instance_id integer, measured_at timestamptz, gatherer_id integer, ordinal smallint,
        source_id integer, status smallint, has_details boolean, summary text,
        performance_data text, details text, arrival bigint
    ');
    DELETE FROM pg_temp.sam_contested;
    DELETE FROM pg_temp.sam_known;
    -- An update that changes nothing locks and returns a row, and finds its partition by the key.
    WITH first AS (
        INSERT INTO metric_result AS known (
            instance_id, measured_at, gatherer_id, source_id, status, has_details,
            summary, performance_data, message_id
        )
        SELECT DISTINCT ON (instance_id, measured_at, gatherer_id)
            instance_id, measured_at, gatherer_id, source_id, status, details IS NOT NULL,
            summary, performance_data, message_id
        FROM pg_temp.sam_results
        WHERE ordinal IS NULL
        ORDER BY instance_id, measured_at, gatherer_id, arrival
        ON CONFLICT (instance_id, measured_at, gatherer_id, ordinal)
        DO UPDATE SET status = known.status
        WHERE (
                known.source_id, known.status, known.has_details, known.summary,
                known.performance_data, known.message_id
            ) IS DISTINCT FROM (
                excluded.source_id, excluded.status, excluded.has_details, excluded.summary,
                excluded.performance_data, excluded.message_id
            )
            OR (known.instance_id, known.measured_at, known.gatherer_id) IN (
                SELECT s.instance_id, s.measured_at, s.gatherer_id
                FROM pg_temp.sam_results AS s
                GROUP BY s.instance_id, s.measured_at, s.gatherer_id
                HAVING count(*) > 1
            )
        RETURNING instance_id, measured_at, gatherer_id
    )
    INSERT INTO pg_temp.sam_contested SELECT * FROM first;
    -- EXECUTE knows the times while it plans, so that only the partitions between them are locked.
    -- Limits make it use the indexes regardless of the statistics.
    EXECUTE $statement$
    INSERT INTO pg_temp.sam_contested
    SELECT s.instance_id, s.measured_at, s.gatherer_id
    FROM pg_temp.sam_results AS s
    WHERE s.ordinal IS NULL
        AND (s.instance_id, s.measured_at, s.gatherer_id) NOT IN (
            SELECT c.instance_id, c.measured_at, c.gatherer_id FROM pg_temp.sam_contested AS c
        )
        AND s.details <> (
            SELECT d.details FROM metric_result_detail AS d
            WHERE (d.instance_id, d.measured_at, d.gatherer_id, d.ordinal)
                    = (s.instance_id, s.measured_at, s.gatherer_id, 0)
                AND d.measured_at BETWEEN $1 AND $2
            LIMIT 1
        )
    $statement$ USING
        (SELECT min(s.measured_at) FROM pg_temp.sam_results AS s),
        (SELECT max(s.measured_at) FROM pg_temp.sam_results AS s);
    IF NOT EXISTS (SELECT FROM pg_temp.sam_contested) THEN
        RETURN;
    END IF;
    EXECUTE $statement$
    INSERT INTO pg_temp.sam_known
    SELECT
        r.instance_id, r.measured_at, r.gatherer_id, r.ordinal, r.source_id, r.status,
        r.has_details, r.summary, r.performance_data, d.details, NULL
    FROM pg_temp.sam_contested AS c
    CROSS JOIN LATERAL (
        SELECT * FROM metric_result AS r
        WHERE (r.instance_id, r.measured_at, r.gatherer_id)
                = (c.instance_id, c.measured_at, c.gatherer_id)
            AND r.measured_at BETWEEN $1 AND $2
        LIMIT 32768
    ) AS r
    LEFT JOIN LATERAL (
        SELECT * FROM metric_result_detail AS d
        WHERE (d.instance_id, d.measured_at, d.gatherer_id, d.ordinal)
                = (r.instance_id, r.measured_at, r.gatherer_id, r.ordinal)
            AND d.measured_at BETWEEN $1 AND $2
        LIMIT 1
    ) AS d ON true
    $statement$ USING
        (SELECT min(c.measured_at) FROM pg_temp.sam_contested AS c),
        (SELECT max(c.measured_at) FROM pg_temp.sam_contested AS c);

    INSERT INTO pg_temp.sam_known
    SELECT
        n.instance_id, n.measured_at, n.gatherer_id,
        known.last + row_number() OVER (
            PARTITION BY n.instance_id, n.measured_at, n.gatherer_id ORDER BY n.arrival
        ),
        n.source_id, n.status, n.details IS NOT NULL, n.summary, n.performance_data, n.details,
        n.arrival
    FROM (
        SELECT DISTINCT ON (
            instance_id, measured_at, gatherer_id, status, summary, performance_data, details
        ) *
        FROM pg_temp.sam_results AS s
        WHERE s.ordinal IS NULL
            AND NOT EXISTS (
                SELECT FROM pg_temp.sam_known AS k
                WHERE (k.instance_id, k.measured_at, k.gatherer_id)
                        = (s.instance_id, s.measured_at, s.gatherer_id)
                    AND (k.status, k.has_details, k.summary, k.performance_data)
                        IS NOT DISTINCT FROM
                        (s.status, s.details IS NOT NULL, s.summary, s.performance_data)
                    AND (k.details = s.details) IS NOT FALSE  -- it may have been pruned
            )
        ORDER BY
            instance_id, measured_at, gatherer_id, status, summary, performance_data, details,
            arrival
    ) AS n
    JOIN (
        SELECT instance_id, measured_at, gatherer_id, max(ordinal) AS last
        FROM pg_temp.sam_known
        GROUP BY instance_id, measured_at, gatherer_id
    ) AS known USING (instance_id, measured_at, gatherer_id);
    UPDATE pg_temp.sam_results AS s SET ordinal = k.ordinal
    FROM pg_temp.sam_known AS k
    WHERE k.arrival = s.arrival;

    INSERT INTO result_repeat (
        instance_id, measured_at, gatherer_id, ordinal, source_id, message_id, received_at
    )
    SELECT DISTINCT ON (s.instance_id, s.measured_at, s.gatherer_id, k.ordinal, o.publisher_id)
        s.instance_id, s.measured_at, s.gatherer_id, k.ordinal, s.source_id, s.message_id,
        s.received_at
    FROM pg_temp.sam_results AS s
    JOIN result_source AS o ON o.source_id = s.source_id
    JOIN pg_temp.sam_known AS k
        ON (k.instance_id, k.measured_at, k.gatherer_id)
            = (s.instance_id, s.measured_at, s.gatherer_id)
        AND (k.status, k.has_details, k.summary, k.performance_data)
            IS NOT DISTINCT FROM
            (s.status, s.details IS NOT NULL, s.summary, s.performance_data)
        AND (k.details = s.details) IS NOT FALSE
    JOIN result_source AS p ON p.source_id = k.source_id
    WHERE s.ordinal IS NULL
        AND o.publisher_id <> p.publisher_id
        AND NOT EXISTS (
            SELECT FROM result_repeat AS r
            JOIN result_source AS q ON q.source_id = r.source_id
            WHERE (r.instance_id, r.measured_at, r.gatherer_id, r.ordinal)
                    = (k.instance_id, k.measured_at, k.gatherer_id, k.ordinal)
                AND q.publisher_id = o.publisher_id
        )
    ORDER BY
        s.instance_id, s.measured_at, s.gatherer_id, k.ordinal, o.publisher_id, s.arrival;
END
$$;
COMMENT ON FUNCTION metricOutput_compare IS
    'Give those of pg_temp.sam_results that differ from all stored results of their key the next '
    'ordinals, and remember the other publishers of those that are equal.';

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
        received_at timestamptz, arrival bigint, ordinal smallint
    ');
    DELETE FROM pg_temp.sam_results;
    WITH staged AS MATERIALIZED (
        SELECT
            k.instance_id, s.timestamp AS measured_at, g.gatherer_id, k.source_id, r.status,
            s.summaryData, s.performanceData, s.detailsData, s.messageId,
            coalesce(s.receivedAt, now()) AS received_at,
            row_number() OVER (ORDER BY s.ctid) AS arrival,
            1 = row_number() OVER (
                PARTITION BY k.instance_id, s.timestamp, g.gatherer_id ORDER BY s.ctid
            ) AS is_first
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
            instance_id, measured_at, gatherer_id, source_id, status, has_details,
            summary, performance_data, message_id, received_at
        )
        SELECT
            instance_id, measured_at, gatherer_id, source_id, status, detailsData IS NOT NULL,
            summaryData, performanceData, messageId, received_at
        FROM staged
        WHERE is_first
        ORDER BY instance_id, measured_at, gatherer_id
        ON CONFLICT (instance_id, measured_at, gatherer_id, ordinal) DO NOTHING
        RETURNING instance_id, measured_at, gatherer_id
    )
    INSERT INTO pg_temp.sam_results
    SELECT
        s.instance_id, s.measured_at, s.gatherer_id, s.source_id, s.status, s.summaryData,
        s.performanceData, s.detailsData, s.messageId, s.received_at, s.arrival,
        CASE WHEN s.is_first AND new.instance_id IS NOT NULL THEN 0 END
    FROM staged AS s
    LEFT JOIN new USING (instance_id, measured_at, gatherer_id);
    INSERT INTO metric_result_detail (instance_id, measured_at, gatherer_id, details)
    SELECT instance_id, measured_at, gatherer_id, details
    FROM pg_temp.sam_results
    WHERE ordinal = 0 AND details IS NOT NULL;

    PERFORM metricOutput_compare();
    WITH added AS (
        INSERT INTO metric_result (
            instance_id, measured_at, gatherer_id, ordinal, source_id, status, has_details,
            summary, performance_data, message_id, received_at
        )
        SELECT
            instance_id, measured_at, gatherer_id, ordinal, source_id, status,
            details IS NOT NULL, summary, performance_data, message_id, received_at
        FROM pg_temp.sam_results
        WHERE ordinal > 0
    ),
    detailed AS (
        INSERT INTO metric_result_detail (instance_id, measured_at, gatherer_id, ordinal, details)
        SELECT instance_id, measured_at, gatherer_id, ordinal, details
        FROM pg_temp.sam_results
        WHERE ordinal > 0 AND details IS NOT NULL
    ),
    news AS (
        INSERT INTO load_news (instance_ids, measured_ats, statuses, summaries)
        SELECT array_agg(instance_id), array_agg(measured_at), array_agg(status), array_agg(summary)
        FROM pg_temp.sam_results
        WHERE ordinal IS NOT NULL
        HAVING count(*) > 0
    )
    SELECT coalesce(array_agg(arrival) FILTER (WHERE ordinal IS NULL), '{}') INTO duplicates
    FROM pg_temp.sam_results;
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

-- Prepare the staging table, stage results of probes, and store them.
CREATE TRIGGER metricOutput_begin BEFORE INSERT ON metricOutput
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput
FOR EACH ROW EXECUTE FUNCTION metricOutput_stage();
CREATE TRIGGER metricOutput_end AFTER INSERT ON metricOutput
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
