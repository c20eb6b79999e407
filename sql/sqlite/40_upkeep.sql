-- Data derived from stored rows: the days whose reports are due, and the newest statuses.
--
-- Results newer than the one in folded, and those in load_news, are unfolded: an insert into
-- fold_news applies them to both, and until then the views add them. Rows of topology, downtimes
-- and exclusions are few, so their triggers mark the changed days at once.

-- Folding results -------------------------------------------------------------------------------

-- Records that a result became worse after it had been folded.
CREATE TRIGGER metric_result_worsen AFTER UPDATE OF status ON metric_result
WHEN NEW.result_id <= (SELECT result_id FROM folded) BEGIN
    INSERT INTO load_news (result_id) VALUES (NEW.result_id) ON CONFLICT (result_id) DO NOTHING;
END;

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
    ON CONFLICT (day) DO UPDATE SET change_no = NULL
    WHERE change_no IS NOT NULL
        AND EXISTS (
            SELECT 1
            FROM unfolded_result AS r
            CROSS JOIN instance_status AS i ON i.status_id = r.status_id
            CROSS JOIN endpoint_membership AS m ON m.endpoint_id = i.endpoint_id
            WHERE r.measured_at >= unixepoch(changed_day.day, '-1 day')
                AND r.measured_at < unixepoch(changed_day.day, '+1 day')
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
    INSERT INTO changed_day (day)
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
    SELECT day FROM step WHERE true
    ON CONFLICT (day) DO UPDATE SET change_no = NULL WHERE change_no IS NOT NULL;
    -- The row itself is not stored.
    SELECT RAISE(IGNORE);
END;

-- Marks the days of a new membership.
CREATE TRIGGER endpoint_membership_insert AFTER INSERT ON endpoint_membership BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.valid_from - 1, 'unixepoch', '+1 day'),
        coalesce(date(NEW.valid_to - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days between the old and the new end of a membership.
CREATE TRIGGER endpoint_membership_update AFTER UPDATE OF valid_to ON endpoint_membership
WHEN OLD.valid_to IS NOT NEW.valid_to BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(
            max(
                NEW.valid_from,
                coalesce(min(OLD.valid_to, NEW.valid_to), OLD.valid_to, NEW.valid_to)
            ) - 1, 'unixepoch', '+1 day'
        ),
        coalesce(date(max(OLD.valid_to, NEW.valid_to) - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days of a new member of a group.
CREATE TRIGGER site_group_member_insert AFTER INSERT ON site_group_member BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(NEW.valid_from - 1, 'unixepoch', '+1 day'),
        coalesce(date(NEW.valid_to - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days between the old and the new end of a member of a group.
CREATE TRIGGER site_group_member_update AFTER UPDATE OF valid_to ON site_group_member
WHEN OLD.valid_to IS NOT NEW.valid_to BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (
        date(
            max(
                NEW.valid_from,
                coalesce(min(OLD.valid_to, NEW.valid_to), OLD.valid_to, NEW.valid_to)
            ) - 1, 'unixepoch', '+1 day'
        ),
        coalesce(date(max(OLD.valid_to, NEW.valid_to) - 1, 'unixepoch'), '9999-12-31')
    );
END;

-- Marks the days of a new downtime; a cancelled one has no days.
CREATE TRIGGER announced_downtime_insert AFTER INSERT ON announced_downtime
WHEN NEW.end_time > NEW.start_time BEGIN
    INSERT INTO new_change (first_day, last_day)
    VALUES (date(NEW.start_time, 'unixepoch'), date(NEW.end_time - 1, 'unixepoch'));
END;

-- Marks the days of a downtime before and after a change.
CREATE TRIGGER announced_downtime_update AFTER UPDATE ON announced_downtime BEGIN
    INSERT INTO new_change (first_day, last_day)
    SELECT date(start_time, 'unixepoch'), date(end_time - 1, 'unixepoch')
    FROM (
        SELECT OLD.start_time AS start_time, OLD.end_time AS end_time
        UNION ALL SELECT NEW.start_time, NEW.end_time
    )
    WHERE end_time > start_time;
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
