#: place sqlite
#: skip sh 1: it takes hours
