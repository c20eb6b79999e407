#: place bare
#: skip toml 1: in tests/extended/test_deployed_brokers.py, as the three blocks of the brokers
#: skip sh 1 2 3: in tests/extended/test_deployed_brokers.py
