"""The fastest possible one-shot publishers, for measuring how many sessions a broker accepts.

    python bare_storm.py PORT DESTINATION SESSIONS AT_A_TIME

Each session connects, sends one persistent message of 600 bytes, waits for its receipt and
disconnects, like a command that publishes one result. AT_A_TIME of them are open at any time. All
come from one thread, so that a session costs the client little. Prints the seconds, and how long a
session took (median and p99). Linux only: the sessions come from many loopback addresses, because
the ports of a single one run out.
"""

import selectors
import socket
import sys
import time
from statistics import quantiles

TIMEOUT_S = 30.0
CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"
SEND = b"SEND\ndestination:%b\npersistent:true\nreceipt:1\n\n" + 60 * b"results 10" + b"\0"
DISCONNECT = b"DISCONNECT\nreceipt:2\n\n\0"
ANSWERS = (b"CONNECTED", b"RECEIPT", b"RECEIPT")
ADDRESSES = 250
IP_BIND_ADDRESS_NO_PORT = 24


class Storm:
    def __init__(self, port: int, destination: bytes, sessions: int) -> None:
        self._port = port
        self._frames = (CONNECT, SEND % destination, DISCONNECT)
        self._waiting = sessions
        self._opened = 0
        self._selector = selectors.DefaultSelector()
        self.took_s: list[float] = []

    def run(self, at_a_time: int) -> float:
        """Run all sessions; returns the seconds."""
        began = time.perf_counter()
        for _ in range(at_a_time):
            self._open()
        while self._selector.get_map():
            events = self._selector.select(TIMEOUT_S)
            if not events:
                raise SystemExit(f"no answer for {TIMEOUT_S:g} s")
            for key, _ in events:
                self._proceed(key)
        return time.perf_counter() - began

    def _open(self) -> None:
        if not self._waiting:
            return
        self._waiting -= 1
        self._opened += 1
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        connection.bind((f"127.0.1.{self._opened % ADDRESSES + 1}", 0))
        connection.connect_ex(("127.0.0.1", self._port))
        state = [0, time.perf_counter()]
        self._selector.register(connection, selectors.EVENT_WRITE, state)

    def _proceed(self, key: selectors.SelectorKey) -> None:
        connection, state = key.fileobj, key.data
        step = state[0]
        assert isinstance(connection, socket.socket)
        if key.events & selectors.EVENT_WRITE:
            connection.sendall(CONNECT)
            self._selector.modify(connection, selectors.EVENT_READ, state)
            return
        data = connection.recv(4096)
        if b"\0" not in data:
            if not data:
                raise SystemExit(f"the broker closed a connection after {step} answers")
            return  # the end of a line, between two frames
        if not data.lstrip(b"\n").startswith(ANSWERS[step]):
            raise SystemExit(f"unexpected answer of the broker: {data[:200]!r}")
        if step < 2:
            state[0] = step + 1
            connection.sendall(self._frames[step + 1])
            return
        self._selector.unregister(connection)
        connection.close()
        self.took_s.append(time.perf_counter() - state[1])
        self._open()


def main() -> None:
    port, destination, sessions, at_a_time = sys.argv[1:]
    storm = Storm(int(port), destination.encode(), int(sessions))
    seconds = storm.run(int(at_a_time))
    percentiles = quantiles(storm.took_s, n=100)
    print(seconds, percentiles[49], percentiles[98])


if __name__ == "__main__":
    main()
