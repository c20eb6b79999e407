#: place bare
#: skip dockerfile 1: of a container; tests/extended/consumer/test_container.py runs what it runs
