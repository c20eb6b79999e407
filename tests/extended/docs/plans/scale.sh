#: place sqlite
#: valid sam-publish toml 1
#: skip sh 1 2: they take hours
