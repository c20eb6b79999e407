"""Identities: the sender of a message, as established where it entered the system.

An identity is a text `<kind>:<name>`, or `anonymous`. A source removes the identity that a message
claims and sets what it has established itself; relays, dead letters and replays keep that.
"""

from __future__ import annotations

from sam_pipeline.schema.messages.message import Message, Origin

IDENTITY = "samIdentity"
"""The header of an identified message; a message without it is anonymous."""

ANONYMOUS = "anonymous"
KEY, TOKEN, CERTIFICATE = "key", "token", "cert"
"""A signature; a bearer token and a client certificate of the HTTP door."""
BROKER, UID, OPERATOR = "broker", "uid", "operator"
"""A user name that a broker vouches for; the owner of a file; the editor of a letter."""


def identity_of(message: Message) -> str:
    """The identity that the source of a message has set."""
    return message.headers.get(IDENTITY) or ANONYMOUS


def with_identity(message: Message, identity: str) -> Message:
    """The message with this identity instead of any that it claims."""
    headers = {name: value for name, value in message.headers.items() if name != IDENTITY}
    if identity != ANONYMOUS:
        headers[IDENTITY] = identity
    return Message(headers, message.body)


def identified(message: Message) -> Message:
    """The message as a relay passes it on: with its identity, even if that is anonymous.

    Without one, it would get that of the relay.
    """
    return Message({IDENTITY: ANONYMOUS, **message.headers}, message.body)


def established_identity(claimed: str, own: str) -> str:
    """The identity that a relay claims to have established, or else `own`, that of the relay."""
    # No relay establishes an operator, for whom the policy has no rules; and a signed message is
    # verified again, wherever it arrives.
    if not claimed or claimed.startswith((f"{OPERATOR}:", f"{KEY}:")) or not claimed.isprintable():
        return own
    return claimed


def known_identity(identity: str) -> str:
    """The identity in texts for people, which do not name anonymous senders."""
    return "" if identity == ANONYMOUS else identity


def sender_name(identity: str, origin: Origin) -> str:
    """Who sent a message, for people: the identity, then what the sender claims; "" if neither."""
    claimed = f"{origin} (claimed)" if str(origin) else ""
    return ", ".join(filter(None, (known_identity(identity), claimed)))


def key_identity(name: str) -> str:
    """The identity of messages signed with the key of this name."""
    return f"{KEY}:{name}"


def token_identity(name: str) -> str:
    """The identity of messages sent with a token of this name."""
    return f"{TOKEN}:{name}"


def certificate_identity(subject: str) -> str:
    """The identity of messages sent with a client certificate of this subject."""
    return f"{CERTIFICATE}:{subject}"


def broker_identity(url: str, user: str) -> str:
    """The identity of `user` at the broker with this URL."""
    return f"{BROKER}:{url}/{user}"


def uid_identity(number: int) -> str:
    """The identity of the account with this number, which stored a message in a spool."""
    return f"{UID}:{number}"


def operator_identity(login: str) -> str:
    """The identity of the operator with this login, who edited a letter."""
    return f"{OPERATOR}:{login}"
