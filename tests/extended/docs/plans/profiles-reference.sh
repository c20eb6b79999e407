#: place bare
#: skip toml 1 2 3: profiles, in test_pages.py
