"""The fastest possible consumer for a STOMP broker, for comparison.

    python bare_consumer.py PORT transaction|cumulative COUNT NAME HEADER:VALUE...

It subscribes under the client-id NAME with these headers and reads COUNT messages without parsing
them. Every thousand messages get one cumulative ack, in a transaction where the broker supports
that. Prints two times (s since 1970): when the first message could arrive, and when the broker had
confirmed the last ack; then, in a second line, when each fiftieth message arrived. A COUNT of 0
only subscribes.
"""

import socket
import sys
import time

BATCH = 1000
STEP = 50
"""Also that of the simulation."""
ACK = {
    "transaction": b"BEGIN\ntransaction:t%d\n\n\0"
    b"ACK\nid:%b\ntransaction:t%d\n\n\0"
    b"COMMIT\ntransaction:t%d\n%b\n\0",
    "cumulative": b"ACK\nid:%b\n%b\n\0",
}


def main() -> None:
    port, way, count, name, *headers = sys.argv[1:]
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(f"CONNECT\naccept-version:1.2\nhost:/\nclient-id:{name}\n\n\0".encode())
    if not connection.recv(65536).startswith(b"CONNECTED"):
        raise SystemExit("the broker refused the connection")
    began = time.time()
    lines = "\n".join(["SUBSCRIBE", "id:0", "ack:client", "receipt:subscribed", *headers])
    connection.sendall(f"{lines}\n\n\0".encode())
    moments = read(connection, way, int(count))
    ended = time.time()
    connection.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
    connection.recv(65536)
    print(began, ended)
    print(*moments)


def read(connection: socket.socket, way: str, count: int) -> list[float]:
    """Read `count` messages, and the receipts for the subscription and for the last ack.

    Returns when each fiftieth message arrived.
    """
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
            connection.sendall(ack(way, number, data[at : data.index(b"\n", at)], receipt))
            acked = frames_read
        incomplete = data[end:]
    return moments


def ack(way: str, number: int, ack_id: bytes, receipt: bytes) -> bytes:
    if way == "transaction":
        return ACK[way] % (number, ack_id, number, number, receipt)
    return ACK[way] % (ack_id, receipt)


if __name__ == "__main__":
    main()
