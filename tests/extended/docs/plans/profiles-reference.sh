#: place bare
#: skip toml 1 2 3 4 5 6: profiles, in test_pages.py
