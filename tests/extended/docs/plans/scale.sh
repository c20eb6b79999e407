#: place sqlite
#: skip sh 1 2: they take hours
