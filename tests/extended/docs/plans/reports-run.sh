#: place sqlite
PYTHONPATH={root} python - <<'END'
from tests.extended.docs.reports import fill_october
fill_october("sqlite:///sam.db")
END
printf '[report]\nprofiles = ["critical.toml"]\n' >> sam.toml
sed '/^validity_s/a downtimes = []' critical.toml > no-downtimes.toml
#: shows text 1 2
#: run sh 1 2 3 4 5
shows "critical: nothing is due"
shows "critical 2026-10-14: 5 results, 1 metric instance,"
shows "critical 2026-10: sealed by Jane Doe, revision 1"
