#: place sqlite
#: needs feeds
#: replace https://goc.egi.eu => {feeds}
#: replace https://vo.example.org => {feeds}
#: replace https://wlcg-cric.cern.ch => {feeds}
#: replace https://topology.opensciencegrid.org => {feeds}
#: replace /etc/grid-security/certificates => {feeds_ca}
#: replace /etc/grid-security/hostcert.pem => {feeds_certificate}
#: replace /etc/grid-security/hostkey.pem => {feeds_certificate}
cp gocdb/* .
cp sam.toml base.toml
trust='ca_file = "{feeds_ca}"\n'
printf "[[import.feed]]\nkind = \"gocdb\"\nurl = \"{feeds}/gocdbpi\"\n$trust" >> sam.toml
printf "[[import.feed]]\nkind = \"vofeed\"\nurl = \"{feeds}/atlas/vofeed.xml\"\n$trust" >> sam.toml
printf "[[import.feed]]\nkind = \"cric\"\nurl = \"{feeds}\"\n$trust" >> sam.toml
printf "[[import.feed]]\nkind = \"osg\"\nurl = \"{feeds}\"\n$trust" >> sam.toml
sam-db() { command sam-db "$@" && sleep 1.01; }  # two snapshots never have the same time
#: run sh 1
#: write toml 1 tables.toml
{ cat base.toml tables.toml; printf "$trust"; } > sam.toml
#: run sh 2 3 4
#: valid sam-db toml 2 3 4
