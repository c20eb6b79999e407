#: place sqlite
#: run sh 1 2 3 4 5 6 7
shows "results-2011.txt:7: bad-status: metricStatus 'SPLENDID'"
shows "3 records: 2 new, 0 unchanged, 1 left out, 1 new dead letter"
shows "downtimes.csv: 2 lines: 0 new or changed, 0 unchanged, 1 left out; nothing was written"
for count in metricOutput=2 serviceEndpoint=2 downtime=1 dead_letter=1; do
    same "${count%=*}=$(sqlite3 sam.db "SELECT count(*) FROM ${count%=*}")" $count
done
