#: place sqlite
#: valid sam-consume toml 1
