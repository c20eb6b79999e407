-- Inserts into the class views: check the row, look up or create its names, merge.
--
-- Redelivery is normal: a broker re-sends each message that was not acked. So a second copy changes
-- nothing, and the status, end or announcement that wins does not depend on the order of arrival.
--
-- A time is accepted if parsing and formatting leave it unchanged: only YYYY-MM-DDThh:mm:ssZ. In
-- comparisons with a time that may be missing, 1e18 is later than any time and -1e18 earlier.

-- Claims ----------------------------------------------------------------------------------------
-- Where a statement differs from the stored row, both are kept in the table claim before the row
-- changes.

-- Keeps the stored row unless there are claims about it, and the statement unless it is one of
-- them. Of a publisher that repeats itself the first and the last one are kept.
CREATE TRIGGER new_claim_insert BEFORE INSERT ON new_claim BEGIN
    INSERT INTO claim (class, key, publisher_id, message_id, received_at, record)
    SELECT
        NEW.class, NEW.key, NEW.row_publisher_id, NEW.row_message_id, NEW.row_received_at,
        json_patch(json_patch('{}', NEW.record), NEW.row_changes)
    WHERE NOT EXISTS (SELECT 1 FROM claim WHERE key = NEW.key AND class = NEW.class);
    INSERT INTO claim (class, key, publisher_id, message_id, received_at, record)
    SELECT
        NEW.class, NEW.key, NEW.publisher_id, NEW.message_id, NEW.received_at,
        json_patch('{}', NEW.record)
    WHERE NOT EXISTS (
        SELECT 1 FROM claim
        WHERE key = NEW.key
            AND class = NEW.class
            AND publisher_id = NEW.publisher_id
            AND message_id IS NEW.message_id
            AND record = json_patch('{}', NEW.record)
    );
    UPDATE lost_claims SET statements = statements + 1 WHERE changes() = 1 AND NOT NEW.will_change;
    DELETE FROM claim
    WHERE key = NEW.key
        AND class = NEW.class
        AND publisher_id = NEW.publisher_id
        AND record = json_patch('{}', NEW.record)
        AND claim_id NOT IN (
            SELECT first_last.value
            FROM (
                SELECT min(claim_id) AS first, max(claim_id) AS last FROM claim
                WHERE key = NEW.key
                    AND class = NEW.class
                    AND publisher_id = NEW.publisher_id
                    AND record = json_patch('{}', NEW.record)
            ) AS ends
            CROSS JOIN json_each(json_array(ends.first, ends.last)) AS first_last
        );
    -- The row itself is not stored.
    SELECT RAISE(IGNORE);
END;
