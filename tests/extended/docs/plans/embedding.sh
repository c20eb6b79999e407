#: place sqlite
#: needs activemq artemis rabbitmq
#: write python 1 probe.py
sed 's/msg1.example.org:61613/127.0.0.1:1/' probe.py > alone.py
rm sam.toml
python alone.py
shows "0 messages published, 3 spooled"
exits 1 env _CONDOR_SCRATCH_DIR=$PWD python alone.py
shows "results are lost: 3 of 3 messages"
rm -rf state
#: write python 2 records.py
python records.py > first
grep -qF "\`$(cat first)\`" {root}/docs/embedding.md
python records.py
shows "rows: 0 duplicates: 1"

# A loader with stomp.py: each message is acknowledged after its commit
cp {root}/deploy/stomp_loader.py loader.py
rows() { sqlite3 sam.db "SELECT count(*) FROM metricOutput"; }
messages() { grep -oE '^[0-9]+ messages' running.log | awk '{sum += $1} END {print sum + 0}'; }
arrived() { [ "$(messages)" -ge $1 ]; }
publish() { sed "s/msg1.example.org:61613/$address/; s/range(250)/range($1)/; s/wn{/$2{/" probe.py > now.py
    SAM_PUBLISHER_DESTINATION=/topic/docs.{uuid} python now.py; }
try() {  # broker, address, password
    address=$2
    export BROKER_PASSWORD=$3
    row=$(sed -n "s/^| $1 | \(.*\) |$/\1/p" {root}/docs/embedding.md | tr -d '`')
    headers=${row% | *} user=${row##* | }
    sed "s|(\"msg1.example.org\", 61613)|(\"${address%:*}\", ${address#*:})|; s|^SUBSCRIPTION = .*|SUBSCRIPTION = $headers|
        s|^USER = \"[A-Za-z-]*\"|USER = $user|; s|^TOPIC = .*|TOPIC = \"/topic/docs.{uuid}\"|; s|my-loader|docs-{uuid}|" loader.py > own.py
    : > running.log
    start python own.py
    first() { publish 1 first; sleep 2; arrived 1; }  # those sent before it has subscribed are lost
    eventually first
    kill -9 $STARTED
    before=$(rows)
    publish 250 "wn-${1// /-}-"
    sed 's/connection.ack(frame.headers\["ack"\])/os._exit(7)/' own.py > killed.py
    exits 7 python killed.py
    : > running.log
    start python own.py
    eventually arrived 3  # they are delivered again
    kill -9 $STARTED
    same $(rows) $((before + 250))
}
try "ActiveMQ Classic" {activemq} {activemq_password}
try Artemis {artemis} {artemis_password}
try RabbitMQ {rabbitmq} {rabbitmq_password}
sqlite3 sam.db "SELECT DISTINCT publisher FROM metricOutput" > publishers
grep -q anonymous publishers

#: write python 3 month.py
PYTHONPATH={root} python - <<'END'
from tests.extended.docs.reports import fill_two_bad_days
fill_two_bad_days("sqlite:///sam.db")
END
python month.py
shows "SITE-A        50.0        25.0"
shows "SITE-A     37.5"
