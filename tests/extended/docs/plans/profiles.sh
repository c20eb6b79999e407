#: place sqlite
#: skip toml 1 2 3 4: profiles, in test_pages.py
PYTHONPATH={root} python - <<'END'
from tests.extended.docs.reports import fill_pings
fill_pings("sqlite:///sam.db")
END
cp {root}/deploy/critical.toml .
#: run sh 1
shows "critical.toml: OK, report critical: 3 flavours, 4 metrics, 2 functions"
shows "warning: flavour ARC-CE has no endpoint"
shows "warning: org.sam.SRM-Put of SRM was never seen"
same "$(grep '^org.sam.CE-Ping' out.log | tr -s ' ')" "org.sam.CE-Ping 1 1 23 3600 7200 10800"
