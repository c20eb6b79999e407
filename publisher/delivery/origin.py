"""Where the messages of this process come from, as it claims in their headers."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sam_pipeline.schema import VERSION
from sam_pipeline.schema.messages.message import HOST, PROGRAM, USER
from sam_pipeline.schema.net.deadline import Deadline, within

LONGEST = 100
"""The most characters of a value."""

USER_TIMEOUT_S = 1.0
"""How long the name of an account is looked up: a directory service may be down."""

NAMED_USER = ("LOGNAME", "USER")


def command_origin(command: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of messages that a command of `sam-publish` makes."""
    return origin_of(f"sam-publish/{VERSION} {command}", environment)


def script_origin(script: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of messages that a script makes with the library."""
    return origin_of(f"{os.path.basename(script) or 'python'} sam-publish/{VERSION}", environment)


def origin_of(program: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of messages that `program` makes on this host, printable in any header."""
    # DNS is not asked for the full name, so that all messages from a host carry the same name.
    user = next(filter(None, map(environment.get, NAMED_USER)), None) or _name_of_account()
    headers = {HOST: os.uname().nodename, PROGRAM: program, USER: user}
    for header, value in headers.items():
        if not (value.isascii() and value.isprintable()):  # some broker might change it
            value = "".join(c if " " <= c <= "~" else "?" for c in value)
        headers[header] = value.strip()[:LONGEST]
    return headers


def _name_of_account() -> str:
    # `import getpass` would be slower.
    from pwd import getpwuid

    number = os.getuid()
    try:
        account = within(Deadline.after(USER_TIMEOUT_S), getpwuid, number)
    except (KeyError, OSError, RuntimeError):  # including TimeoutError; no more threads
        return f"uid {number}"
    return str(account.pw_name)
