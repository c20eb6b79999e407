#: place sqlite
#: needs tls nginx
database='[database]\nurl = "sqlite:///sam.db"\n'
body() { printf 'hostName: a\nserviceFlavour: CE\nmetricName: %s\nmetricStatus: OK\ntimestamp: 2026-11-20T12:00:00Z\nEOT\n' "$1"; }
post() { local name=$1; shift; body "$name" | curl -s -o answer -w '%{http_code}' --data-binary @- -H Content-Type: "$@"; }
senders() { sqlite3 -separator ' ' sam.db "SELECT metricName, publisher FROM metricOutput ORDER BY 1" | tr '\n' ';'; }
#: replace 127.0.0.1:8080 => 127.0.0.1:{port1}
#: replace 0.0.0.0:8443 => 0.0.0.0:{port2}
#: write toml 1 door.toml
{ printf "$database"; cat door.toml; } > sam.toml
#: run sh 1
start sam-consume run
eventually curl -sf http://127.0.0.1:{port1}/healthz
#: run sh 2
shows '{"status": "alive"}'
kill $STARTED && wait $STARTED

# A door for other machines, with tokens, certificates and a policy
#: replace client_ca_file = "/etc/grid-security/certificates" => client_ca_file = "ca.pem"
#: replace crl_file = "/etc/grid-security/certificates" => crl_file = "crl.pem"
#: write toml 2 https.toml
#: write toml 3 clients.toml
#: write toml 4 proxies.toml
{ printf "$database"; cat https.toml clients.toml proxies.toml; } | sed '0,/\[consumer\]/s//[consumer]\npolicy_file = "publishers.toml"/' > sam.toml
echo 'mode = "enforce"' > publishers.toml
{
#: run sh 3
} > tokens.out
read -r token < tokens.out
#: replace nagios1.pem => nagios1.pem
subject=$(
#: run sh 5
)
#: write toml 5 rule.toml
url="https://127.0.0.1:{port2}/v1/messages/metricOutput --cacert {ca}"
start sam-consume run
eventually curl -sf --cacert {ca} https://127.0.0.1:{port2}/healthz
same "$(post denied $url -H "Authorization: Bearer $token")" 403
{ echo 'mode = "enforce"'; sed "s/cert:[^\"]*/$subject/; s/^sites = .*/sites = [\"*\"]/; s/^hosts = .*/hosts = [\"*\"]/" rule.toml; } > publishers.toml
#: replace systemctl reload sam-consume => kill -HUP $STARTED
#: run sh 4
accepted() { [ "$(post token $url -H "Authorization: Bearer $token")" = 200 ]; }
eventually accepted
same "$(post certificate $url --cert nagios1.pem --key nagios1-key.pem)" 200
same "$(post login $url -u "nagios1:$token")" 200
same "$(post nobody $url)" 401
#: run sh 8
shows listening
same "$(senders)" "certificate $subject;login token:nagios1;token token:nagios1;"
kill $STARTED && wait $STARTED
#: skip sh 6 7: of a service; tests/extended/installed/test_install_page.py

# Behind nginx
#: replace listen 443 => listen 127.0.0.1:{port3}
#: replace /etc/ssl/private/door.pem => {here}/hostkey.pem
#: replace /etc/ssl/door.pem => {here}/hostcert.pem
#: write nginx 1 blocks.conf
#: write toml 6 behind.toml
{ printf "$database"; cat behind.toml; } > sam.toml
cat > nginx.conf <<END
daemon off; pid {here}/nginx.pid; error_log {here}/error.log; $([ $(id -u) = 0 ] && echo 'user root;')
events { worker_connections 256; }
http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f;
    uwsgi_temp_path u; scgi_temp_path s; include {here}/blocks.conf; }
END
start sam-consume run
start {nginx} -p {here} -e {here}/error.log -c {here}/nginx.conf
url="https://127.0.0.1:{port3}/v1/messages/metricOutput --cacert {ca}"
eventually curl -sf --cacert {ca} https://127.0.0.1:{port3}/healthz
forged=(-H 'X-SSL-Client-S-DN: CN=nagios1' -H 'samIdentity: operator:root' -H 'Forwarded: for=::1')
same "$(post nobody $url "${forged[@]}")" 401
same "$(post proxied $url "${forged[@]}" -H "Authorization: Bearer $token")" 200
same "$(senders | grep -c 'proxied token:nagios1')" 1
