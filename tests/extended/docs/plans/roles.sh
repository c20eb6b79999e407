#: place server
{ echo "*:*:*:$PGUSER:$PGPASSWORD"
    sed -n "s/^CREATE ROLE \(\w*\) LOGIN PASSWORD '\([^']*\)'.*/*:*:*:\1:\2/p" {root}/docs/roles.md; } > pgpass
chmod 600 pgpass
export PGPASSFILE=$PWD/pgpass
unset PGPASSWORD
sql() { psql -X -q -d sam -v ON_ERROR_STOP=1 -f "$1"; }
#: run sh 1
#: write sql 1 logins.sql
sql logins.sql
#: run sh 2 3 4
#: write sql 2 grafana.sql
sql grafana.sql
psql -X --username grafana --dbname sam --command "SELECT site, status FROM current_status"
psql -X --dbname sam --command "GRANT SELECT ON dead_letter TO PUBLIC" \
    --command "DROP TRIGGER downtime_insert ON downtime"
#: run sh 5
shows "trigger downtime_insert on downtime is missing"
shows "created trigger downtime_insert on downtime"
shows "revoked SELECT ON dead_letter TO PUBLIC"
tail -n 1 out.log | grep -q "no problem found"
for database in sam sam_site sam_dba; do
    same "$(psql -XAt -d $database -c "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace")" sam_owner
done
