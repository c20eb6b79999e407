#: place sqlite
#: replace /srv/sam/archive => {here}/archive
printf '[archive]\nurl = "{here}/archive"\n' >> sam.toml
mkdir archive
for day in 01 02 03; do
    sam-publish -q result --metric m --status OK --host ce01.example.org --flavour CE \
        --timestamp 2026-10-${day}T12:00:00Z
done
sam-consume run --drain
sam-db archive write --from 2026-10-01 --to 2026-10-03
#: write python 1 results.py
python results.py
shows ce01.example.org
