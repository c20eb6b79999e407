#: place sqlite
#: run sh 1
#: run sh 3
#: skip sh 2: of PostgreSQL; tests/acceptance/sql/test_sam_db.py
