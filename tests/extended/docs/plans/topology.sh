#: place sqlite
#: needs feeds
# Reports begin with the first result, and so do the days that can be due.
sam-publish -q result --metric m --host ce01.example.org --flavour CE --status OK --timestamp 2026-01-02T00:00:00Z
curl() { case "$*" in  # instead of GOCDB on the network
    *get_site_list*) cat gocdb/sites.xml ;;
    *downtime*) cat gocdb/downtimes.xml ;;
    *) cat gocdb/services.xml ;;
esac; }
#: run sh 1 2 3 4 5 6 7 8 9 10
shows "nothing was written"
shows "due: 2026-03-02 2026-03-03"
same "$(sam-db downtime list --all --json | grep -c '"source": "feed gocdb"')" 1
before=$(sqlite3 sam.db .dump | md5sum)
#: run sh 6 8
same "$(sqlite3 sam.db .dump | md5sum)" "$before"
