"""The fastest possible STOMP clients, for comparison. They parse nothing.

    python bare.py consume PORT transaction|cumulative COUNT NAME HEADER:VALUE...
    python bare.py publish PORT DESTINATION FILE WINDOW|t100
    python bare.py storm PORT DESTINATION SESSIONS AT_A_TIME

consume   subscribes under the client-id NAME with these headers and reads COUNT messages; every
          thousand get one cumulative ack, in a transaction where the broker supports that. Prints
          when the first message could arrive and when the last ack was confirmed (s since 1970),
          then when each fiftieth message arrived. A COUNT of 0 only subscribes.
publish   sends every record of FILE as a persistent, confirmed message: at most WINDOW receipts are
          outstanding, or with t100 there is one per transaction of 100. Prints the seconds.
storm     SESSIONS that each connect, send a message of 600 bytes, wait for its receipt and
          disconnect, AT_A_TIME of them from one thread. Prints the seconds, and the median and p99
          of a session. They come from many loopback addresses, or the ports would run out.
"""

import selectors
import socket
import sys
import time
from collections.abc import Callable
from statistics import quantiles

BATCH = 1000
STEP = 50
TIMEOUT_S = 30.0
CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n%b\n\0"
BYE = b"DISCONNECT\nreceipt:bye\n\n\0"
ACK = {
    "transaction": b"BEGIN\ntransaction:t%(n)d\n\n\0ACK\nid:%(id)b\ntransaction:t%(n)d\n\n\0"
    b"COMMIT\ntransaction:t%(n)d\n%(receipt)b\n\0",
    "cumulative": b"ACK\nid:%(id)b\n%(receipt)b\n\0",
}
SEND = b"SEND\ndestination:%b\npersistent:true\n%b\n\n%b\0"
IP_BIND_ADDRESS_NO_PORT = 24


def connected(port: str, header: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(CONNECT % header)
    if not connection.recv(65536).startswith(b"CONNECTED"):
        raise SystemExit("the broker refused the connection")
    return connection


def consume(port: str, way: str, count: str, name: str, *headers: str) -> None:
    connection = connected(port, f"client-id:{name}\n".encode())
    began = time.time()
    lines = "\n".join(["SUBSCRIBE", "id:0", "ack:client", "receipt:subscribed", *headers])
    connection.sendall(f"{lines}\n\n\0".encode())
    moments = read(connection, way, int(count))
    ended = time.time()
    connection.sendall(BYE)
    connection.recv(65536)
    print(began, ended)
    print(*moments)


def read(connection: socket.socket, way: str, count: int) -> list[float]:
    """Read the messages and the receipts of subscription and last ack; when each STEPth arrived."""
    moments: list[float] = []
    frames_read = acked = number = 0
    incomplete = b""
    frames = count + 2 if count else 1
    while frames_read < frames:
        data = connection.recv(1 << 18)
        if not data:
            raise SystemExit(f"the broker closed the connection after {incomplete[:200]!r}")
        data = incomplete + data
        end = data.rfind(b"\0") + 1
        frames_read += data.count(b"\0", 0, end)
        moments += [time.time()] * (min(frames_read - 1, count) // STEP - len(moments))
        last = frames_read == count + 1
        if end and count and (frames_read - acked >= BATCH or last):
            at = data.rfind(b"\nack:", 0, end) + len(b"\nack:")
            number += 1
            receipt = b"receipt:done\n" if last else b""
            ack_id = data[at : data.index(b"\n", at)]
            connection.sendall(ACK[way] % {b"n": number, b"id": ack_id, b"receipt": receipt})
            acked = frames_read
        incomplete = data[end:]
    return moments


def publish(port: str, destination: str, path: str, way: str) -> None:
    with open(path, "rb") as file:
        bodies = [body + b"EOT\n" for body in file.read().split(b"EOT\n")[:-1]]
    started = time.perf_counter()
    connection = connected(port)
    in_transactions = way.startswith("t")
    size = int(way[1:]) if in_transactions else int(way) // 2
    confirmed = 0
    for start in range(0, len(bodies), size):
        header = b"transaction:%d" % start if in_transactions else b"receipt:1"
        part = [SEND % (destination.encode(), header, body) for body in bodies[start:][:size]]
        if in_transactions:
            part = [b"BEGIN\n%b\n\n\0" % header, *part, b"COMMIT\n%b\nreceipt:1\n\n\0" % header]
        connection.sendall(b"".join(part))
        if in_transactions:
            receive(connection, 1)
        else:
            confirmed += receive(connection, start - confirmed)
    if not in_transactions:
        receive(connection, len(bodies) - confirmed)
    print(time.perf_counter() - started)


def receive(connection: socket.socket, least: int) -> int:
    """Read at least `least` receipts; return their number."""
    count = 0
    while count < least:
        data = connection.recv(65536)
        if not data or b"ERROR" in data:
            raise SystemExit(f"unexpected answer of the broker: {data[:200]!r}")
        count += data.count(b"\0")
    return count


def storm(port: str, destination: str, sessions: str, at_a_time: str) -> None:
    frames = [SEND % (destination.encode(), b"receipt:1", 60 * b"results 10"), BYE]
    selector = selectors.DefaultSelector()
    waiting = iter(range(int(sessions)))
    took_s: list[float] = []

    def open_next() -> None:
        number = next(waiting, None)
        if number is None:
            return
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        connection.bind((f"127.0.1.{number % 250 + 1}", 0))
        connection.connect_ex(("127.0.0.1", int(port)))
        state = [time.perf_counter(), CONNECT % b"", *frames]
        selector.register(connection, selectors.EVENT_WRITE, state)

    began = time.perf_counter()
    for _ in range(int(at_a_time)):
        open_next()
    while selector.get_map():
        events = selector.select(TIMEOUT_S)
        if not events:
            raise SystemExit(f"no answer for {TIMEOUT_S:g} s")
        for key, event in events:
            connection, state = key.fileobj, key.data
            assert isinstance(connection, socket.socket)
            if event & selectors.EVENT_READ:
                data = connection.recv(4096)
                if data and b"\0" not in data:
                    continue  # the end of a line, between two frames
                if not data.lstrip(b"\n").startswith((b"CONNECTED", b"RECEIPT")):
                    raise SystemExit(f"unexpected answer of the broker: {data[:200]!r}")
            if len(state) > 1:
                connection.sendall(state.pop(1))
                selector.modify(connection, selectors.EVENT_READ, state)
                continue
            selector.unregister(connection)
            connection.close()
            took_s.append(time.perf_counter() - state[0])
            open_next()
    percentiles = quantiles(took_s, n=100)
    print(time.perf_counter() - began, percentiles[49], percentiles[98])


COMMANDS: dict[str, Callable[..., None]] = {"consume": consume, "publish": publish, "storm": storm}


if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
