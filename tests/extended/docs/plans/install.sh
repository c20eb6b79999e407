#: place bare
#: skip sh 1 2 3 4 5 6 7 8 9 10: of booted machines; tests/extended/installed
