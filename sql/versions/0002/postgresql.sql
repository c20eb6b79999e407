-- Results in partitions by day, one look-up for all names of a result, rows stored as sets, statuses
-- that are kept, days that are due. The results are copied: have room for them once more.

-- Gone, or made anew below ----------------------------------------------------------------------
DROP TRIGGER metricOutput_insert ON metricOutput;
DROP TRIGGER serviceEndpoint_insert ON serviceEndpoint;
DROP TRIGGER siteGroup_insert ON siteGroup;
DROP TRIGGER downtime_insert ON downtime;
DROP FUNCTION downtime_insert;
DROP FUNCTION siteGroup_insert;
DROP FUNCTION id_of_site_group;
DROP FUNCTION serviceEndpoint_insert;
DROP FUNCTION metricOutput_insert;
DROP FUNCTION make_names;
DROP FUNCTION id_of_endpoint;
DROP FUNCTION id_of_name;
DROP FUNCTION lock_names;
DROP FUNCTION is_time;
DROP FUNCTION demand;
-- Views that somebody built on these four must be dropped by hand before, and made again.
DROP VIEW current_status;
DROP VIEW report_result;
DROP VIEW metricOutput;
DROP VIEW metric_instance_name;

-- Moved away with their indexes and sequences, until they are copied.
CREATE SCHEMA sam_before;
ALTER TABLE metric_result_detail SET SCHEMA sam_before;
ALTER TABLE metric_result SET SCHEMA sam_before;
ALTER TABLE result_origin SET SCHEMA sam_before;
ALTER TABLE metric_instance SET SCHEMA sam_before;

-- Tables ----------------------------------------------------------------------------------------

CREATE TABLE instance_status (
    status_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    status smallint,
    since timestamptz,
    measured_at timestamptz,
    other_at timestamptz,
    summary text,
    UNIQUE (endpoint_id, metric_id, vo_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE instance_status IS
    'The newest status of a metric of an endpoint, as seen by one VO, and since when it holds; '
    'other_at is the newest time with another status. Follows the results by load_news.';

CREATE TABLE metric_instance (
    instance_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id integer NOT NULL REFERENCES endpoint,
    metric_id integer NOT NULL REFERENCES metric,
    vo_id integer NOT NULL REFERENCES vo,
    fqan_id integer NOT NULL REFERENCES fqan,
    status_id integer NOT NULL REFERENCES instance_status,
    UNIQUE (endpoint_id, metric_id, vo_id, fqan_id)
);
COMMENT ON TABLE metric_instance IS
    'A metric of an endpoint, as seen by one VO and FQAN: what results are results of.';
CREATE INDEX metric_instance_status ON metric_instance (status_id);
COMMENT ON INDEX metric_instance_status IS 'The instances whose newest result is one status.';

CREATE TABLE result_source (
    source_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id integer NOT NULL REFERENCES metric_instance,
    service_uri text COLLATE "C" NOT NULL,
    service_type text COLLATE "C" NOT NULL,
    site_name text COLLATE "C" NOT NULL,
    metric_type text COLLATE "C" NOT NULL,
    data_type text COLLATE "C" NOT NULL,
    monitoring_host text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    nagios_name text COLLATE "C" NOT NULL,
    encrypted text COLLATE "C" NOT NULL,
    names text COLLATE "C" NOT NULL,
    EXCLUDE USING hash (names WITH =)
);
COMMENT ON TABLE result_source IS
    'What a result says about itself that hardly ever changes, stored once. names joins these texts '
    'and those of the instance: a result finds both by one look-up. Unique by a hash, which takes '
    'texts of any length.';

-- Partitions by UTC day, metric_result_20261121: made when a result needs one, emptied and
-- dropped by `sam-db prune`.
CREATE TABLE metric_result (
    result_id bigint GENERATED ALWAYS AS IDENTITY,
    measured_at timestamptz NOT NULL,
    instance_id integer NOT NULL,
    gatherer_id integer NOT NULL,
    source_id integer NOT NULL,
    status smallint NOT NULL,
    summary text,
    performance_data text,
    message_id text,
    UNIQUE (instance_id, measured_at, gatherer_id)
) PARTITION BY RANGE (measured_at);
COMMENT ON TABLE metric_result IS
    'One result of a probe. No foreign keys and no checks: they would cost as much as the row, '
    'and its only writer is the function that has just looked everything up.';
CREATE INDEX metric_result_measured_at ON metric_result USING brin (measured_at);
COMMENT ON INDEX metric_result_measured_at IS 'Reports read parts of a day side by side.';

CREATE TABLE metric_result_detail (
    measured_at timestamptz NOT NULL,
    instance_id integer NOT NULL,
    gatherer_id integer NOT NULL,
    status smallint NOT NULL,
    details text NOT NULL,
    PRIMARY KEY (instance_id, measured_at, gatherer_id)
) PARTITION BY RANGE (measured_at);
COMMENT ON TABLE metric_result_detail IS
    'The long text of a result, kept apart: no report reads it, and it may be forgotten earlier. '
    'It belongs to the result of the same status: a worse one that replaced it has its own.';

CREATE TABLE load_news (
    news_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_ids integer[] NOT NULL,
    measured_ats timestamptz[] NOT NULL,
    statuses smallint[] NOT NULL,
    summaries text[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE load_news IS
    'What each batch has stored, until fold_news() has brought instance_status and changed_day '
    'up to it. A batch that did so itself would wait for all others at the same rows.';

CREATE TABLE changed_day (
    day date PRIMARY KEY,
    change_no bigint
);
COMMENT ON TABLE changed_day IS
    'Days whose results, topology or downtimes changed. A run of a report numbers the changes it '
    'is going to read; without a number: changed after any run. The first day with results is '
    'the first of all.';
CREATE INDEX changed_day_change_no ON changed_day (change_no);
COMMENT ON INDEX changed_day_change_no IS 'The days without a number.';

CREATE TABLE change_counter (
    change_no bigint NOT NULL
);
COMMENT ON TABLE change_counter IS
    'One row: the last number given to changes, which is never given again.';
INSERT INTO change_counter (change_no) VALUES (0);

CREATE TABLE horizon (
    day date PRIMARY KEY
);
COMMENT ON TABLE horizon IS
    'One row at most: results before this day were pruned, and its reports are frozen.';

ALTER TABLE run ADD COLUMN change_no bigint;
COMMENT ON TABLE run IS
    'A computation of one report for one day and what it read; results_ignored is JSON '
    '{"reason": count}, until is the time of the run where the day was still open, change_no the '
    'newest change of changed_day that it has read.';

-- Views -----------------------------------------------------------------------------------------

CREATE VIEW metric_instance_name AS
SELECT
    i.instance_id,
    i.endpoint_id,
    h.name AS host_name,
    f.name AS service_flavour,
    m.name AS metric_name,
    v.name AS vo,
    q.name AS fqan
FROM metric_instance AS i
JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN metric AS m ON m.metric_id = i.metric_id
JOIN vo AS v ON v.vo_id = i.vo_id
JOIN fqan AS q ON q.fqan_id = i.fqan_id;
COMMENT ON VIEW metric_instance_name IS 'Metric instances with their names.';

CREATE VIEW metricOutput AS
SELECT
    n.host_name AS hostName,
    NULLIF(k.service_uri, '') AS serviceURI,
    n.service_flavour AS serviceFlavour,
    NULLIF(k.service_type, '') AS serviceType,
    NULLIF(k.site_name, '') AS siteName,
    n.metric_name AS metricName,
    NULLIF(k.metric_type, '') AS metricType,
    s.name AS metricStatus,
    NULLIF(k.data_type, '') AS dataType,
    r.performance_data AS performanceData,
    r.measured_at AS timestamp,
    NULLIF(g.name, '') AS gatheredAt,
    NULLIF(k.monitoring_host, '') AS monitoringHost,
    r.summary AS summaryData,
    d.details AS detailsData,
    NULLIF(n.vo, '') AS voName,
    NULLIF(n.fqan, '') AS voFqan,
    NULLIF(k.role, '') AS role,
    NULLIF(k.nagios_name, '') AS nagiosName,
    NULLIF(k.encrypted, '') AS encrypted,
    r.message_id AS messageId
FROM metric_result AS r
JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
JOIN metric_status AS s ON s.status = r.status
JOIN host AS g ON g.host_id = r.gatherer_id
JOIN result_source AS k ON k.source_id = r.source_id
LEFT JOIN metric_result_detail AS d
    ON d.instance_id = r.instance_id
    AND d.measured_at = r.measured_at
    AND d.gatherer_id = r.gatherer_id
    AND d.status = r.status;
COMMENT ON VIEW metricOutput IS 'Class: results of probes.';

CREATE VIEW report_result AS
SELECT
    r.result_id,
    r.instance_id,
    n.host_name,
    n.service_flavour,
    n.metric_name,
    n.vo,
    n.fqan,
    r.measured_at,
    CAST(extract(epoch FROM r.measured_at) AS bigint) AS measured_at_s,
    s.name AS status,
    g.name AS gathered_at,
    k.monitoring_host,
    r.summary,
    r.performance_data,
    r.message_id
FROM metric_result AS r
JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
JOIN metric_status AS s ON s.status = r.status
JOIN host AS g ON g.host_id = r.gatherer_id
JOIN result_source AS k ON k.source_id = r.source_id;
COMMENT ON VIEW report_result IS 'Results with the ids and names that reports read.';

CREATE VIEW report_newest_result AS
SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS result_id
FROM metric_result_result_id_seq;
COMMENT ON VIEW report_newest_result IS
    'The last number given to a result: a run reads none that comes later.';

CREATE VIEW report_changed_day AS
SELECT day, change_no FROM changed_day;
COMMENT ON VIEW report_changed_day IS
    'Days whose results, topology or downtimes changed; no number: since any run looked. A day is '
    'due for a report whose published run has a smaller change_no.';

CREATE VIEW report_horizon AS
SELECT day FROM horizon;
COMMENT ON VIEW report_horizon IS
    'The first day that can be recomputed, once results have been pruned; else no row.';

CREATE VIEW current_status AS
SELECT
    coalesce(home.site, '') AS site,
    f.name AS service_flavour,
    h.name AS host_name,
    m.name AS metric_name,
    v.name AS vo,
    s.name AS status,
    i.since,
    i.measured_at,
    i.summary
FROM instance_status AS i
JOIN metric_status AS s ON s.status = i.status
JOIN endpoint AS e ON e.endpoint_id = i.endpoint_id
JOIN host AS h ON h.host_id = e.host_id
JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
JOIN metric AS m ON m.metric_id = i.metric_id
JOIN vo AS v ON v.vo_id = i.vo_id
LEFT JOIN (
    SELECT DISTINCT p.endpoint_id, t.name AS site
    FROM endpoint_membership AS p
    JOIN site AS t ON t.site_id = p.site_id
    WHERE p.valid_from <= now() AND (p.valid_to IS NULL OR p.valid_to > now())
) AS home ON home.endpoint_id = i.endpoint_id;
COMMENT ON VIEW current_status IS
    'The newest status of everything and since when it holds; no site: not in the topology now.';

CREATE OR REPLACE VIEW report_run AS
SELECT
    run_id,
    report,
    day,
    started_at,
    finished_at,
    state,
    until,
    results_read,
    results_ignored,
    instances,
    results_digest,
    topology_digest,
    downtimes_digest,
    profile_digest,
    input_digest,
    profile,
    software_version,
    who,
    change_no
FROM run;
COMMENT ON VIEW report_run IS 'Every run of every report: what it read, and what became of it.';


-- Inserts into the class views: stage the rows, then check, look names up (or create them), merge.
--
-- A statement's rows are staged one by one, by the view's INSTEAD OF trigger, and stored all at
-- once when it ends, by <class>_load(): a set costs a fraction of its rows one by one. A loader
-- may pass the trigger by: open_staging(), COPY into the staging table, <class>_load().
--
-- Redelivery is normal: the broker re-sends whatever was not acked. So a second copy changes
-- nothing, and which status, end or announcement wins does not depend on the order of arrival.
--
-- Names and partitions are created by one transaction at a time (an advisory lock, held to its
-- end): two that met the same new names in another order would deadlock on the unique indexes.
-- What exists takes no lock.
--
-- These functions run with their owner's rights: who inserts into a view needs no others.

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
COMMENT ON FUNCTION demand IS 'Refuse the row, naming attribute and value, unless fulfilled.';

CREATE FUNCTION is_time(value timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT isfinite(value) AND value = CAST(value AS timestamptz(0))
$$;
COMMENT ON FUNCTION is_time IS 'A finite time in whole seconds.';

CREATE FUNCTION lock_names() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    key CONSTANT bigint := hashtextextended('sam names', 0);
BEGIN
    IF pg_try_advisory_xact_lock(key) THEN
        RETURN;
    END IF;
    IF current_setting('sam.stored', true) = 'yes' THEN
        RAISE EXCEPTION 'another transaction is creating names: run this one again'
            USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM pg_advisory_xact_lock(key);
END
$$;
COMMENT ON FUNCTION lock_names IS
    'Become the one transaction that creates names. One that has stored nothing yet waits for '
    'its turn; another must not, as others may already wait for its rows.';

CREATE FUNCTION make_names(kind text, wanted text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    new_names text[];
BEGIN
    -- A sub-query, not a join: looked up by index whatever the statistics say.
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
COMMENT ON FUNCTION make_names IS 'Create those of the names that the table of that kind lacks.';

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
COMMENT ON FUNCTION make_endpoints IS 'Create those of the services on hosts that are not known.';

CREATE FUNCTION has_relation(name text) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    -- Not to_regclass(): that may ask a cache which has not heard of others' commits.
    SELECT EXISTS (
        SELECT FROM pg_class AS c
        WHERE c.relname = name AND c.relnamespace = CAST(current_schema() AS regnamespace)
    )
$$;
COMMENT ON FUNCTION has_relation IS 'Whether there is a table of that name, committed or ours.';

CREATE FUNCTION make_partitions(days date[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    day date;
    parent text;
    partition text;
    made integer := 0;
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
        CONTINUE WHEN has_relation(partition);  -- made while we waited
        -- Made apart and then attached: those who read and write other days need not wait.
        EXECUTE format(
            'CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)',
            partition, parent
        );
        EXECUTE format(
            'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
            parent, partition, day || ' 00:00:00Z', day + 1 || ' 00:00:00Z'
        );
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
COMMENT ON FUNCTION make_partitions IS
    'Make the partitions of these UTC days that are missing; how many were.';

CREATE FUNCTION make_temporary(name text, definition text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    its_owner regrole;
BEGIN
    SELECT relowner INTO its_owner FROM pg_class
    WHERE oid = to_regclass('pg_temp.' || quote_ident(name));
    IF its_owner IS NULL THEN
        EXECUTE format('CREATE TEMPORARY TABLE %I (%s) ON COMMIT DELETE ROWS', name, definition);
    ELSIF its_owner <> CAST(quote_ident(current_user) AS regrole) THEN
        -- Its triggers would run with our rights.
        RAISE EXCEPTION 'the temporary table % belongs to %', name, its_owner
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN its_owner IS NULL;
END
$$;
COMMENT ON FUNCTION make_temporary IS 'Make a table for this session; whether it was missing.';

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
            'names text COLLATE "C", gatheredAt text COLLATE "C", metricStatus text,
            timestamp timestamptz, summaryData text, performanceData text, detailsData text,
            messageId text'
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
    'Make this session''s table pg_temp.staged_<class>, or empty it of rows that were stored; for '
    'those who may insert into the view. It has the columns of the view; but of metricOutput the '
    'names are joined, as source_names() does.';

CREATE FUNCTION close_staging(class text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('sam.stored_' || class, 'yes', true), set_config('sam.stored', 'yes', true);
END
$$;
COMMENT ON FUNCTION close_staging IS 'Note for open_staging() and lock_names(): rows are stored.';

CREATE FUNCTION stage_begin() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM open_staging(TG_TABLE_NAME);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION stage_begin IS 'A statement begins to insert into a class view.';

CREATE FUNCTION stage_end() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    is_small boolean;
BEGIN
    EXECUTE format('SELECT %I()', TG_TABLE_NAME || '_load');
    EXECUTE format('SELECT count(*) <= 100 FROM pg_temp.%I', 'staged_' || TG_TABLE_NAME)
        INTO is_small;
    IF is_small THEN  -- a person's: to be seen at once; loaders fold many batches together
        PERFORM fold_news();
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION stage_end IS 'A statement has staged its rows: store them.';

-- metricOutput: of two statuses for one moment the worse stays, with its whole row ------------

CREATE FUNCTION source_names(
    host_name text, flavour text, metric_name text, vo text, fqan text, service_uri text,
    service_type text, site_name text, metric_type text, data_type text, monitoring_host text,
    role text, nagios_name text, encrypted text
) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT concat_ws(
        E'\x1f', coalesce(lower(host_name COLLATE "C"), ''), coalesce(flavour, service_type, ''),
        coalesce(metric_name, ''), coalesce(vo, ''), coalesce(fqan, ''), coalesce(service_uri, ''),
        coalesce(service_type, ''), coalesce(site_name, ''), coalesce(metric_type, ''),
        coalesce(data_type, ''), coalesce(monitoring_host, ''), coalesce(role, ''),
        coalesce(nagios_name, ''), coalesce(encrypted, '')
    )
$$;
COMMENT ON FUNCTION source_names IS
    'The texts by which a result finds its source, joined by unit separators.';

CREATE FUNCTION metricOutput_check() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    one record;
    parts text[];
BEGIN
    FOR one IN SELECT * FROM pg_temp.staged_metricoutput ORDER BY ctid LOOP
        parts := string_to_array(one.names, E'\x1f');
        PERFORM demand(
            cardinality(parts) = 14, 'hostName', parts[1],
            'and the other names must not hold a unit separator'
        );
        PERFORM demand(parts[1] <> '', 'hostName', parts[1], 'is no host');
        PERFORM demand(parts[2] <> '', 'serviceFlavour', parts[2], 'is no flavour');
        PERFORM demand(parts[3] <> '', 'metricName', parts[3], 'is no metric');
        PERFORM demand(
            EXISTS (SELECT FROM metric_status WHERE name = one.metricStatus),
            'metricStatus', one.metricStatus, 'is none of OK, WARNING, CRITICAL, UNKNOWN'
        );
        PERFORM demand(
            is_time(one.timestamp), 'timestamp', CAST(one.timestamp AS text), 'is no time'
        );
    END LOOP;
END
$$;
COMMENT ON FUNCTION metricOutput_check IS 'Refuse the first staged result that is bad.';

CREATE FUNCTION metricOutput_names() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM make_temporary('sam_sources', '
        parts text[] COLLATE "C", names text COLLATE "C",
        endpoint_id integer, metric_id integer, vo_id integer, fqan_id integer
    ');
    PERFORM make_names('host', array_agg(gatheredAt)) FROM pg_temp.staged_metricoutput;
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
        instance_id, service_uri, service_type, site_name, metric_type, data_type,
        monitoring_host, role, nagios_name, encrypted, names
    )
    SELECT
        (
            SELECT i.instance_id FROM metric_instance AS i
            WHERE i.endpoint_id = n.endpoint_id
                AND i.metric_id = n.metric_id
                AND i.vo_id = n.vo_id
                AND i.fqan_id = n.fqan_id
        ),
        parts[6], parts[7], parts[8], parts[9], parts[10],
        parts[11], parts[12], parts[13], parts[14], names
    FROM pg_temp.sam_sources AS n
    ON CONFLICT DO NOTHING;
    DELETE FROM pg_temp.sam_sources;
END
$$;
COMMENT ON FUNCTION metricOutput_names IS 'Create whatever names the staged results bring.';

CREATE FUNCTION metricOutput_add() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    ranks CONSTANT text[] := (SELECT array_agg(name ORDER BY status) FROM metric_status);
BEGIN
    WITH staged AS MATERIALIZED (
        SELECT
            k.instance_id,
            CASE WHEN is_time(s.timestamp) THEN s.timestamp END AS measured_at,
            (SELECT g.host_id FROM host AS g WHERE g.name = s.gatheredAt) AS gatherer_id,
            k.source_id,
            CAST(array_position(ranks, s.metricStatus) - 1 AS smallint) AS status,
            s.summaryData, s.performanceData, s.detailsData, s.messageId
        FROM pg_temp.staged_metricoutput AS s
        LEFT JOIN LATERAL (
            SELECT * FROM result_source AS k
            WHERE k.names = s.names
            LIMIT 1  -- so that it is looked up by index, whatever the statistics say
        ) AS k ON true
    ),
    stored AS (
        INSERT INTO metric_result (
            instance_id, measured_at, gatherer_id, source_id, status,
            summary, performance_data, message_id
        )
        SELECT
            instance_id, measured_at, gatherer_id, source_id, status,
            summaryData, performanceData, messageId
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
    'Store the staged results if each is good and new, and all its names are known. Else an error.';

CREATE FUNCTION metricOutput_merge() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM metricOutput_check();
    PERFORM metricOutput_names();
    -- From here on prune can't drop an empty partition that we are about to fill.
    LOCK TABLE ONLY metric_result, ONLY metric_result_detail IN ROW EXCLUSIVE MODE;
    PERFORM make_partitions(array_agg(DISTINCT CAST(timestamp AT TIME ZONE 'UTC' AS date)))
    FROM pg_temp.staged_metricoutput;

    WITH staged AS MATERIALIZED (
        SELECT DISTINCT ON (k.instance_id, s.timestamp, g.host_id)
            k.instance_id, s.timestamp AS measured_at, g.host_id AS gatherer_id,
            k.source_id, r.status,
            s.summaryData, s.performanceData, s.detailsData, s.messageId
        FROM pg_temp.staged_metricoutput AS s
        JOIN metric_status AS r ON r.name = s.metricStatus
        CROSS JOIN LATERAL (SELECT * FROM result_source AS k WHERE k.names = s.names LIMIT 1) AS k
        CROSS JOIN LATERAL (SELECT * FROM host AS g WHERE g.name = s.gatheredAt LIMIT 1) AS g
        ORDER BY k.instance_id, s.timestamp, g.host_id, r.status DESC, s.ctid
    ),
    stored AS (
        INSERT INTO metric_result AS known (
            instance_id, measured_at, gatherer_id, source_id, status,
            summary, performance_data, message_id
        )
        SELECT
            instance_id, measured_at, gatherer_id, source_id, status,
            summaryData, performanceData, messageId
        FROM staged
        ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
            source_id = excluded.source_id,
            status = excluded.status,
            summary = excluded.summary,
            performance_data = excluded.performance_data,
            message_id = excluded.message_id
        WHERE excluded.status > known.status
        RETURNING instance_id, measured_at, gatherer_id, status, summary
    ),
    detailed AS (
        INSERT INTO metric_result_detail (instance_id, measured_at, gatherer_id, status, details)
        SELECT instance_id, measured_at, gatherer_id, staged.status, staged.detailsData
        FROM stored
        JOIN staged USING (instance_id, measured_at, gatherer_id)
        WHERE staged.detailsData IS NOT NULL
        ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
            status = excluded.status,
            details = excluded.details
    )
    INSERT INTO load_news (instance_ids, measured_ats, statuses, summaries)
    SELECT array_agg(instance_id), array_agg(measured_at), array_agg(status), array_agg(summary)
    FROM stored
    HAVING count(*) > 0;
END
$$;
COMMENT ON FUNCTION metricOutput_merge IS
    'Store the staged results, whatever is there already, or refuse the first that is bad.';

CREATE FUNCTION metricOutput_load() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    BEGIN
        PERFORM metricOutput_add();
    EXCEPTION
        WHEN unique_violation OR not_null_violation OR check_violation THEN
            PERFORM metricOutput_merge();
    END;
    PERFORM close_staging('metricoutput');
END
$$;
COMMENT ON FUNCTION metricOutput_load IS
    'Store the staged results: nearly always all are good and new, and that is half the work.';

CREATE FUNCTION metricOutput_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO pg_temp.staged_metricoutput VALUES (
        source_names(
            NEW.hostName, NEW.serviceFlavour, NEW.metricName, NEW.voName, NEW.voFqan,
            NEW.serviceURI, NEW.serviceType, NEW.siteName, NEW.metricType, NEW.dataType,
            NEW.monitoringHost, NEW.role, NEW.nagiosName, NEW.encrypted
        ),
        coalesce(NEW.gatheredAt, ''), upper(NEW.metricStatus COLLATE "C"), NEW.timestamp,
        NEW.summaryData, NEW.performanceData, NEW.detailsData, NEW.messageId
    );
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION metricOutput_stage IS 'Stages a result of a probe.';

CREATE TRIGGER metricOutput_begin BEFORE INSERT ON metricOutput
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER metricOutput_begin ON metricOutput IS 'Makes the staging table.';
CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput
FOR EACH ROW EXECUTE FUNCTION metricOutput_stage();
COMMENT ON TRIGGER metricOutput_insert ON metricOutput IS 'Stages a result of a probe.';
CREATE TRIGGER metricOutput_end AFTER INSERT ON metricOutput
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER metricOutput_end ON metricOutput IS 'Stores the staged results.';

-- serviceEndpoint: the first row stays; validTo: a value beats none, of two the earlier ----

CREATE FUNCTION serviceEndpoint_load() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT * FROM pg_temp.staged_serviceendpoint ORDER BY ctid LOOP
        PERFORM demand(one.siteName <> '', 'siteName', one.siteName, 'is no site');
        PERFORM demand(one.hostName <> '', 'hostName', one.hostName, 'is no host');
        PERFORM demand(
            one.serviceFlavour <> '', 'serviceFlavour', one.serviceFlavour, 'is no flavour'
        );
        PERFORM demand(
            is_time(one.validFrom), 'validFrom', CAST(one.validFrom AS text), 'is no time'
        );
        PERFORM demand(
            one.validTo IS NULL OR is_time(one.validTo),
            'validTo', CAST(one.validTo AS text), 'is no time'
        );
    END LOOP;
    PERFORM make_names('site', array_agg(siteName)) FROM pg_temp.staged_serviceendpoint;
    PERFORM make_names('vo', array_agg(coalesce(voName, ''))) FROM pg_temp.staged_serviceendpoint;
    PERFORM make_endpoints(array_agg(lower(hostName)), array_agg(serviceFlavour))
    FROM pg_temp.staged_serviceendpoint;

    INSERT INTO endpoint_membership AS known (
        site_id, endpoint_id, vo_id, valid_from, valid_to,
        service_uri, production, monitored, message_id
    )
    SELECT DISTINCT ON (site_id, endpoint_id, vo_id, validFrom)
        site_id, endpoint_id, vo_id, validFrom,
        min(validTo) OVER (PARTITION BY site_id, endpoint_id, vo_id, validFrom),
        serviceURI, production, monitored, messageId
    FROM (
        SELECT
            (SELECT x.site_id FROM site AS x WHERE x.name = s.siteName) AS site_id,
            (
                SELECT e.endpoint_id FROM endpoint AS e
                WHERE e.host_id = (
                        SELECT h.host_id FROM host AS h WHERE h.name = lower(s.hostName)
                    )
                    AND e.service_flavour_id = (
                        SELECT f.service_flavour_id FROM service_flavour AS f
                        WHERE f.name = s.serviceFlavour
                    )
            ) AS endpoint_id,
            (SELECT x.vo_id FROM vo AS x WHERE x.name = coalesce(s.voName, '')) AS vo_id,
            s.*,
            s.ctid AS place
        FROM pg_temp.staged_serviceendpoint AS s
    ) AS staged
    ORDER BY site_id, endpoint_id, vo_id, validFrom, place
    ON CONFLICT (site_id, endpoint_id, vo_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(known.valid_to, 'infinity');
    PERFORM close_staging('serviceendpoint');
END
$$;
COMMENT ON FUNCTION serviceEndpoint_load IS 'Store the staged endpoints.';

CREATE FUNCTION serviceEndpoint_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO pg_temp.staged_serviceendpoint VALUES (NEW.*);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION serviceEndpoint_stage IS 'Stages that an endpoint belongs to a site.';

CREATE TRIGGER serviceEndpoint_begin BEFORE INSERT ON serviceEndpoint
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER serviceEndpoint_begin ON serviceEndpoint IS 'Makes the staging table.';
CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint
FOR EACH ROW EXECUTE FUNCTION serviceEndpoint_stage();
COMMENT ON TRIGGER serviceEndpoint_insert ON serviceEndpoint IS
    'Stages that an endpoint belongs to a site.';
CREATE TRIGGER serviceEndpoint_end AFTER INSERT ON serviceEndpoint
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER serviceEndpoint_end ON serviceEndpoint IS 'Stores the staged endpoints.';

-- siteGroup: as serviceEndpoint -----------------------------------------------------------------

CREATE FUNCTION siteGroup_load() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT * FROM pg_temp.staged_sitegroup ORDER BY ctid LOOP
        PERFORM demand(one.siteName <> '', 'siteName', one.siteName, 'is no site');
        PERFORM demand(one.groupName <> '', 'groupName', one.groupName, 'is no group');
        PERFORM demand(one.groupType <> '', 'groupType', one.groupType, 'is no type of group');
        PERFORM demand(
            coalesce(one.weight, 0) >= 0, 'weight', CAST(one.weight AS text), 'is no weight'
        );
        PERFORM demand(
            is_time(one.validFrom), 'validFrom', CAST(one.validFrom AS text), 'is no time'
        );
        PERFORM demand(
            one.validTo IS NULL OR is_time(one.validTo),
            'validTo', CAST(one.validTo AS text), 'is no time'
        );
    END LOOP;
    PERFORM make_names('site', array_agg(siteName)) FROM pg_temp.staged_sitegroup;
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

    INSERT INTO site_group_member AS known (
        site_group_id, site_id, valid_from, valid_to, weight, message_id
    )
    SELECT DISTINCT ON (site_group_id, site_id, validFrom)
        site_group_id, site_id, validFrom,
        min(validTo) OVER (PARTITION BY site_group_id, site_id, validFrom), weight, messageId
    FROM (
        SELECT
            (
                SELECT x.site_group_id FROM site_group AS x
                WHERE x.group_type = s.groupType AND x.name = s.groupName
            ) AS site_group_id,
            (SELECT x.site_id FROM site AS x WHERE x.name = s.siteName) AS site_id,
            s.*,
            s.ctid AS place
        FROM pg_temp.staged_sitegroup AS s
    ) AS staged
    ORDER BY site_group_id, site_id, validFrom, place
    ON CONFLICT (site_id, site_group_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(known.valid_to, 'infinity');
    PERFORM close_staging('sitegroup');
END
$$;
COMMENT ON FUNCTION siteGroup_load IS 'Store the staged members of groups.';

CREATE FUNCTION siteGroup_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO pg_temp.staged_sitegroup VALUES (NEW.*);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION siteGroup_stage IS 'Stages that a site belongs to a group.';

CREATE TRIGGER siteGroup_begin BEFORE INSERT ON siteGroup
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER siteGroup_begin ON siteGroup IS 'Makes the staging table.';
CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup
FOR EACH ROW EXECUTE FUNCTION siteGroup_stage();
COMMENT ON TRIGGER siteGroup_insert ON siteGroup IS 'Stages that a site belongs to a group.';
CREATE TRIGGER siteGroup_end AFTER INSERT ON siteGroup
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER siteGroup_end ON siteGroup IS 'Stores the staged members of groups.';

-- downtime: the newest announcement wins; one without a timestamp is older than any with one -

CREATE FUNCTION downtime_load() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT * FROM pg_temp.staged_downtime ORDER BY ctid LOOP
        PERFORM demand(
            concat(one.siteName, one.hostName) <> '', 'hostName', one.hostName,
            'is no host, and there is no siteName'
        );
        PERFORM demand(
            is_time(one.startTime), 'startTime', CAST(one.startTime AS text), 'is no time'
        );
        PERFORM demand(is_time(one.endTime), 'endTime', CAST(one.endTime AS text), 'is no time');
        PERFORM demand(
            one.endTime >= one.startTime,
            'endTime', CAST(one.endTime AS text), 'is before startTime'
        );
        PERFORM demand(
            one.classification <> '', 'classification', one.classification,
            'is no classification'
        );
        PERFORM demand(one.severity <> '', 'severity', one.severity, 'is no severity');
        PERFORM demand(
            one.timestamp IS NULL OR is_time(one.timestamp),
            'timestamp', CAST(one.timestamp AS text), 'is no time'
        );
    END LOOP;
    PERFORM make_names('site', array_agg(coalesce(siteName, ''))) FROM pg_temp.staged_downtime;
    PERFORM make_names('host', array_agg(coalesce(lower(hostName), '')))
    FROM pg_temp.staged_downtime;
    PERFORM make_names('service_flavour', array_agg(coalesce(serviceFlavour, '')))
    FROM pg_temp.staged_downtime;

    INSERT INTO announced_downtime AS known (
        downtime_id, site_id, host_id, service_flavour_id, start_key,
        start_time, end_time, classification, severity, description, announced_at, message_id
    )
    SELECT DISTINCT ON (id, site_id, host_id, service_flavour_id, start_key)
        id, site_id, host_id, service_flavour_id, start_key,
        startTime, endTime, classification, severity, description, timestamp, messageId
    FROM (
        SELECT
            coalesce(s.downtimeId, '') AS id,
            (SELECT x.site_id FROM site AS x WHERE x.name = coalesce(s.siteName, '')) AS site_id,
            (SELECT x.host_id FROM host AS x WHERE x.name = coalesce(lower(s.hostName), ''))
                AS host_id,
            (
                SELECT x.service_flavour_id FROM service_flavour AS x
                WHERE x.name = coalesce(s.serviceFlavour, '')
            ) AS service_flavour_id,
            CASE
                WHEN coalesce(s.downtimeId, '') <> '' THEN 0
                ELSE extract(epoch FROM s.startTime)
            END AS start_key,
            s.*,
            s.ctid AS place
        FROM pg_temp.staged_downtime AS s
    ) AS staged
    ORDER BY
        id, site_id, host_id, service_flavour_id, start_key, timestamp DESC NULLS LAST, place
    ON CONFLICT (downtime_id, site_id, host_id, service_flavour_id, start_key) DO UPDATE SET
        start_time = excluded.start_time,
        end_time = excluded.end_time,
        classification = excluded.classification,
        severity = excluded.severity,
        description = excluded.description,
        announced_at = excluded.announced_at,
        message_id = excluded.message_id
    WHERE excluded.announced_at > coalesce(known.announced_at, '-infinity');
    PERFORM close_staging('downtime');
END
$$;
COMMENT ON FUNCTION downtime_load IS 'Store the staged downtimes.';

CREATE FUNCTION downtime_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO pg_temp.staged_downtime VALUES (NEW.*);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION downtime_stage IS 'Stages an announced downtime.';

CREATE TRIGGER downtime_begin BEFORE INSERT ON downtime
FOR EACH STATEMENT EXECUTE FUNCTION stage_begin();
COMMENT ON TRIGGER downtime_begin ON downtime IS 'Makes the staging table.';
CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime
FOR EACH ROW EXECUTE FUNCTION downtime_stage();
COMMENT ON TRIGGER downtime_insert ON downtime IS 'Stages an announced downtime.';
CREATE TRIGGER downtime_end AFTER INSERT ON downtime
FOR EACH STATEMENT EXECUTE FUNCTION stage_end();
COMMENT ON TRIGGER downtime_end ON downtime IS 'Stores the staged downtimes.';

-- What follows from the rows that were stored: the days whose reports are due, the newest statuses.
--
-- Results tell theirs in load_news, and fold_news() brings both up to it; topology and downtimes,
-- which are few, mark their days at once.

-- What has changed since reports were made -----------------------------------------------------

CREATE FUNCTION mark_days(starts timestamptz[], ends timestamptz[]) RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    today CONSTANT date := CAST(now() AS date);
    first_day date := (
        SELECT greatest(min(c.day), (SELECT h.day FROM horizon AS h)) FROM changed_day AS c
    );
BEGIN
    INSERT INTO changed_day (day)
    SELECT d.day
    FROM (SELECT first_day + n AS day FROM generate_series(0, today - first_day) AS n) AS d
    WHERE EXISTS (
        SELECT FROM unnest(starts, ends) AS touched (start_time, end_time)
        WHERE start_time <= d.day AND end_time > d.day
    )
    ORDER BY d.day
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE changed_day.change_no IS NOT NULL;
END
$$;
COMMENT ON FUNCTION mark_days IS
    'The reports of days whose beginning lies in one of [start, end) are to be made again: of '
    'those from the first with results (or the first not frozen) up to today.';

-- Topology counts on the days that begin while it is valid.

CREATE FUNCTION membership_begin() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM mark_days(array_agg(valid_from), array_agg(coalesce(valid_to, 'infinity')))
    FROM new_rows;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION membership_begin IS 'Marks the days of new memberships.';

CREATE FUNCTION membership_end() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    -- Of a row that is there only the end changes, and only to an earlier one.
    EXECUTE format(
        'SELECT mark_days(
            array_agg(n.valid_to), array_agg(coalesce(o.valid_to, ''infinity''))
        ) FROM old_rows AS o JOIN new_rows AS n USING (%I)', TG_ARGV[0]
    );
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION membership_end IS 'Marks the days that memberships have lost.';

CREATE TRIGGER endpoint_membership_insert AFTER INSERT ON endpoint_membership
REFERENCING NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION membership_begin();
COMMENT ON TRIGGER endpoint_membership_insert ON endpoint_membership IS 'Marks changed days.';
CREATE TRIGGER endpoint_membership_update AFTER UPDATE ON endpoint_membership
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION membership_end('membership_id');
COMMENT ON TRIGGER endpoint_membership_update ON endpoint_membership IS 'Marks changed days.';

CREATE TRIGGER site_group_member_insert AFTER INSERT ON site_group_member
REFERENCING NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION membership_begin();
COMMENT ON TRIGGER site_group_member_insert ON site_group_member IS 'Marks changed days.';
CREATE TRIGGER site_group_member_update AFTER UPDATE ON site_group_member
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION membership_end('member_id');
COMMENT ON TRIGGER site_group_member_update ON site_group_member IS 'Marks changed days.';

-- A downtime counts on each day that it touches, the old one as well as the new.

CREATE FUNCTION downtime_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'SELECT mark_days(array_agg(date_trunc(''day'', start_time, ''UTC'')), array_agg(end_time))
        FROM (%s) AS touched WHERE start_time < end_time',
        CASE TG_OP
            WHEN 'INSERT' THEN 'SELECT * FROM new_rows'
            ELSE 'SELECT * FROM old_rows UNION ALL SELECT * FROM new_rows'
        END
    );
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION downtime_change IS 'Marks the days of new and of changed downtimes.';

CREATE TRIGGER announced_downtime_insert AFTER INSERT ON announced_downtime
REFERENCING NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION downtime_change();
COMMENT ON TRIGGER announced_downtime_insert ON announced_downtime IS 'Marks changed days.';
CREATE TRIGGER announced_downtime_update AFTER UPDATE ON announced_downtime
REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION downtime_change();
COMMENT ON TRIGGER announced_downtime_update ON announced_downtime IS 'Marks changed days.';

-- The newest statuses ---------------------------------------------------------------------------
-- A result newer than the newest tells a status, or moves on the one that holds. An older one
-- changes nothing if its status is the one that held then: since the status began, or before
-- other_at. Else the history of its instances is read.

CREATE FUNCTION read_history(status_ids integer[]) RETURNS void
LANGUAGE sql SET timezone = 'UTC' AS $$
    UPDATE instance_status AS known SET
        status = newest.status,
        measured_at = newest.measured_at,
        summary = newest.summary,
        -- What is known of results that were pruned is remembered.
        other_at = coalesce(other.measured_at, pruned.other_at),
        since = least(since.measured_at, pruned.since)
    FROM unnest(status_ids) AS wanted (status_id)
    CROSS JOIN LATERAL (
        SELECT r.measured_at, r.status, r.summary
        FROM metric_instance AS i
        CROSS JOIN LATERAL (
            SELECT q.measured_at, q.status, q.summary, q.result_id FROM metric_result AS q
            WHERE q.instance_id = i.instance_id
            ORDER BY q.measured_at DESC, q.status DESC, q.result_id
            LIMIT 1
        ) AS r
        WHERE i.status_id = wanted.status_id
        ORDER BY r.measured_at DESC, r.status DESC, r.result_id
        LIMIT 1
    ) AS newest
    LEFT JOIN LATERAL (
        SELECT max(r.measured_at) AS measured_at
        FROM metric_instance AS i
        CROSS JOIN LATERAL (
            SELECT q.measured_at FROM metric_result AS q
            WHERE q.instance_id = i.instance_id
                AND q.measured_at < newest.measured_at
                AND q.status <> newest.status
                AND (
                    -- Of several results of one moment the worse counts.
                    q.status > newest.status OR NOT EXISTS (
                        SELECT FROM metric_instance AS j
                        JOIN metric_result AS p ON p.instance_id = j.instance_id
                        WHERE j.status_id = wanted.status_id
                            AND p.measured_at = q.measured_at
                            AND p.status >= newest.status
                    )
                )
            ORDER BY q.measured_at DESC
            LIMIT 1
        ) AS r
        WHERE i.status_id = wanted.status_id
    ) AS other ON true
    LEFT JOIN LATERAL (
        SELECT
            CASE WHEN k.other_at < h.day THEN k.other_at END AS other_at,
            CASE WHEN k.since < h.day THEN k.since END AS since
        FROM instance_status AS k
        CROSS JOIN horizon AS h
        WHERE k.status_id = wanted.status_id
            AND k.status = newest.status
            AND other.measured_at IS NULL
    ) AS pruned ON true
    CROSS JOIN LATERAL (
        SELECT min(r.measured_at) AS measured_at
        FROM metric_instance AS i
        CROSS JOIN LATERAL (
            SELECT q.measured_at FROM metric_result AS q
            WHERE q.instance_id = i.instance_id
                AND q.measured_at
                    > coalesce(other.measured_at, pruned.other_at, '-infinity')
            ORDER BY q.measured_at
            LIMIT 1
        ) AS r
        WHERE i.status_id = wanted.status_id
    ) AS since
    WHERE known.status_id = wanted.status_id
$$;
COMMENT ON FUNCTION read_history IS 'Find these statuses anew in the results.';

CREATE FUNCTION fold_batches(at_most integer) RETURNS integer
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    today CONSTANT date := CAST(now() AS date);
    frozen CONSTANT date := (SELECT day FROM horizon);
    folded integer;
    late integer[];
BEGIN
    PERFORM make_temporary('sam_news', '
        status_id integer, measured_at timestamptz, status smallint, summary text, place bigint
    ');
    WITH taken AS (
        DELETE FROM load_news
        WHERE news_id IN (SELECT n.news_id FROM load_news AS n ORDER BY n.news_id LIMIT at_most)
        RETURNING *
    ),
    unpacked AS (
        INSERT INTO pg_temp.sam_news
        SELECT
            (SELECT i.status_id FROM metric_instance AS i WHERE i.instance_id = n.instance_id),
            n.measured_at, n.status, n.summary, row_number() OVER (ORDER BY news_id, n.place)
        FROM taken
        CROSS JOIN unnest(instance_ids, measured_ats, statuses, summaries)
            WITH ORDINALITY AS n (instance_id, measured_at, status, summary, place)
    )
    SELECT count(*) INTO folded FROM taken;

    -- Sub-queries with a limit are looked up by index, whatever the statistics say.
    SELECT array_agg(DISTINCT k.status_id) INTO late
    FROM pg_temp.sam_news AS n
    JOIN LATERAL (
        SELECT * FROM instance_status AS i WHERE i.status_id = n.status_id LIMIT 1
    ) AS k ON true
    WHERE n.measured_at <= k.measured_at
        AND n.measured_at >= coalesce(k.other_at, '-infinity')
        AND (n.measured_at < k.since OR n.status <> k.status);

    WITH moment AS (
        SELECT DISTINCT ON (k.status_id, n.measured_at)
            k.status_id, n.measured_at, n.status, n.summary,
            k.status AS held, k.measured_at AS held_at
        FROM pg_temp.sam_news AS n
        JOIN LATERAL (
            SELECT * FROM instance_status AS i WHERE i.status_id = n.status_id LIMIT 1
        ) AS k ON true
        WHERE n.measured_at > coalesce(k.measured_at, '-infinity')
        ORDER BY k.status_id, n.measured_at, n.status DESC, n.place
    ),
    step AS (
        SELECT
            *,
            lag(status, 1, held) OVER w AS before,
            lag(measured_at, 1, held_at) OVER w AS before_at,
            lead(measured_at) OVER w AS after_at
        FROM moment
        WINDOW w AS (PARTITION BY status_id ORDER BY measured_at)
    ),
    newest AS (
        SELECT
            status_id,
            max(measured_at) AS measured_at,
            max(status) FILTER (WHERE after_at IS NULL) AS status,
            max(summary) FILTER (WHERE after_at IS NULL) AS summary,
            max(measured_at) FILTER (WHERE status IS DISTINCT FROM before) AS since,
            max(before_at) FILTER (WHERE status IS DISTINCT FROM before) AS other_at
        FROM step
        GROUP BY status_id
    )
    UPDATE instance_status AS k SET
        status = newest.status,
        measured_at = newest.measured_at,
        summary = newest.summary,
        since = coalesce(newest.since, k.since),
        other_at = CASE WHEN newest.since IS NULL THEN k.other_at ELSE newest.other_at END
    FROM newest
    WHERE k.status_id = newest.status_id;
    IF late IS NOT NULL THEN
        PERFORM read_history(late);
    END IF;

    -- A report looks back to the day before: so a result changes two of them.
    INSERT INTO changed_day (day)
    SELECT DISTINCT day
    FROM (
        SELECT CAST(measured_at AS date) AS day FROM pg_temp.sam_news
        UNION ALL
        SELECT CAST(measured_at AS date) + 1 FROM pg_temp.sam_news
    ) AS touched
    WHERE day <= today AND day >= coalesce(frozen, day)
    ORDER BY day
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE changed_day.change_no IS NOT NULL;
    DELETE FROM pg_temp.sam_news;
    RETURN folded;
END
$$;
COMMENT ON FUNCTION fold_batches IS
    'Bring statuses and changed days up to the oldest news; how many batches these were. The '
    'caller holds the lock that makes it the only one.';

CREATE FUNCTION fold_news() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('sam news', 0)) THEN
        RETURN 0;
    END IF;
    RETURN fold_batches(100);
END
$$;
COMMENT ON FUNCTION fold_news IS
    'Bring instance_status and changed_day up to what was loaded, 100 batches at a time, unless '
    'somebody is just doing so; how many batches.';

CREATE FUNCTION take_changes() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('sam news', 0));
    -- Loaders mark days in any order: with the whole table we can't meet them half-way.
    LOCK TABLE changed_day IN SHARE ROW EXCLUSIVE MODE;
    WHILE fold_batches(1000) > 0 LOOP
    END LOOP;
    UPDATE change_counter SET change_no = change_no + 1 RETURNING change_no INTO number;
    UPDATE changed_day SET change_no = number WHERE change_no IS NULL;
    RETURN number;
END
$$;
COMMENT ON FUNCTION take_changes IS
    'Number the changes that a run is going to read, all that is committed; the number.';

-- What was there before -------------------------------------------------------------------------

INSERT INTO instance_status (endpoint_id, metric_id, vo_id)
SELECT DISTINCT endpoint_id, metric_id, vo_id FROM sam_before.metric_instance ORDER BY 1, 2, 3;
INSERT INTO metric_instance (instance_id, endpoint_id, metric_id, vo_id, fqan_id, status_id)
OVERRIDING SYSTEM VALUE
SELECT o.instance_id, o.endpoint_id, o.metric_id, o.vo_id, o.fqan_id, i.status_id
FROM sam_before.metric_instance AS o
JOIN instance_status AS i USING (endpoint_id, metric_id, vo_id);
INSERT INTO result_source (
    instance_id, service_uri, service_type, site_name, metric_type, data_type,
    monitoring_host, role, nagios_name, encrypted, names
)
SELECT
    p.instance_id, o.service_uri, o.service_type, o.site_name, o.metric_type, o.data_type,
    o.monitoring_host, o.role, o.nagios_name, o.encrypted,
    source_names(
        n.host_name, n.service_flavour, n.metric_name, n.vo, n.fqan, o.service_uri,
        o.service_type, o.site_name, o.metric_type, o.data_type, o.monitoring_host,
        o.role, o.nagios_name, o.encrypted
    )
FROM (SELECT DISTINCT instance_id, origin_id FROM sam_before.metric_result) AS p
JOIN metric_instance_name AS n USING (instance_id)
JOIN sam_before.result_origin AS o USING (origin_id)
ORDER BY 1;

SELECT make_partitions(array_agg(DISTINCT CAST(measured_at AT TIME ZONE 'UTC' AS date)))
FROM sam_before.metric_result;
INSERT INTO metric_result (
    result_id, measured_at, instance_id, gatherer_id, source_id, status,
    summary, performance_data, message_id
)
OVERRIDING SYSTEM VALUE
SELECT
    r.result_id, r.measured_at, r.instance_id, r.gatherer_id, k.source_id, r.status,
    r.summary, r.performance_data, r.message_id
FROM sam_before.metric_result AS r
JOIN sam_before.result_origin AS o USING (origin_id)
JOIN result_source AS k USING (
    instance_id, service_uri, service_type, site_name, metric_type, data_type,
    monitoring_host, role, nagios_name, encrypted
)
ORDER BY r.measured_at, r.result_id;
INSERT INTO metric_result_detail (instance_id, measured_at, gatherer_id, status, details)
SELECT r.instance_id, r.measured_at, r.gatherer_id, r.status, d.details
FROM sam_before.metric_result_detail AS d
JOIN sam_before.metric_result AS r USING (result_id);
SELECT
    setval(pg_get_serial_sequence('metric_instance', 'instance_id'), max(instance_id))
FROM metric_instance;
SELECT setval(pg_get_serial_sequence('metric_result', 'result_id'), max(result_id))
FROM metric_result;
DROP TABLE sam_before.metric_result_detail;
DROP TABLE sam_before.metric_result;
DROP TABLE sam_before.result_origin;
DROP TABLE sam_before.metric_instance;
DROP SCHEMA sam_before;

ANALYZE metric_instance, metric_result;
SELECT read_history(array_agg(status_id)) FROM instance_status;
-- Reports that are there are taken for up to date: nobody has noted what changed since.
INSERT INTO changed_day (day, change_no)
SELECT day, 1
FROM (
    SELECT CAST(measured_at AT TIME ZONE 'UTC' AS date) AS day FROM metric_result
    UNION
    SELECT CAST(measured_at AT TIME ZONE 'UTC' AS date) + 1 FROM metric_result
) AS touched
WHERE day <= CAST(now() AT TIME ZONE 'UTC' AS date)
ORDER BY day;
UPDATE run SET change_no = 1;
UPDATE change_counter SET change_no = 1;
