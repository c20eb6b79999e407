#: place bare
#: skip yaml 1 2: in tests/extended/installed/test_ansible.py
#: skip sh 1: in tests/extended/installed/test_ansible.py
