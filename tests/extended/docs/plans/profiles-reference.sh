#: place bare
#: skip toml 1 2 3 4 5: in test_profiles.py, with their results and outcomes
