"""The fastest possible publisher for a STOMP broker, for comparison.

    python bare_stomp.py PORT DESTINATION FILE WINDOW|t100

It sends every record of FILE as a persistent, confirmed message. At most WINDOW receipts are
outstanding at a time, or with t100 there is one receipt per transaction of 100. Prints the seconds
from connecting to the last receipt.
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
    """Read at least `least` receipts; return their number."""
    count = 0
    while count < least:
        data = connection.recv(65536)
        if not data or b"ERROR" in data:
            raise SystemExit(f"unexpected answer of the broker: {data[:200]!r}")
        count += data.count(b"\0")
    return count


if __name__ == "__main__":
    main()
