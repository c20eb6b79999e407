#: place bare
#: skip toml 1: profiles, in test_pages.py
