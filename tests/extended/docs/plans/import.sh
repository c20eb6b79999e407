#: place sqlite
#: run sh 1 2 3 4 5 6 7
shows "results-2011.txt:7: bad-status: metricStatus 'SPLENDID'"
shows "3 records: 2 rows, 0 duplicates, 1 refused, 1 new dead letter"
shows "downtimes.csv: 1 of 2 lines are bad; nothing was imported"
for count in metricOutput=2 serviceEndpoint=2 downtime=1 dead_letter=1; do
    same "${count%=*}=$(sqlite3 sam.db "SELECT count(*) FROM ${count%=*}")" $count
done
