#: place bare
printf '[publisher]\nbrokers = ["stomp://127.0.0.1:1"]\n' > sam.toml
rm -f /dev/shm/sam-publish-losses-$(id -u) /tmp/sam-publish-losses-$(id -u)  # of other tests
#: run sh 1 2
shows "SAM PUBLISHER OK - 0 messages in the spool | age=0s;1800;14400;0 "
# Those of an empty spool, no certificate and no loss are missing in the text file.
{ sed -n 's/^# TYPE sam_publish_\(\w*\) .*/\1/p' sam-publish.prom
    printf 'spool_oldest_timestamp_seconds\ncertificate_expiry_timestamp_seconds\nlast_loss_timestamp_seconds\n'; } | sort > written
sed -n '/^## Metrics of a worker node/,$s/^| \([^|]*\)|.*/\1/p' {root}/docs/monitoring.md |
    grep -oE '`\w+`' | tr -d '`' | sort -u > documented
diff documented written
#: skip yaml 1: of a Prometheus server; tests/extended/test_dashboards.py checks rules and queries
