#: place sqlite
#: run sh 1 2 4
#: skip sh 3: of installed packages; tests/extended/installed/test_upgrade.py
#: skip sh 5: of booted machines; tests/extended/installed/test_install_page.py
