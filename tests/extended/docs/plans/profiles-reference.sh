#: place bare
#: skip toml 1 2: profiles, in test_pages.py
