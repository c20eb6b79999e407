#: place postgresql
#: needs other standby
hosts() { psql -XAtq -h "${2:-$PGHOST}" -p "${3:-$PGPORT}" -d "$1" -c "SELECT hostName FROM metricOutput ORDER BY 1" | tr '\n' ' '; }
records() { for host in a b c; do
    sam-publish -q result --metric m --status OK --host $host --flavour CE --timestamp "$1" --details "a line"
done; sam-consume -q run --drain; }
sql() { psql -X -q -d sam -v ON_ERROR_STOP=1 -f "$1"; }
records 2026-11-20T12:00:00Z
#: run sh 1

# Queries
#: write sql 1 1.sql
#: write sql 2 2.sql
#: write sql 3 3.sql
#: write sql 4 4.sql
sam-db -q downtime add --id power-cut --site A --start 2026-11-20T08:00Z --end 2026-11-20T12:00Z --reason x
for number in 1 2 3 4; do sql $number.sql > shown; [ -s shown ]; done

# Back up, and restore on another server and beside the old database
#: run sh 2
#: replace -h new.example.org => -h {other_host} -p {other_port}
#: run sh 3
same "$(hosts sam {other_host} {other_port})" "a b c "
psql -q -d postgres -c 'ALTER DATABASE sam RENAME TO sam_before'
pg_restore -d postgres --create --exit-on-error sam.dump
same "$(hosts sam) $(hosts sam_before)" "a b c  a b c "
dropdb sam_before

# Operators
#: replace 72dda39ded94b3d664bab245a837c397c56eb8f7f5e457308ff50827769fbacd => $(sam-db audit verify --json | grep -oE '[0-9a-f]{64}')
sam-db prune --keep-results 3000d
#: run bash 1

# Grafana
psql -q -c "CREATE ROLE grafana LOGIN PASSWORD 'choose one' IN ROLE sam_reader" sam
grafana() { PGUSER=grafana PGPASSWORD='choose one' psql -X -d sam -v ON_ERROR_STOP=1 "$@"; }
grafana -f 1.sql
exits 3 grafana -f <(echo 'SELECT * FROM dead_letter;')

# An index of our own, settings
#: write sql 5 5.sql
sql 5.sql
sam-db check
#: write sql 6 6.sql
sql 6.sql
eventually sh -c 'psql -XAt -c "SHOW max_wal_size" sam | grep 8GB'
sam-db check
psql -q -c "ALTER SYSTEM RESET ALL" sam

# A standby is read, and promoted
#: replace primary.example.org => $PGHOST
#: replace -D standby => -D {standby}/data
#: run sh 4
as_postgres() { if [ $(id -u) = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
[ $(id -u) != 0 ] || chown -R postgres {standby}
as_postgres $(command -v pg_ctl) -D {standby}/data -o "-p {port1} -k ''" -l {standby}/log -w start
stored=$(hosts sam)
same "$(hosts sam $PGHOST {port1})" "$stored"
#: write sql 7 7.sql
PGPORT={port1} sql 7.sql
eventually psql -X -q -p {port1} -c "CREATE TABLE promoted ()" sam
#: valid sam-db toml 1
#: write sql 8 8.sql
sql 8.sql
same "$(psql -XAtq -d sam -c "SELECT setting FROM pg_file_settings WHERE name = 'synchronous_standby_names'")" standby1
psql -q -c "ALTER SYSTEM RESET ALL" sam

# SQLite
export SAM_DATABASE_URL=sqlite:///sam.db
sam-db upgrade
records 2026-11-20T12:00:00Z
#: run sh 5
shows ok
#: run sh 6
same "$(sqlite3 sam.db 'SELECT count(*) FROM metricOutput')" 3
