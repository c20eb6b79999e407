"""The process: its signals, its memory, its listening sockets, and files that it reads again."""
