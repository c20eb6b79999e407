-- The roles and what they may do with the database and its schema. Roles belong to the server: two
-- databases share them. What the connected user may not do is a warning; `sam-db check` tells what
-- is missing in the end.
DO $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY ARRAY(
        SELECT format('CREATE ROLE %I NOLOGIN', wanted)
        FROM unnest(ARRAY['sam_owner', 'sam_loader', 'sam_reporter', 'sam_reader']) AS wanted
        WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted)
    ) || ARRAY[
        format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()),
        format(
            'GRANT CONNECT ON DATABASE %I TO sam_owner, sam_loader, sam_reporter, sam_reader',
            current_database()
        ),
        -- Partitions, the loader's staging tables, the scratch schema of `sam-db check`.
        format('GRANT CREATE, TEMPORARY ON DATABASE %I TO sam_owner', current_database()),
        'REVOKE CREATE ON SCHEMA public FROM PUBLIC',
        'GRANT USAGE ON SCHEMA public TO sam_owner, sam_loader, sam_reporter, sam_reader',
        'GRANT CREATE ON SCHEMA public TO sam_owner'
    ] LOOP
        BEGIN
            EXECUTE statement;
        EXCEPTION
            -- Another upgrade has made the role in the meantime.
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege OR undefined_object THEN
                RAISE WARNING '%: %', statement, SQLERRM;
        END;
    END LOOP;
END
$$;
