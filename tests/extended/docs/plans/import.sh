#: place sqlite
#: needs feeds
#: replace https://goc.egi.eu => {feeds}
#: replace https://vo.example.org => {feeds}
#: replace https://wlcg-cric.cern.ch => {feeds}
#: replace https://topology.opensciencegrid.org => {feeds}
#: replace /etc/grid-security/certificates => {feeds_ca}
#: replace /etc/grid-security/hostcert.pem => {feeds_certificate}
#: replace /etc/grid-security/hostkey.pem => {feeds_certificate}
cat > results-2011.txt <<'END'
hostName: ce01.example.org
serviceFlavour: CE
metricName: org.example.Ping
metricStatus: OK
timestamp: 2011-03-01T12:00:00Z
EOT
hostName: ce01.example.org
serviceFlavour: CE
metricName: org.example.Ping
metricStatus: SPLENDID
timestamp: 2011-03-01T12:05:00Z
EOT
END
printf '%s\n' '{"hostName": "ce02.example.org", "serviceFlavour": "CE",
  "metricName": "org.example.Ping", "metricStatus": "CRITICAL", "timestamp": 1298980800}' |
    gzip > results-2012.json.gz
#: run sh 1
shows "results-2011.txt:7: bad-status: metricStatus 'SPLENDID'"
shows "3 records: 2 new, 0 unchanged, 1 left out, 1 new dead letter"
rows() { for count; do
    same "${count%=*}=$(sqlite3 sam.db "SELECT count(*) FROM ${count%=*}")" $count
done; }
rows metricOutput=2 dead_letter=1
cat > downtimes-2012.csv <<'END'
downtimeId;siteName;startTime;endTime;classification;severity;description
D1;EXAMPLE-SITE;2012-02-01T08:00:00Z;2012-02-01T18:00:00Z;SCHEDULED;OUTAGE;"new disks; new roof"
D2;EXAMPLE-SITE;2012-02-03T08:00:00Z;2012-02-02T18:00:00Z;UNSCHEDULED;OUTAGE;ends before it starts
END
#: run sh 2 3
shows "downtimes-2012.csv: 2 lines: 1 new or changed, 0 unchanged, 1 left out"
rows serviceEndpoint=2 siteGroup=1 siteContact=1 downtime=1
sam-db() { command sam-db "$@" && sleep 1.01; }  # two snapshots never have the same time
curl() { case "$*" in  # instead of GOCDB on the network
    *get_site_list*) cat gocdb/sites.xml ;;
    *downtime*) cat gocdb/downtimes.xml ;;
    *) cat gocdb/services.xml ;;
esac; }
#: run sh 4
shows "+ serviceEndpoint"
before=$(sqlite3 sam.db .dump | md5sum)
#: run sh 4
same "$(sqlite3 sam.db .dump | md5sum)" "$before"
cp gocdb/* .
#: run sh 5
cp sam.toml base.toml
#: write toml 1 tables.toml
trust='ca_file = "{feeds_ca}"\n'
{ cat base.toml tables.toml; printf "$trust[[import.feed]]\nkind = \"osg\"\nurl = \"{feeds}\"\n$trust"; } > sam.toml
#: run sh 6
cp base.toml sam.toml
#: run sh 7
shows "due: 2026-03-02 2026-03-03"
same "$(sam-db downtime list --all --json | grep -c '"source": "feed gocdb"')" 1
#: valid sam-db toml 2
