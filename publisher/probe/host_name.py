"""The name of this host; and how to ask a resolver, which can't be told how long it may take."""

from __future__ import annotations

import os

from sam_pipeline.schema.net.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

HOST_NAME_TIMEOUT_S = 2.0


def this_host() -> str:
    """The full name of this host; the short one where DNS has none, or does not answer quickly."""
    name = os.uname().nodename
    if "." in name:
        return name
    try:
        full = str(within(Deadline.after(HOST_NAME_TIMEOUT_S), _full_name, name))
    except (OSError, UnicodeError):  # TimeoutError, too
        return name
    return name if full.startswith("localhost") else full


def _full_name(name: str) -> str:
    """The first of the names of a host that has a dot."""
    # `socket` has getfqdn, and takes longer to import than all of our own modules.
    from _socket import gethostbyaddr

    # Text would be encoded as IDNA, which is slow to import, too.
    host, aliases, _ = gethostbyaddr(name.encode())  # type: ignore[arg-type]
    return next((each for each in [host, *aliases] if "." in each), name)


def within(deadline: Deadline, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call that can't be told how long it may take: it is left behind.

    Raises:
        TimeoutError: it took longer; or what the call itself raises.
    """
    import _thread  # what `threading` builds on, without the time that importing it takes

    outcome: list[tuple[Any, Exception | None]] = []
    done = _thread.allocate_lock()
    done.acquire()

    def ask() -> None:
        try:
            outcome.append((call(*arguments), None))
        except Exception as error:  # carried to the thread that waits, and raised there
            outcome.append((None, error))
        done.release()

    _thread.start_new_thread(ask, ())
    if not done.acquire(timeout=deadline.remaining()):
        raise TimeoutError("no answer in time")
    answer, error = outcome[0]
    if error:
        raise error
    return answer
