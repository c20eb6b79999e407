-- Data derived from stored rows: the days whose reports are due, and the newest statuses.
--
-- Results newer than the one in folded, and those in load_news, are unfolded: an insert into
-- fold_news applies them to both, and until then the views add them. Statements and exclusions are few,
-- so they mark the changed days at once.

-- Folding results -------------------------------------------------------------------------------

-- The next result reuses the result_id of a deleted last one, and must be folded as well.
CREATE TRIGGER metric_result_delete AFTER DELETE ON metric_result
WHEN OLD.result_id = (SELECT result_id FROM folded) BEGIN
    UPDATE folded SET result_id = coalesce(
        (SELECT max(result_id) FROM metric_result WHERE result_id < OLD.result_id), 0
    );
END;

-- Stores what the views unfolded_status and unfolded_day show for the oldest unfolded results.
CREATE TRIGGER fold_news_insert BEFORE INSERT ON fold_news BEGIN
    UPDATE folded SET up_to = coalesce(
        (
            SELECT result_id
            FROM (
                SELECT result_id FROM load_news
                UNION ALL
                SELECT result_id FROM metric_result
                WHERE result_id > (SELECT result_id FROM folded)
            )
            ORDER BY result_id
            LIMIT 1 OFFSET coalesce(NEW.at_most, 9223372036854775807) - 1
        ),
        up_to
    );
    UPDATE instance_status SET
        status = n.status,
        since = n.since,
        measured_at = n.measured_at,
        other_at = n.other_at,
        -- It grows fast, by at most a half, and shrinks slowly, since after a problem many probes are
        -- repeated sooner than usual.
        interval_s = CASE
            WHEN n.gap_s IS NULL THEN interval_s
            WHEN interval_s IS NULL THEN n.gap_s
            WHEN n.gap_s > interval_s THEN interval_s + min(n.gap_s - interval_s, interval_s) / 2
            ELSE interval_s + (n.gap_s - interval_s) / 16
        END,
        intervals = min(intervals + n.gaps, 100),
        summary = n.summary
    FROM unfolded_status AS n
    WHERE n.status_id = instance_status.status_id;
    -- A day that runs have read changes only by results of endpoints that belong to a site then. For
    -- those of others it changes when the topology does.
    INSERT INTO changed_day (day)
    SELECT day FROM unfolded_day WHERE true
    ON CONFLICT (day) DO UPDATE SET change_no = NULL, results_no = NULL
    WHERE results_no IS NOT NULL
        AND EXISTS (
            SELECT 1
            FROM unfolded_result AS r
            CROSS JOIN instance_status AS i ON i.status_id = r.status_id
            CROSS JOIN endpoint_membership AS m ON m.endpoint_id = i.endpoint_id
            WHERE r.measured_at >= unixepoch(changed_day.day, '-1 day')
                AND r.measured_at < unixepoch(changed_day.day, '+1 day')
                AND m.holds
                AND m.valid_from <= unixepoch(changed_day.day)
                AND coalesce(m.valid_to > unixepoch(changed_day.day), true)
        );
    DELETE FROM load_news WHERE result_id <= (SELECT up_to FROM folded);
    UPDATE folded SET
        result_id = max(
            result_id, min(up_to, coalesce((SELECT max(result_id) FROM metric_result), 0))
        ),
        up_to = 9223372036854775807;
    SELECT RAISE(IGNORE);
END;

-- Changes since the last reports ----------------------------------------------------------------
--
-- A row of the topology counts on each day at whose beginning it is valid, a downtime on each day
-- that it overlaps. A change marks the days on which the old and the new row differ, except days
-- before the horizon, days before the first changed day (nothing is reported before it), days after
-- today, and days that are already marked.

-- Marks days that are not marked yet.
CREATE TRIGGER new_change_insert BEFORE INSERT ON new_change BEGIN
    INSERT INTO changed_day (day, results_no)
    WITH RECURSIVE
    span (first_day, last_day) AS (
        SELECT
            max(
                NEW.first_day,
                coalesce((SELECT day FROM horizon), ''),
                (SELECT min(day) FROM changed_day)
            ),
            min(NEW.last_day, date('now'))
    ),
    step (day, last_day) AS (
        SELECT first_day, last_day FROM span
        -- Nothing to do if all are marked already, for instance by another row for the same days.
        WHERE (
            SELECT count(*) FROM changed_day
            WHERE change_no IS NULL AND day BETWEEN first_day AND last_day
        ) <= julianday(last_day) - julianday(first_day)
        UNION ALL
        SELECT date(day, '+1 day'), last_day FROM step WHERE day < last_day
    )
    SELECT day, 0 FROM step WHERE true
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE change_no IS NOT NULL;
    -- The row itself is not stored.
    SELECT RAISE(IGNORE);
END;

-- Marks the days of a new exclusion. One of a monitoring host also covers the second of end_time,
-- and what results of that second would have carried into the next day.
CREATE TRIGGER exclusion_insert AFTER INSERT ON exclusion BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.start_time, 'unixepoch'),
        CASE NEW.kind
            WHEN 'monitoring-host'
                THEN coalesce(date(NEW.end_time, 'unixepoch', '+1 day'), '9999-12-31')
            ELSE date(NEW.end_time - 1, 'unixepoch')
        END
    );
END;

-- Marks the days of a removed exclusion.
CREATE TRIGGER exclusion_update AFTER UPDATE ON exclusion BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.start_time, 'unixepoch'),
        CASE NEW.kind
            WHEN 'monitoring-host'
                THEN coalesce(date(NEW.end_time, 'unixepoch', '+1 day'), '9999-12-31')
            ELSE date(NEW.end_time - 1, 'unixepoch')
        END
    );
END;

-- Operations ------------------------------------------------------------------------------------

-- Keeps operations, which are never changed.
CREATE TRIGGER operation_change BEFORE UPDATE ON operation BEGIN
    SELECT raise(ABORT, 'operations are never changed or deleted');
END;

-- Keeps operations, which are never deleted.
CREATE TRIGGER operation_delete BEFORE DELETE ON operation BEGIN
    SELECT raise(ABORT, 'operations are never changed or deleted');
END;
