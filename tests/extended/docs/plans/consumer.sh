#: place sqlite
#: needs activemq rabbitmq tls
#: replace msg1.example.org:61613 => {activemq}
#: replace msg2.example.org:61613 => {rabbitmq}
#: replace grid.probe.metricOutput => grid.{uuid}
#: replace postgresql://sam@db.example.org/sam?sslmode=verify-full => sqlite:///sam.db
cp sam.toml spool.toml
publish() { sam-publish -q result --metric org.example.Ping --status OK --flavour CE --host "$@"; }
to() { publish "$3" --no-spool --broker "stomp://$1" --destination "$2"; }
hosts() { sqlite3 sam.db "SELECT hostName FROM metricOutput ORDER BY 1" | tr '\n' ' '; }
configure() { { printf '[database]\nurl = "sqlite:///sam.db"\n'; cat "$1"; } > sam.toml; chmod 600 sam.toml; }
spool() { cp spool.toml sam.toml; }
topic=/topic/grid.{uuid}

# Start the consumer
#: write toml 1 sam.toml
printf '[[consumer.subscription]]\ndestination = "%s"\nclass = "metricOutput"\n' $topic >> sam.toml
sam-consume run --drain
to {activemq} $topic a.example.org
to {rabbitmq} $topic b.example.org
#: run sh 1
shows "no problem found"
same "$(grep -c 'round trip' out.log)" 2
same "$(hosts)" "a.example.org b.example.org "
sam-consume -q run --drain --timeout 60

# Run several processes
#: write toml 2 shared.toml
configure shared.toml
#: run sh 2
to {activemq} /topic/VirtualTopic.grid.{uuid} c.example.org
#: run sh 2
same "$(hosts)" "a.example.org b.example.org c.example.org "

# Replace a broker
to {activemq} $topic left.example.org
spool
sed -i 's/^name = .*/name = "site-a"/' sam.toml
#: run sh 3
shows "left behind"
spool

# Handle dead letters, find a message
publish d.example.org --class metricoutptu
exits 65 sam-consume run --drain
#: run sh 4
shows unknown-class
shows loaded
ID=$(sam-publish result --metric m --status OK --host e.example.org --flavour CE --json |
    python -c 'import json, sys; print(json.load(sys.stdin)["messages"][0]["message_id"])')
sam-consume find "$ID"
shows "spool: "
sam-consume run --drain
#: replace sha256:1f0c => || test $? = 66
#: run sh 5
shows "hostName=e.example.org"

# Certificates, other brokers and foreign writers
cp ca.pem partner-ca.pem
#: valid sam-consume toml 3 4 5 6

# Relay messages
publish f.example.org
#: run sh 6
same "$(find relayed -type f | wc -l)" 1
sed -i "s|spool://{here}/spool|spool://{here}/relayed|" sam.toml
sam-consume run --drain
spool

# Share a spool, as root
if [ $(id -u) = 0 ]; then
#: replace groupadd --system sam-spool => true
#: replace usermod => true
#: replace sam-spool /var/spool => 40010 {here}
#: replace -g sam-spool -m 2770 /var/spool/sam-in /var/spool/sam-in.bad => -g 40010 -m 2770 {here}/sam-in {here}/sam-in.bad
#: replace /var/spool => {here}
#: run sh 7
publish g.example.org --broker spool://{here}/sam-in
#: run sh 8
same "$(find sam-in -type f -not -perm 640) $(find sam-in -not -gid 40010)" " "
fi

# Look at messages
for number in 1 2 3 4 5; do publish h$number.example.org; done
#: run sh 9
same "$(grep -c 'a row of metricOutput' out.log)" 5
sam-consume run --drain

# Monitor the consumer
sed -i '/^name = /a metrics_listen = "127.0.0.1:{port1}"' sam.toml
start sam-consume run
publish i.example.org
eventually sh -c 'sam-consume status | grep running'
#: run sh 10
shows "acceptance: running"
shows "SAM CONSUMER OK"
curl -sSf http://127.0.0.1:{port1}/metrics | sed -n 's/^# TYPE sam_consume_\(\w*\) .*/\1/p' | sort > exported
sed -n '/^## Metrics/,/^## [^M]/s/^| `\(\w*\)`.*/\1/p' {root}/docs/consumer-reference.md | sort > documented
diff documented exported
kill -9 $STARTED
