-- Become the owner of the schema until the end of the transaction, so that new objects are the
-- owner's. A new schema belongs to sam_owner if the connected user may act as that role, otherwise
-- to the user.
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
                'the schema belongs to %I, and %I may not act as that role', owner, current_user
            );
    END IF;
END
$$;
