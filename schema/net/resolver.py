"""From a host's name to its addresses, under a deadline: libc's resolver itself takes none."""

from __future__ import annotations

from typing import Any

from sam_pipeline.schema.net.deadline import BackgroundCall, Deadline


class Resolver:
    """Looks names up, any number of times and from any thread.

    A look-up that outlives its deadline goes on, and the next caller waits for it instead of
    starting another: a name server that hangs costs one thread, and one that is merely slow is
    heard in the end.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[object, ...], BackgroundCall] = {}

    def ips_of(self, host: str, port: int, deadline: Deadline) -> list[str]:
        """All addresses of a name, of one family: two families mostly lead to the same host.

        Raises:
            OSError: the name is not resolved, or not in time.
        """
        import socket  # slow to import, and not needed for a spool

        from sam_pipeline.schema.net.channel import words_of

        query = (host, port, 0, socket.SOCK_STREAM, 0)
        try:
            try:
                infos = socket.getaddrinfo(*query, socket.AI_NUMERICHOST)
            except socket.gaierror:
                infos = self._look_up((*query, socket.AI_ADDRCONFIG), deadline)
        except (OSError, UnicodeError) as error:
            raise OSError(f"its name is not resolved: {words_of(error)}") from error
        # A host with both families answers on IPv4; one with IPv6 alone has no IPv4 address.
        family = min(info[0] for info in infos)
        return list(dict.fromkeys(str(info[4][0]) for info in infos if info[0] == family))

    def _look_up(self, query: tuple[object, ...], deadline: Deadline) -> Any:
        from socket import getaddrinfo

        call = self._pending.get(query)
        if call is None:  # two threads may both start one: each gets an answer
            call = self._pending[query] = BackgroundCall(getaddrinfo, *query)
        try:
            return call.result(deadline)
        finally:
            if call.finished:
                self._pending.pop(query, None)
