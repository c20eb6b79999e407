#: place sqlite
#: replace /srv/sam/archive => {here}/archive
#: write toml 1 archive.toml
cat archive.toml >> sam.toml
mkdir archive
for day in 01 02 03; do
    sam-publish -q result --metric m --status OK --host ce01.example.org --flavour CE \
        --timestamp 2026-10-${day}T12:00:00Z
done
sam-consume run --drain
#: run sh 1
#: skip sh 2: it changes systemd units; tests/extended/installed/test_units.py checks such drop-ins
#: run sh 3
#: write python 1 results.py
python results.py
shows ce01.example.org
#: write python 2 results.py
python results.py
#: run sh 4 5 6
