"""From the name of a host to its addresses, under a deadline: libc's resolver accepts none."""

from __future__ import annotations

from collections.abc import Iterable

from sam_pipeline.schema.net.deadline import BackgroundCall, Deadline


class Resolver:
    """Looks up names, any number of times and from any thread.

    A look-up that outlives its deadline goes on, and the next caller waits for it instead of
    starting another: a name server that hangs costs one thread, and the answer of a slow one is
    used in the end.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[object, ...], BackgroundCall] = {}

    def ips_of(self, host: str, port: int, deadline: Deadline) -> list[str]:
        """All addresses of a name, in the order in which to try them (RFC 6724).

        Raises:
            OSError: the name does not resolve, or not in time.
        """
        import socket  # slow to import, and a spool needs none

        from sam_pipeline.schema.net.channel import error_text

        numeric = (host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        query = (host, port, 0, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        try:
            try:
                infos = socket.getaddrinfo(*numeric)
            except socket.gaierror:
                call = self._pending.get(query)
                if call is None:  # two threads may both start one: each gets an answer
                    call = self._pending[query] = BackgroundCall(socket.getaddrinfo, *query)
                try:
                    infos = call.result(deadline)
                finally:
                    if call.finished:
                        self._pending.pop(query, None)
        except (OSError, UnicodeError) as error:
            raise OSError(f"name resolution failed: {error_text(error)}") from error
        return list(dict.fromkeys(str(info[4][0]) for info in infos))


def by_family(ips: Iterable[str]) -> list[list[str]]:
    """Addresses by IPv4 and IPv6, in order: the two usually lead to the same hosts."""
    families: dict[bool, list[str]] = {}
    for ip in ips:
        families.setdefault(":" in ip, []).append(ip)
    return list(families.values())
