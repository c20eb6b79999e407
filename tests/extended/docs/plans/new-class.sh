#: place postgresql
record() { printf 'environmentId: 6f9619ff-8b86-d011-b42d-00c04fc964ff\nname: %s\nvalue: %s\ntimestamp: 2026-11-20T12:00:00Z\nEOT\n' "$1" "$2"; }
rows() { psql -XAt -c 'SELECT name FROM metricEnvironment ORDER BY name' sam | tr '\n' ' '; }
letters() { psql -XAt -c "SELECT reason || ' ' || state FROM dead_letter" sam; }
psql -q -c "CREATE ROLE consumer_of_docs LOGIN PASSWORD 'let-me-in' IN ROLE sam_loader" sam
consumer() { SAM_DATABASE_URL="postgresql+psycopg2://consumer_of_docs:let-me-in@$PGHOST:$PGPORT/sam" "$@"; }
consumer start sam-consume run
record EARLY early | sam-publish send --class metricEnvironment
refused() { [ "$(letters)" = "unknown-class open" ]; }
eventually refused
#: write sql 1 metric_environment.sql
#: run sh 1 2
loaded() { [ "$(rows)" = "LD_LIBRARY_PATH " ]; }
eventually loaded
consumer true
#: replace sam-consume dead-letter => consumer sam-consume dead-letter
#: run sh 3
same "$(rows)" "EARLY LD_LIBRARY_PATH "
same "$(letters)" "unknown-class replayed"
kill $STARTED && wait $STARTED

# On SQLite
export SAM_DATABASE_URL=sqlite:///sam.db
command sam-db upgrade
#: write sql 2 trigger.sql
sed -n '/^CREATE TABLE/,/^);/p; /^CREATE VIEW/,/;$/p' metric_environment.sql | sed '
    s/uuid NOT NULL/text NOT NULL CHECK (length(environment_id) = 36)/
    s/timestamptz/text/
    s/^);/) STRICT;/' > sqlite.sql
cat sqlite.sql trigger.sql > metric_environment.sql
sqlite3 -bail sam.db < metric_environment.sql
record EARLY early | sam-publish send --class metricEnvironment
sam-consume run --drain
same "$(sqlite3 sam.db 'SELECT name FROM metricEnvironment')" EARLY
