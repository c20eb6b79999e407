"""The quickest publisher one could write for a STOMP broker, and nothing else: for comparison.

    python bare_stomp.py PORT DESTINATION FILE WINDOW|t100

It sends each record of FILE as a message, persistent and confirmed: so many receipts are awaited
at a time, or one for each transaction of 100. Prints the seconds from connecting to the end.
"""

import socket
import sys
import time

HEAD = b"SEND\ndestination:%b\npersistent:true\n%b\n\n%b\0"


def main() -> None:
    port, destination, path, way = sys.argv[1:]
    with open(path, "rb") as file:
        bodies = [body + b"EOT\n" for body in file.read().split(b"EOT\n")[:-1]]
    started = time.perf_counter()
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
    connection.recv(65536)
    name = destination.encode()
    if way.startswith("t"):
        in_transactions(connection, name, bodies, int(way[1:]))
    else:
        in_a_window(connection, name, bodies, int(way))
    print(time.perf_counter() - started)


def in_transactions(
    connection: socket.socket, destination: bytes, bodies: list[bytes], size: int
) -> None:
    for start in range(0, len(bodies), size):
        transaction = b"transaction:%d" % start
        frames = [b"BEGIN\n%b\n\n\0" % transaction]
        frames += [HEAD % (destination, transaction, body) for body in bodies[start : start + size]]
        frames.append(b"COMMIT\n%b\nreceipt:1\n\n\0" % transaction)
        connection.sendall(b"".join(frames))
        receive(connection, 1)


def in_a_window(
    connection: socket.socket, destination: bytes, bodies: list[bytes], window: int
) -> None:
    confirmed = 0
    for start in range(0, len(bodies), window // 2):
        part = enumerate(bodies[start : start + window // 2], start)
        connection.sendall(
            b"".join(HEAD % (destination, b"receipt:%d" % at, body) for at, body in part)
        )
        confirmed += receive(connection, start - confirmed)
    receive(connection, len(bodies) - confirmed)


def receive(connection: socket.socket, least: int) -> int:
    """So many receipts or more."""
    count = 0
    while count < least:
        data = connection.recv(65536)
        if not data or b"ERROR" in data:
            raise SystemExit(f"the broker says {data[:200]!r}")
        count += data.count(b"\0")
    return count


if __name__ == "__main__":
    main()
