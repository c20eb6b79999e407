-- Become the owner of the schema, until the end of the transaction: what is made then is the
-- owner's. A new schema is sam_owner's where the connected user may act as that role, else the
-- user's own.
DO $$
DECLARE
    present name := (
        SELECT pg_get_userbyid(relowner) FROM pg_class
        WHERE oid = to_regclass('public.alembic_version')
    );
    owner name := coalesce(present, (
        SELECT rolname FROM pg_roles
        WHERE rolname = 'sam_owner' AND has_schema_privilege(oid, 'public', 'CREATE')
    ));
BEGIN
    IF owner <> current_user THEN
        EXECUTE format('SET LOCAL ROLE %I', owner);
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    IF present IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format(
                'the schema belongs to %I, whom %I may not act as', owner, current_user
            );
    END IF;
END
$$;
