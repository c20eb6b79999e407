-- Inserts into the class views: check, look the names up (or create them), merge.
--
-- Redelivery is normal: the broker re-sends whatever was not acked. So a second copy changes
-- nothing, and which status, end or announcement wins does not depend on the order of arrival.
--
-- Names are created by one transaction at a time (an advisory lock, held to its end): two that met
-- the same new names in another order would deadlock on the unique indexes. Names that exist take
-- no lock.

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
LANGUAGE sql STABLE AS $$
    SELECT isfinite(value) AND value = date_trunc('second', value)
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
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'another transaction is creating names: run this one again'
            USING ERRCODE = 'serialization_failure';
    END IF;
    PERFORM pg_advisory_xact_lock(key);
END
$$;
COMMENT ON FUNCTION lock_names IS
    'Become the one transaction that creates names. One that has written nothing yet waits for '
    'its turn; another must not, as others may already wait for its rows.';

CREATE FUNCTION id_of_name(kind text, wanted text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    found_id integer;
BEGIN
    LOOP
        EXECUTE format('SELECT %I FROM %I WHERE name = $1', kind || '_id', kind)
            INTO found_id USING coalesce(wanted, '');
        IF found_id IS NOT NULL THEN
            RETURN found_id;
        END IF;
        PERFORM lock_names();
        EXECUTE format('INSERT INTO %I (name) VALUES ($1) ON CONFLICT DO NOTHING', kind)
            USING coalesce(wanted, '');
    END LOOP;
END
$$;
COMMENT ON FUNCTION id_of_name IS 'The id of a name in the table of that kind; created if new.';

CREATE FUNCTION id_of_endpoint(host_name text, flavour text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    the_host integer := id_of_name('host', lower(host_name));
    the_flavour integer := id_of_name('service_flavour', flavour);
    found_id integer;
BEGIN
    LOOP
        SELECT endpoint_id INTO found_id FROM endpoint
        WHERE host_id = the_host AND service_flavour_id = the_flavour;
        IF FOUND THEN
            RETURN found_id;
        END IF;
        PERFORM lock_names();
        INSERT INTO endpoint (host_id, service_flavour_id) VALUES (the_host, the_flavour)
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
COMMENT ON FUNCTION id_of_endpoint IS 'The id of a service flavour on a host; created if new.';

-- metricOutput: of two statuses for one moment the worse stays, with its whole row ------------

CREATE FUNCTION make_names(result metricOutput) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    flavour text := coalesce(result.serviceFlavour, result.serviceType);
    names text[] := ARRAY[
        lower(result.hostName), flavour, result.metricName,
        coalesce(result.voName, ''), coalesce(result.voFqan, '')
    ];
BEGIN
    PERFORM demand(result.hostName <> '', 'hostName', result.hostName, 'is no host');
    PERFORM demand(flavour <> '', 'serviceFlavour', flavour, 'is no flavour');
    PERFORM demand(result.metricName <> '', 'metricName', result.metricName, 'is no metric');
    PERFORM demand(
        EXISTS (SELECT FROM metric_status WHERE name = upper(result.metricStatus)),
        'metricStatus', result.metricStatus, 'is none of OK, WARNING, CRITICAL, UNKNOWN'
    );
    PERFORM demand(
        array_to_string(names, '') !~ E'\x1f', 'hostName', result.hostName,
        'and the other names must not hold a unit separator'
    );
    PERFORM lock_names();
    PERFORM id_of_name('host', result.gatheredAt);
    INSERT INTO metric_instance (endpoint_id, metric_id, vo_id, fqan_id, names)
    VALUES (
        id_of_endpoint(result.hostName, flavour), id_of_name('metric', result.metricName),
        id_of_name('vo', result.voName), id_of_name('fqan', result.voFqan),
        array_to_string(names, E'\x1f')
    )
    ON CONFLICT DO NOTHING;
    INSERT INTO result_origin (
        service_uri, service_type, site_name, metric_type, data_type,
        monitoring_host, role, nagios_name, encrypted
    )
    VALUES (
        coalesce(result.serviceURI, ''), coalesce(result.serviceType, ''),
        coalesce(result.siteName, ''), coalesce(result.metricType, ''),
        coalesce(result.dataType, ''), coalesce(result.monitoringHost, ''),
        coalesce(result.role, ''), coalesce(result.nagiosName, ''),
        coalesce(result.encrypted, '')
    )
    ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION make_names IS 'Check and create whatever names a result brings.';

CREATE FUNCTION metricOutput_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    new_status smallint;
    instance integer;
    gatherer integer;
    origin integer;
    stored_id bigint;
BEGIN
    IF is_time(NEW.timestamp) IS NOT TRUE THEN
        PERFORM demand(false, 'timestamp', CAST(NEW.timestamp AS text), 'is no time');
    END IF;
    FOR attempt IN 1..2 LOOP
        SELECT s.status, i.instance_id, g.host_id, o.origin_id
        INTO new_status, instance, gatherer, origin
        FROM metric_status AS s, metric_instance AS i, host AS g, result_origin AS o
        WHERE s.name = upper(NEW.metricStatus)
            AND i.names = concat_ws(
                E'\x1f', lower(NEW.hostName), coalesce(NEW.serviceFlavour, NEW.serviceType),
                NEW.metricName, coalesce(NEW.voName, ''), coalesce(NEW.voFqan, '')
            )
            AND g.name = coalesce(NEW.gatheredAt, '')
            AND o.service_uri = coalesce(NEW.serviceURI, '')
            AND o.service_type = coalesce(NEW.serviceType, '')
            AND o.site_name = coalesce(NEW.siteName, '')
            AND o.metric_type = coalesce(NEW.metricType, '')
            AND o.data_type = coalesce(NEW.dataType, '')
            AND o.monitoring_host = coalesce(NEW.monitoringHost, '')
            AND o.role = coalesce(NEW.role, '')
            AND o.nagios_name = coalesce(NEW.nagiosName, '')
            AND o.encrypted = coalesce(NEW.encrypted, '');
        EXIT WHEN FOUND;
        PERFORM make_names(NEW);
    END LOOP;

    INSERT INTO metric_result (
        instance_id, measured_at, gatherer_id, status, origin_id,
        summary, performance_data, message_id
    )
    VALUES (
        instance, NEW.timestamp, gatherer, new_status, origin,
        NEW.summaryData, NEW.performanceData, NEW.messageId
    )
    ON CONFLICT (instance_id, measured_at, gatherer_id) DO UPDATE SET
        status = excluded.status,
        origin_id = excluded.origin_id,
        summary = excluded.summary,
        performance_data = excluded.performance_data,
        message_id = excluded.message_id
    WHERE excluded.status > metric_result.status
    RETURNING result_id INTO stored_id;
    IF stored_id < lastval() THEN  -- the row was there, and this one is worse
        DELETE FROM metric_result_detail WHERE result_id = stored_id;
    END IF;
    IF stored_id IS NOT NULL AND NEW.detailsData IS NOT NULL THEN
        INSERT INTO metric_result_detail (result_id, details)
        VALUES (stored_id, NEW.detailsData);
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION metricOutput_insert IS 'Stores a result of a probe.';

CREATE TRIGGER metricOutput_insert INSTEAD OF INSERT ON metricOutput
FOR EACH ROW EXECUTE FUNCTION metricOutput_insert();
COMMENT ON TRIGGER metricOutput_insert ON metricOutput IS 'Stores a result of a probe.';

-- serviceEndpoint: the first row stays; validTo: a value beats none, of two the earlier ----

CREATE FUNCTION serviceEndpoint_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM demand(NEW.siteName <> '', 'siteName', NEW.siteName, 'is no site');
    PERFORM demand(NEW.hostName <> '', 'hostName', NEW.hostName, 'is no host');
    PERFORM demand(
        NEW.serviceFlavour <> '', 'serviceFlavour', NEW.serviceFlavour, 'is no flavour'
    );
    PERFORM demand(is_time(NEW.validFrom), 'validFrom', CAST(NEW.validFrom AS text), 'is no time');
    PERFORM demand(
        NEW.validTo IS NULL OR is_time(NEW.validTo),
        'validTo', CAST(NEW.validTo AS text), 'is no time'
    );
    INSERT INTO endpoint_membership AS known (
        site_id, endpoint_id, vo_id, valid_from, valid_to,
        service_uri, production, monitored, message_id
    )
    VALUES (
        id_of_name('site', NEW.siteName), id_of_endpoint(NEW.hostName, NEW.serviceFlavour),
        id_of_name('vo', NEW.voName), NEW.validFrom, NEW.validTo,
        NEW.serviceURI, NEW.production, NEW.monitored, NEW.messageId
    )
    ON CONFLICT (site_id, endpoint_id, vo_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(known.valid_to, 'infinity');
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION serviceEndpoint_insert IS 'Stores that an endpoint belongs to a site.';

CREATE TRIGGER serviceEndpoint_insert INSTEAD OF INSERT ON serviceEndpoint
FOR EACH ROW EXECUTE FUNCTION serviceEndpoint_insert();
COMMENT ON TRIGGER serviceEndpoint_insert ON serviceEndpoint IS
    'Stores that an endpoint belongs to a site.';

-- siteGroup: as serviceEndpoint -----------------------------------------------------------------

CREATE FUNCTION id_of_site_group(the_type text, the_name text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    found_id integer;
BEGIN
    LOOP
        SELECT site_group_id INTO found_id FROM site_group
        WHERE group_type = the_type AND name = the_name;
        IF FOUND THEN
            RETURN found_id;
        END IF;
        PERFORM lock_names();
        INSERT INTO site_group (group_type, name) VALUES (the_type, the_name)
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
COMMENT ON FUNCTION id_of_site_group IS 'The id of a group of sites; created if new.';

CREATE FUNCTION siteGroup_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM demand(NEW.siteName <> '', 'siteName', NEW.siteName, 'is no site');
    PERFORM demand(NEW.groupName <> '', 'groupName', NEW.groupName, 'is no group');
    PERFORM demand(NEW.groupType <> '', 'groupType', NEW.groupType, 'is no type of group');
    PERFORM demand(
        coalesce(NEW.weight, 0) >= 0, 'weight', CAST(NEW.weight AS text), 'is no weight'
    );
    PERFORM demand(is_time(NEW.validFrom), 'validFrom', CAST(NEW.validFrom AS text), 'is no time');
    PERFORM demand(
        NEW.validTo IS NULL OR is_time(NEW.validTo),
        'validTo', CAST(NEW.validTo AS text), 'is no time'
    );
    INSERT INTO site_group_member AS known (
        site_group_id, site_id, valid_from, valid_to, weight, message_id
    )
    VALUES (
        id_of_site_group(NEW.groupType, NEW.groupName), id_of_name('site', NEW.siteName),
        NEW.validFrom, NEW.validTo, NEW.weight, NEW.messageId
    )
    ON CONFLICT (site_id, site_group_id, valid_from) DO UPDATE SET
        valid_to = excluded.valid_to
    WHERE excluded.valid_to < coalesce(known.valid_to, 'infinity');
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION siteGroup_insert IS 'Stores that a site belongs to a group.';

CREATE TRIGGER siteGroup_insert INSTEAD OF INSERT ON siteGroup
FOR EACH ROW EXECUTE FUNCTION siteGroup_insert();
COMMENT ON TRIGGER siteGroup_insert ON siteGroup IS 'Stores that a site belongs to a group.';

-- downtime: the newest announcement wins; one without a timestamp is older than any with one -

CREATE FUNCTION downtime_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM demand(
        concat(NEW.siteName, NEW.hostName) <> '', 'hostName', NEW.hostName,
        'is no host, and there is no siteName'
    );
    PERFORM demand(is_time(NEW.startTime), 'startTime', CAST(NEW.startTime AS text), 'is no time');
    PERFORM demand(is_time(NEW.endTime), 'endTime', CAST(NEW.endTime AS text), 'is no time');
    PERFORM demand(
        NEW.endTime >= NEW.startTime, 'endTime', CAST(NEW.endTime AS text), 'is before startTime'
    );
    PERFORM demand(
        NEW.classification <> '', 'classification', NEW.classification, 'is no classification'
    );
    PERFORM demand(NEW.severity <> '', 'severity', NEW.severity, 'is no severity');
    PERFORM demand(
        NEW.timestamp IS NULL OR is_time(NEW.timestamp),
        'timestamp', CAST(NEW.timestamp AS text), 'is no time'
    );
    INSERT INTO announced_downtime AS known (
        downtime_id, site_id, host_id, service_flavour_id, start_key,
        start_time, end_time, classification, severity, description, announced_at, message_id
    )
    VALUES (
        coalesce(NEW.downtimeId, ''), id_of_name('site', NEW.siteName),
        id_of_name('host', lower(NEW.hostName)),
        id_of_name('service_flavour', NEW.serviceFlavour),
        CASE
            WHEN coalesce(NEW.downtimeId, '') <> '' THEN 0
            ELSE extract(epoch FROM NEW.startTime)
        END,
        NEW.startTime, NEW.endTime, NEW.classification, NEW.severity, NEW.description,
        NEW.timestamp, NEW.messageId
    )
    ON CONFLICT (downtime_id, site_id, host_id, service_flavour_id, start_key) DO UPDATE SET
        start_time = excluded.start_time,
        end_time = excluded.end_time,
        classification = excluded.classification,
        severity = excluded.severity,
        description = excluded.description,
        announced_at = excluded.announced_at,
        message_id = excluded.message_id
    WHERE excluded.announced_at > coalesce(known.announced_at, '-infinity');
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION downtime_insert IS 'Stores an announced downtime.';

CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime
FOR EACH ROW EXECUTE FUNCTION downtime_insert();
COMMENT ON TRIGGER downtime_insert ON downtime IS 'Stores an announced downtime.';
