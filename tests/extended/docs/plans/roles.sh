#: place server
# The superuser of this server has the name of an account of the packages.
psql -X -q -d postgres -c "CREATE ROLE other SUPERUSER LOGIN PASSWORD '$PGPASSWORD'"
PGUSER=other psql -X -q -d postgres -c "ALTER ROLE $PGUSER RENAME TO postgres"
export PGUSER=postgres
{ echo "*:*:*:$PGUSER:$PGPASSWORD"
    sed -n "s/^ALTER ROLE \"\?\([a-z-]*\)\"\? PASSWORD '\([^']*\)'.*/*:*:*:\1:\2/p
        s/^CREATE ROLE \(\w*\) LOGIN PASSWORD '\([^']*\)'.*/*:*:*:\1:\2/p" {root}/docs/roles.md; } > pgpass
chmod 600 pgpass
export PGPASSFILE=$PWD/pgpass
export SAM_DATABASE_URL=postgresql:///sam
unset PGPASSWORD
sql() { psql -X -q -d sam -v ON_ERROR_STOP=1 -f "$1"; }
runuser() { local account=$2; shift 3; PGUSER=$account "$@"; }  # who logs in as that account
#: run sh 1
grep '^CREATE ROLE' {root}/docs/install.md > logins.sql
sql logins.sql
#: write sql 1 passwords.sql
sql passwords.sql
#: run sh 2
#: skip sh 3: of accounts of the packages; tests/extended/installed/test_units.py
#: valid sam-db toml 1
#: run sh 4 5
#: write sql 2 grafana.sql
sql grafana.sql
psql -X --username grafana --dbname sam --command "SELECT site, status FROM current_status"
psql -X --dbname sam --command "GRANT SELECT ON dead_letter TO PUBLIC" \
    --command "DROP TRIGGER downtime_insert ON downtime"
#: run sh 6
shows "trigger downtime_insert on downtime is missing"
shows "created trigger downtime_insert on downtime"
shows "revoked SELECT ON dead_letter TO PUBLIC"
tail -n 1 out.log | grep -q "no problem found"
for database in sam sam_site sam_dba; do
    same "$(psql -XAt -d $database -c "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace")" sam_owner
done
