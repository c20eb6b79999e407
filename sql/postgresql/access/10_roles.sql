-- The roles, and their rights on the database and its schema. Roles belong to the server: databases
-- share them. A statement that the connected user may not execute only causes a warning; `sam-db
-- check` reports what is still missing.
DO $$
DECLARE
    database CONSTANT text := quote_ident(current_database());
    owner CONSTANT text := coalesce((
        SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class
        WHERE oid = to_regclass('public.alembic_version')
    ), 'sam_owner');
    others CONSTANT text := 
        'sam_loader, sam_topology, sam_reporter, sam_archiver, sam_reader';
    statement text;
BEGIN
    FOREACH statement IN ARRAY ARRAY(
        SELECT format('CREATE ROLE %I NOLOGIN', wanted)
        FROM unnest(
            ARRAY[
                'sam_owner', 'sam_loader', 'sam_topology', 'sam_reporter', 'sam_archiver',
                'sam_reader'
            ]
        ) AS wanted
        WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted)
    ) || ARRAY[
        -- For partitions, the loader's staging tables and the scratch schema of `sam-db check`. An
        -- owner other than sam_owner may have had these rights through PUBLIC.
        format('GRANT CONNECT, CREATE, TEMPORARY ON DATABASE %s TO sam_owner, %s', database, owner),
        format('GRANT USAGE, CREATE ON SCHEMA public TO sam_owner, %s', owner),
        format('GRANT CONNECT ON DATABASE %s TO %s', database, others),
        format('GRANT USAGE ON SCHEMA public TO %s', others),
        format('REVOKE CREATE, TEMPORARY ON DATABASE %s FROM PUBLIC', database),
        'REVOKE CREATE ON SCHEMA public FROM PUBLIC',
        format('REVOKE CREATE, TEMPORARY ON DATABASE %s FROM %s', database, others),
        format('REVOKE CREATE ON SCHEMA public FROM %s', others)
    ] LOOP
        BEGIN
            EXECUTE statement;
        EXCEPTION
            -- A concurrent upgrade has created the role.
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege OR undefined_object THEN
                RAISE WARNING '%: %', statement, SQLERRM;
        END;
    END LOOP;
END
$$;
