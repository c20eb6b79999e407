#: place sqlite
cat > sam.toml <<'END'
[database]
url = "sqlite:///sam.db"
[publisher]
brokers = ["activemq-rest+http://probe@127.0.0.1:{port1}"]
password_file = "password"
spool = "outbox"
[consumer]
name = "door"
brokers = ["listen+http://127.0.0.1:{port1}"]
[consumer.door]
tokens_file = "tokens"
require_identity = true
END
chmod 600 sam.toml
sam-consume token add probe > password
chmod 600 password
PYTHONPATH={root} python - <<'END'
import json
names = [("m1", "OK"), ("m2", "OK"), ("m3", "FINE")]
records = [{"hostName": "a", "serviceFlavour": "CE", "metricName": name, "metricStatus": status,
            "timestamp": "2026-11-20T12:00:00Z"} for name, status in names]
json.dump(records[:2], open("results.json", "w"))
texts = ("".join(f"{key}: {value}\n" for key, value in r.items()) + "EOT\n" for r in records)
open("results.txt", "w").write("".join(texts))
END
start sam-consume run
eventually curl -sf http://127.0.0.1:{port1}/healthz
#: replace https://door.example.org:8443 => http://127.0.0.1:{port1}
#: replace TOKEN => $(cat password)
#: replace 'Authorization => "Authorization
#: replace )' > door-token => )" > door-token
#: run sh 1
{
#: run sh 2 3 4 5
} > answers
#: write json 1 shown.json
PYTHONPATH={root} python - <<'END'
import json
decoder, text, found = json.JSONDecoder(), open("answers").read().strip(), []
while text:
    document, end = decoder.raw_decode(text)
    found.append(document)
    text = text[end:].strip()
shown = json.loads(open("shown.json").read().replace("…", ""))
assert found[0].keys() == shown.keys(), found[0]
END
#: write json 2 checks.json
#: run sh 6 7
shows "Message sent"
shows "2 checks processed"
sam-publish result --metric org.example.Old --status OK --host a --flavour CE --require-broker
sam-publish check --connect
shows confirmed
same "$(sqlite3 sam.db 'SELECT DISTINCT publisher FROM metricOutput')" token:probe
same "$(sqlite3 sam.db 'SELECT count(DISTINCT metricName) FROM metricOutput')" 5
