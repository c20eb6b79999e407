#: place bare
#: skip sh 1 2 3 4 5: of a booted machine; tests/extended/installed/test_units.py
