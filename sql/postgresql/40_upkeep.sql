-- Data derived from stored rows: the days whose reports are due, and the newest statuses. Then what
-- keeps the figures of reports.
--
-- Results are recorded in load_news, which fold_news() applies to both. Statements and exclusions are
-- few, so they mark the changed days at once.

-- Changes since the last reports ----------------------------------------------------------------

CREATE FUNCTION mark_days(starts timestamptz[], ends timestamptz[]) RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    today CONSTANT date := CAST(now() AS date);
    first_day date := (
        SELECT greatest(min(c.day), (SELECT h.day FROM horizon AS h)) FROM changed_day AS c
    );
BEGIN
    -- Loaders would deadlock if they locked the rows of days, since each may mark days several times.
    -- So a day that is marked already is left alone: take_changes() waits for our commit.
    LOCK TABLE changed_day IN ROW EXCLUSIVE MODE;
    INSERT INTO changed_day (day, results_no)
    SELECT d.day, 0
    FROM (SELECT first_day + n AS day FROM generate_series(0, today - first_day) AS n) AS d
    WHERE EXISTS (
        SELECT FROM unnest(starts, ends) AS changed (start_time, end_time)
        WHERE start_time <= d.day AND end_time > d.day
    )
        AND NOT EXISTS (
            SELECT FROM changed_day AS c WHERE c.day = d.day AND c.change_no IS NULL
        )
    ORDER BY d.day
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE changed_day.change_no IS NOT NULL;
END
$$;
COMMENT ON FUNCTION mark_days IS
    'Mark as changed all days that begin within one of the intervals [start, end), from the first '
    'day with results (or the first that is not frozen) up to today.';

-- An exclusion counts on each day that it overlaps. One of a monitoring host also covers the second
-- of end_time, and what results of that second would have carried into the next day.

CREATE FUNCTION exclusion_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM mark_days(
        array_agg(date_trunc('day', start_time, 'UTC')),
        array_agg(
            CASE kind
                WHEN 'monitoring-host' THEN end_time + interval '24 hours 1 second'
                ELSE end_time
            END
        )
    )
    FROM new_rows;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION exclusion_change IS
    'Trigger function: marks the days of new and removed exclusions.';

-- Mark the days of exclusions.
CREATE TRIGGER exclusion_insert AFTER INSERT ON exclusion
REFERENCING NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION exclusion_change();
CREATE TRIGGER exclusion_update AFTER UPDATE ON exclusion
REFERENCING NEW TABLE AS new_rows
FOR EACH STATEMENT EXECUTE FUNCTION exclusion_change();

-- The newest statuses ---------------------------------------------------------------------------
-- A result newer than the newest one starts a status or extends the present one. An older result
-- changes nothing if it is older than other_at, or if it has the present status and is not older
-- than since. Otherwise the history of its instances is read.

CREATE FUNCTION read_history(status_ids integer[]) RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    start CONSTANT timestamptz := coalesce((
        SELECT to_date(right(c.relname, 8), 'YYYYMMDD')
        FROM pg_inherits AS i
        JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = CAST('metric_result' AS regclass)
        ORDER BY c.relname DESC
        OFFSET 365
        LIMIT 1
    ), '-infinity');
BEGIN
    -- EXECUTE knows the value of start while it plans, so that only partitions after it are locked.
    EXECUTE $statement$
    UPDATE instance_status AS known SET
        status = newest.status,
        measured_at = newest.measured_at,
        summary = newest.summary,
        -- What is known from pruned and older results is kept.
        other_at = coalesce(other.measured_at, pruned.other_at),
        since = least(since.measured_at, pruned.since)
    FROM unnest($1) AS wanted (status_id)
    CROSS JOIN LATERAL (
        SELECT r.measured_at, r.status, r.summary
        FROM metric_instance AS i
        CROSS JOIN LATERAL (
            SELECT q.measured_at, q.status, q.summary, q.result_id FROM metric_result AS q
            WHERE q.instance_id = i.instance_id AND q.measured_at >= $2
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
                AND q.measured_at >= $2
                AND q.measured_at < newest.measured_at
                AND q.status <> newest.status
                -- Of several results for one moment the worst counts.
                AND newest.status <> (
                    SELECT max(p.status)
                    FROM metric_instance AS j
                    JOIN metric_result AS p ON p.instance_id = j.instance_id
                    WHERE j.status_id = wanted.status_id
                        AND p.measured_at >= $2
                        AND p.measured_at = q.measured_at
                )
            ORDER BY q.measured_at DESC
            LIMIT 1
        ) AS r
        WHERE i.status_id = wanted.status_id
    ) AS other ON true
    LEFT JOIN LATERAL (
        SELECT
            CASE WHEN k.other_at < h.start THEN k.other_at END AS other_at,
            CASE WHEN k.since < h.start THEN k.since END AS since
        FROM instance_status AS k
        CROSS JOIN (SELECT greatest(max(day), $2) AS start FROM horizon) AS h
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
                AND q.measured_at >= $2
                AND q.measured_at
                    > coalesce(other.measured_at, pruned.other_at, '-infinity')
            ORDER BY q.measured_at
            LIMIT 1
        ) AS r
        WHERE i.status_id = wanted.status_id
    ) AS since
    WHERE known.status_id = wanted.status_id
    $statement$ USING status_ids, start;
END
$$;
COMMENT ON FUNCTION read_history IS
    'Recompute these statuses from the stored results of the newest 366 days that have any: reading '
    'more partitions would take too many locks.';

CREATE FUNCTION fold_batches(at_most integer) RETURNS integer
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    today CONSTANT date := CAST(now() AS date);
    frozen CONSTANT date := (SELECT day FROM horizon);
    folded integer;
    late integer[];
    days date[];
    were_read date[];
BEGIN
    PERFORM make_temporary('sam_news', '
        status_id integer, measured_at timestamptz, status smallint, summary text, arrival bigint
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
            n.measured_at, n.status, n.summary, row_number() OVER (ORDER BY news_id, n.arrival)
        FROM taken
        CROSS JOIN unnest(instance_ids, measured_ats, statuses, summaries)
            WITH ORDINALITY AS n (instance_id, measured_at, status, summary, arrival)
    )
    SELECT count(*) INTO folded FROM taken;

    -- A sub-query with a limit uses the index regardless of the statistics.
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
        ORDER BY k.status_id, n.measured_at, n.status DESC, n.arrival
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
            max(before_at) FILTER (WHERE status IS DISTINCT FROM before) AS other_at,
            avg(CAST(extract(epoch FROM measured_at - before_at) AS real)) AS gap_s,
            count(before_at) AS gaps
        FROM step
        GROUP BY status_id
    )
    UPDATE instance_status AS k SET
        status = newest.status,
        measured_at = newest.measured_at,
        summary = newest.summary,
        since = coalesce(newest.since, k.since),
        other_at = CASE WHEN newest.since IS NULL THEN k.other_at ELSE newest.other_at END,
        -- It grows fast, by at most a half, and shrinks slowly, since after a problem many probes are
        -- repeated sooner than usual.
        interval_s = CASE
            WHEN newest.gap_s IS NULL THEN k.interval_s
            WHEN k.interval_s IS NULL THEN newest.gap_s
            WHEN newest.gap_s > k.interval_s
                THEN k.interval_s + least(newest.gap_s - k.interval_s, k.interval_s) / 2
            ELSE k.interval_s + (newest.gap_s - k.interval_s) / 16
        END,
        intervals = least(k.intervals + newest.gaps, 100)
    FROM newest
    WHERE k.status_id = newest.status_id;
    IF late IS NOT NULL THEN
        PERFORM read_history(late);
    END IF;

    -- A report looks back to the previous day, so a result changes two days.
    days := ARRAY(
        SELECT CAST(measured_at AS date) FROM pg_temp.sam_news
        UNION
        SELECT CAST(measured_at AS date) + 1 FROM pg_temp.sam_news
    );
    -- A day that runs have read changes only by results of endpoints that belong to a site then. For
    -- those of others it changes when the topology does.
    were_read := ARRAY(
        SELECT c.day FROM changed_day AS c WHERE c.day = ANY(days) AND c.results_no IS NOT NULL
    );
    IF were_read <> '{}' THEN
        days := ARRAY(
            SELECT unnest(days)
            EXCEPT
            SELECT unnest(were_read)
            UNION
            SELECT d.day
            FROM (
                SELECT DISTINCT status_id, CAST(measured_at AS date) + later AS day
                FROM pg_temp.sam_news CROSS JOIN generate_series(0, 1) AS later
            ) AS d
            JOIN instance_status AS i ON i.status_id = d.status_id
            JOIN endpoint_membership AS m ON m.endpoint_id = i.endpoint_id
            WHERE d.day = ANY(were_read)
                AND m.holds
                AND m.valid_from <= d.day
                AND coalesce(m.valid_to, 'infinity') > d.day
        );
    END IF;
    INSERT INTO changed_day (day)
    SELECT d.day FROM unnest(days) AS d (day)
    WHERE d.day <= today AND d.day >= coalesce(frozen, d.day)
        AND NOT EXISTS (
            SELECT FROM changed_day AS c WHERE c.day = d.day AND c.results_no IS NULL
        )
    ORDER BY d.day
    ON CONFLICT (day) DO UPDATE SET change_no = NULL, results_no = NULL
    WHERE changed_day.results_no IS NOT NULL;
    DELETE FROM pg_temp.sam_news;
    RETURN folded;
END
$$;
COMMENT ON FUNCTION fold_batches IS
    'Apply the oldest rows of load_news to statuses and changed days; returns the number of '
    'batches. The caller must hold the lock that prevents concurrent folds.';

CREATE FUNCTION fold_news() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    BEGIN
        LOCK TABLE change_counter IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
    EXCEPTION WHEN lock_not_available THEN
        RETURN 0;
    END;
    RETURN fold_batches(100);
END
$$;
COMMENT ON FUNCTION fold_news IS
    'Bring instance_status and changed_day up to date with loaded results, at most 100 batches at '
    'a time, unless another session is doing so; returns the number of batches.';

CREATE FUNCTION take_changes() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    LOCK TABLE change_counter IN SHARE UPDATE EXCLUSIVE MODE;
    -- Waits for all loaders that have changed a day, also one that was marked before.
    LOCK TABLE changed_day IN SHARE ROW EXCLUSIVE MODE;
    WHILE fold_batches(1000) > 0 LOOP
    END LOOP;
    UPDATE change_counter SET change_no = change_no + 1 RETURNING change_no INTO number;
    UPDATE changed_day SET change_no = number, results_no = coalesce(results_no, number)
    WHERE change_no IS NULL;
    RETURN number;
END
$$;
COMMENT ON FUNCTION take_changes IS
    'Number all committed changes, for a run that is about to read them; returns the number.';

-- Reports ---------------------------------------------------------------------------------------
-- A login that writes reports can add figures to a run while it is running. It cannot change or
-- delete those of other runs, nor what is published for a sealed month, except by sealing it again.

CREATE FUNCTION may_change(relation oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT pg_has_role(current_user, relowner, 'USAGE') FROM pg_class WHERE oid = relation
$$;
COMMENT ON FUNCTION may_change IS
    'Whether a statement, or the function that runs it, has the rights of the owner of the table.';

CREATE FUNCTION keep_published() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT may_change(TG_RELID) AND EXISTS (
        SELECT FROM seal AS s
        WHERE (s.report, s.month) IN (
            (NEW.report, to_char(NEW.day, 'YYYY-MM')), (OLD.report, to_char(OLD.day, 'YYYY-MM'))
        )
    ) THEN
        RAISE EXCEPTION 'permission denied: % of report % is sealed', NEW.day, NEW.report
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION keep_published IS
    'Trigger function: keeps the run that is published for a day of a sealed month.';

-- Keeps the days of sealed months.
CREATE TRIGGER published_run_change BEFORE INSERT OR UPDATE ON published_run
FOR EACH ROW EXECUTE FUNCTION keep_published();

CREATE FUNCTION keep_run() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT may_change(TG_RELID)
        AND to_jsonb(NEW) - 'change_no' <> to_jsonb(OLD) - 'change_no'
        AND EXISTS (
            SELECT FROM published_run AS p
            JOIN seal AS s ON s.report = p.report AND s.month = to_char(p.day, 'YYYY-MM')
            WHERE p.run_id = OLD.run_id
        )
    THEN
        RAISE EXCEPTION 'permission denied: % of report % is sealed', OLD.day, OLD.report
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT may_change(TG_RELID) AND OLD.state <> 'running'
        AND to_jsonb(NEW) - ARRAY['state', 'finished_at', 'change_no']
            <> to_jsonb(OLD) - ARRAY['state', 'finished_at', 'change_no']
    THEN
        RAISE EXCEPTION 'permission denied: run % has ended', OLD.run_id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION keep_run IS
    'Trigger function: keeps what a run has read after it ended, and the state of a run that is '
    'published in a sealed month. A later change may leave its inputs the same.';

-- Keeps what runs have read, and runs of sealed months.
CREATE TRIGGER run_change BEFORE UPDATE ON run FOR EACH ROW EXECUTE FUNCTION keep_run();

CREATE FUNCTION keep_figures() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT may_change(TG_RELID) AND EXISTS (
        SELECT FROM (SELECT DISTINCT n.run_id FROM new_rows AS n) AS added
        JOIN run USING (run_id)
        WHERE run.state <> 'running'
    ) THEN
        RAISE EXCEPTION 'permission denied: figures of a run that is not running'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION keep_figures IS
    'Trigger function: lets figures be added only to a run that is running.';

-- Keep the figures, groups, timelines and changes of runs that have ended.
CREATE TRIGGER figure_insert AFTER INSERT ON figure
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION keep_figures();
CREATE TRIGGER group_figure_insert AFTER INSERT ON group_figure
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION keep_figures();
CREATE TRIGGER group_site_insert AFTER INSERT ON group_site
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION keep_figures();
CREATE TRIGGER timeline_segment_insert AFTER INSERT ON timeline_segment
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION keep_figures();
CREATE TRIGGER report_change_row_insert AFTER INSERT ON report_change_row
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION keep_figures();

CREATE FUNCTION sweep_runs() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    unseen CONSTANT integer[] := ARRAY(
        SELECT run_id FROM run
        WHERE state IN ('superseded', 'failed')
            AND run_id NOT IN (SELECT c.run_id FROM candidate_run AS c)
            AND run_id NOT IN (SELECT p.run_id FROM published_run AS p)
    );
    in_no_revision CONSTANT integer[] := ARRAY(
        SELECT u FROM unnest(unseen) AS u WHERE u NOT IN (SELECT v.run_id FROM revision_run AS v)
    );
BEGIN
    DELETE FROM timeline_segment WHERE run_id = ANY (unseen);
    DELETE FROM figure WHERE run_id = ANY (in_no_revision);
    DELETE FROM group_figure WHERE run_id = ANY (in_no_revision);
    DELETE FROM group_site WHERE run_id = ANY (in_no_revision);
END
$$;
COMMENT ON FUNCTION sweep_runs IS
    'Delete the timelines and figures of runs that no view shows any more. Revisions of sealed '
    'months keep their figures.';

CREATE FUNCTION seal_month(
    sealed_report text, sealed_month text, sealed_by text, sealed_why text, sealed_time timestamptz,
    os_login text
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    days CONSTANT date[] := ARRAY(
        SELECT c.day FROM candidate_run AS c
        WHERE c.report = sealed_report AND to_char(c.day, 'YYYY-MM') = sealed_month
    );
    number integer;
BEGIN
    UPDATE run SET state = 'superseded'
    WHERE run_id IN (
        SELECT p.run_id FROM published_run AS p
        WHERE p.report = sealed_report AND p.day = ANY (days)
    );
    UPDATE run SET state = 'published'
    WHERE run_id IN (
        SELECT c.run_id FROM candidate_run AS c
        WHERE c.report = sealed_report AND c.day = ANY (days)
    );
    INSERT INTO published_run (report, day, run_id)
    SELECT report, day, run_id FROM candidate_run
    WHERE report = sealed_report AND day = ANY (days)
    ON CONFLICT (report, day) DO UPDATE SET run_id = excluded.run_id;
    DELETE FROM candidate_run WHERE report = sealed_report AND day = ANY (days);
    INSERT INTO seal (report, month, revision, who, reason, sealed_at)
    SELECT
        sealed_report, sealed_month, 1 + coalesce(max(s.revision), 0), sealed_by, sealed_why,
        sealed_time
    FROM seal AS s
    WHERE s.report = sealed_report AND s.month = sealed_month
    RETURNING revision INTO number;
    INSERT INTO revision_run (report, month, revision, day, run_id)
    SELECT sealed_report, sealed_month, number, p.day, p.run_id
    FROM published_run AS p
    WHERE p.report = sealed_report AND to_char(p.day, 'YYYY-MM') = sealed_month;
    PERFORM append_operation(os_login, 'seal', CAST(
        json_build_object(
            'report', sealed_report, 'month', sealed_month, 'who', sealed_by, 'reason', sealed_why
        ) AS text
    ));
END
$$;
COMMENT ON FUNCTION seal_month IS
    'Publish the candidates of a month, and record its new revision, who sealed it and why, also as '
    'an operation: nobody can seal a month without leaving a trace.';

-- Operations ------------------------------------------------------------------------------------

CREATE FUNCTION operation_digest(VARIADIC fields text[]) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(sha256(string_agg(sha256(convert_to(f.field, 'UTF8')), '' ORDER BY f.n)), 'hex')
    FROM unnest(fields) WITH ORDINALITY AS f (field, n)
$$;
COMMENT ON FUNCTION operation_digest IS 'SHA-256 of the SHA-256 of each field, in hex.';

CREATE FUNCTION append_operation(os_login text, command text, arguments text) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    happened_at CONSTANT timestamptz := date_trunc('second', clock_timestamp());
    last operation;
    number bigint;
BEGIN
    LOCK TABLE operation IN SHARE UPDATE EXCLUSIVE MODE;  -- one continues the chain at a time
    SELECT * INTO last FROM operation AS o ORDER BY o.operation_id DESC LIMIT 1;
    number := 1 + coalesce(last.operation_id, 0);  -- a sequence would leave gaps after a rollback
    INSERT INTO operation VALUES (
        number, happened_at, session_user, os_login, command, arguments, coalesce(last.digest, ''),
        operation_digest(
            CAST(number AS text), to_char(happened_at, 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
            CAST(session_user AS text), os_login, command, arguments, coalesce(last.digest, '')
        )
    );
END
$$;
COMMENT ON FUNCTION append_operation IS
    'Append an operation of the connected user to the chain; the caller states its own login on '
    'the operating system.';

CREATE FUNCTION record_operation(os_login text, command text, arguments text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    role CONSTANT text := CASE
        WHEN command IN ('run', 'exclusion add', 'exclusion remove') THEN 'sam_reporter'
        WHEN command = 'policy read' OR command LIKE 'dead-letter %' THEN 'sam_loader'
    END;
    -- Functions of JSON refuse NUL characters, which a text of ours may have.
    decoded CONSTANT json := replace(arguments, chr(92) || 'u0000', chr(92) || 'u0001');
BEGIN
    IF NOT pg_has_role(session_user, current_user, 'MEMBER') AND NOT EXISTS (
        SELECT FROM pg_roles AS r
        WHERE r.rolname = role AND pg_has_role(session_user, r.oid, 'MEMBER')
    ) THEN
        RAISE EXCEPTION 'permission denied: % may not record an operation of this kind', session_user
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF length(os_login) > 200 OR length(command) > 40 OR length(arguments) > 65536
        OR json_typeof(decoded) <> 'object'
        OR EXISTS (SELECT FROM json_each(decoded) AS a WHERE json_typeof(a.value) <> 'string')
    THEN
        RAISE EXCEPTION 'an operation has a login of 200 characters at most, and arguments that are '
            'a JSON object of texts, of 65536 characters at most'
            USING ERRCODE = 'check_violation';
    END IF;
    PERFORM append_operation(os_login, command, arguments);
END
$$;
COMMENT ON FUNCTION record_operation IS
    'Append an operation of a kind that the role of the connected user performs: the owner any, '
    'the loader those on dead letters and policies, the reporter runs and exclusions.';

CREATE FUNCTION keep_operations() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'permission denied: operations are never changed or deleted'
        USING ERRCODE = 'insufficient_privilege';
END
$$;
COMMENT ON FUNCTION keep_operations IS 'Trigger function: keeps the rows of operation.';

-- Keeps operations, from the owner too.
CREATE TRIGGER operation_change BEFORE UPDATE OR DELETE OR TRUNCATE ON operation
FOR EACH STATEMENT EXECUTE FUNCTION keep_operations();
