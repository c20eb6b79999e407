#: place sqlite
PYTHONPATH={root} python - <<'END'
from tests.extended.docs.reports import fill_two_days
fill_two_days("sqlite:///sam.db")
END
#: run sh 1 2 3 4 5
shows "critical, 2026-11-14 to 2026-11-15"
shows "1 of 2 endpoints changed status"
[ -f export/site_availability/report=critical/day=2026-11-15/part-0.parquet ]
shows "2 incidents at 1 site"
grep -q h1 endpoints.csv
grep -q '"group_name": "NORTH"' groups.json
