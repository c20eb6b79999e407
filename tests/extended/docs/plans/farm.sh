#: place bare
#: skip sh 1 2 3 4 5 6: in tests/extended/installed/test_farm_page.py
