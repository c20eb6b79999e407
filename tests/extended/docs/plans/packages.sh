#: place bare
#: skip sh 1: of Red Hat; tests/extended/installed/test_rpm.py installs the packages
#: skip sh 2 3 4: of booted machines; tests/extended/installed/test_install_checkout.py
