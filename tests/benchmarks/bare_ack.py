"""How long a STOMP broker takes from the acks of a batch until it sends more, for the simulation.

    python bare_ack.py PORT transaction|cumulative ROUNDS NAME HEADER:VALUE...

It subscribes under the client-id NAME with these headers, which limit the messages without an ack,
and does not ack before the broker has nothing more to send. Then it acks all that it has, as
`bare_consumer.py` does. Prints, in seconds, how long each of the acks took until the next message.
There must be a backlog of as many windows as there are rounds, and one more.
"""

import select
import socket
import sys
import time

from bare_consumer import ack

STALL_S = 0.1
PATIENCE_S = 30.0


def main() -> None:
    port, way, rounds, name, *headers = sys.argv[1:]
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(f"CONNECT\naccept-version:1.2\nhost:/\nclient-id:{name}\n\n\0".encode())
    if not connection.recv(65536).startswith(b"CONNECTED"):
        raise SystemExit("the broker refused the connection")
    lines = "\n".join(["SUBSCRIBE", "id:0", "ack:client", *headers])
    connection.sendall(f"{lines}\n\n\0".encode())
    received = until_stalled(connection)
    for number in range(int(rounds)):
        at = received.rfind(b"\nack:") + len(b"\nack:")
        connection.sendall(ack(way, number, received[at : received.index(b"\n", at)], b""))
        began = time.perf_counter()
        if not select.select([connection], [], [], PATIENCE_S)[0]:
            raise SystemExit(f"no message after the acks of {number + 1} windows")
        print(time.perf_counter() - began)
        received = until_stalled(connection)
    connection.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
    connection.recv(65536)


def until_stalled(connection: socket.socket) -> bytes:
    """All that arrives until nothing does for a while."""
    received = b""
    while select.select([connection], [], [], STALL_S if received else PATIENCE_S)[0]:
        data = connection.recv(1 << 18)
        if not data:
            raise SystemExit(f"the broker closed the connection after {received[-200:]!r}")
        received += data
    return received


if __name__ == "__main__":
    main()
