#: place bare
#: valid sam-consume toml 1
#: skip toml 2: in tests/extended/test_deployed_brokers.py, as the three blocks of the brokers
#: skip sh 1 2 3: in tests/extended/test_deployed_brokers.py
