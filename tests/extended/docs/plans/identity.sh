#: place sqlite
day=2026-11-20T12:00:00Z
result() { sam-publish -q result --metric m --status $1 --host ce01.example.org --flavour CE --timestamp $day; }
contact() { printf "siteName: $1\ncontact: grid@example.org\ntimestamp: $day\nEOT\n" | sam-publish -q send --class siteContact; }
publishers() { sqlite3 sam.db "SELECT publisher FROM $1" | tr '\n' ' '; }
configure() { tail -n +2 "$1" > keys; sed -i "/^\\$(head -n 1 "$1")/r keys" sam.toml; }
me=uid:$(id -u)
sam-publish -q send --class serviceEndpoint <<END
siteName: SITE-A
hostName: ce01.example.org
serviceFlavour: CE
validFrom: 2026-01-01T00:00:00Z
EOT
END
result OK
sam-consume run --drain
#: run sh 1
shows $me
#: run sh 2
#: write toml 1 policy.toml
configure policy.toml
#: run sh 3
contact SITE-A
sam-consume run --drain  # it only observes
#: run sh 4
contact SITE-B
exits 65 sam-consume run --drain
#: run sh 5
shows not-authorised
sed -i 's/classes = \[/&"siteContact", /; s/sites = \[/&"SITE-B", /' publishers.toml
#: run sh 6
same "$(publishers siteContact)" "$me $me "
{
#: run sh 7
} > lines
{ printf '\n[[publisher]]\nname = "nagios-a"\n'; cat lines; printf 'classes = ["metricOutput"]\nsites = ["SITE-A"]\nsigned = true\n'; } >> publishers.toml
#: write toml 2 sign.toml
configure sign.toml
result CRITICAL
sam-consume run --drain
same "$(publishers metricOutput)" "$me key:nagios-a "
#: run sh 8
same "$(publishers metricOutput)" "$me "
