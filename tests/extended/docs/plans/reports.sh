#: place sqlite
PYTHONPATH={root} python - <<'END'
from tests.extended.docs.reports import fill_october
fill_october("sqlite:///sam.db")
END
printf '[report]\nprofiles = ["critical.toml"]\n' >> sam.toml
#: shows text 1 2
#: run sh 1 2 3 4 5 6
[ $(wc -l < ticket.txt) -le 40 ]
grep -q 'id="2026-10-14"' pages/critical/2026-10/EXAMPLE-SITE.html
ls pages/index.html pages/critical/2026.html pages/critical/2026-10/groups/federation.html
(cd pages/critical/2026-10 && sha256sum --check --quiet pages.sha256)
