"""From the name of a host to its addresses, under a deadline: libc's resolver accepts none."""

from __future__ import annotations

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
        """All addresses of a name, of one family: both families usually lead to the same host.

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
        # A host with both families answers on IPv4; one with only IPv6 has no IPv4 address.
        family = min(info[0] for info in infos)
        return list(dict.fromkeys(str(info[4][0]) for info in infos if info[0] == family))
