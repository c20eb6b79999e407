#: place sqlite
#: replace /srv/sam/archive => {here}/archive
for day in 01 02 03; do
    sam-publish -q result --metric m --status OK --host ce01.example.org --flavour CE \
        --timestamp 2026-10-${day}T12:00:00Z
done
sam-consume run --drain
#: run sh 1 3
#: skip sh 2: of PostgreSQL; tests/acceptance/sql/test_sam_db.py
#: write toml 1 archive.toml
cat archive.toml >> sam.toml
mkdir archive
#: run sh 4
#: run sh 5
