"""The reasons why a record or a message can never be loaded: meaning and remedy of each."""

from __future__ import annotations

ASK_THE_SENDER = "edit it, or ask the sender"

REASONS = {
    "missing-key": ("a key that the class requires is missing", ASK_THE_SENDER),
    "bad-status": (
        "`metricStatus` is not OK, WARNING, CRITICAL, UNKNOWN or 0 to 3",
        "ask the sender",
    ),
    "bad-time": (
        "a value is not a time, a date or a time of day, or `endTime` is before `startTime`",
        "ask the sender",
    ),
    "bad-host": ("`hostName` is not a host name", "ask the sender"),
    "bad-weight": ("the weight of a group's member is not a whole number", "ask the sender"),
    "too-old": (
        "`timestamp` is older than `max_age`",
        "drop it; raise the limit and replay; or let `sam-db import` load the data of its sender",
    ),
    "in-the-future": (
        "`timestamp` is more than `max_future` ahead",
        "set the clock of the sender or of this host",
    ),
    "not-authorised": (
        "the [policy](consumer-reference.md#policy) does not allow the publisher to send this",
        "ask the sender; or correct the policy, then replay",
    ),
    "unsigned": (
        "the policy requires a signature of this publisher, and the message has none",
        "ask the sender; or correct the policy, then replay",
    ),
    "bad-frame": (
        "the frame of the message is malformed, or its headers are not UTF-8 or too large",
        "ask the sender; `edit` loads the body under headers of yours",
    ),
    "too-large": (
        "the body exceeds `max_message_bytes`; above 64 KiB only its beginning is kept",
        "raise the limit, and replay it or let it be sent again",
    ),
    "bad-signature": (
        "the message is not what was signed, or another key of that name has signed it",
        "ask the sender; if its key is new, add it to the policy and replay",
    ),
    "signature-expired": (
        "the message was signed more than `signature_age` ago, or in the future",
        "set the clock of the sender or of this host, or raise the limit; then replay",
    ),
    "too-many-records": (
        "the message has more than `max_records`, or, in JSON, too many values",
        "raise the limit, then replay",
    ),
    "truncated": ("a record ends without `EOT`", "its end is lost: send it again"),
    "no-key": ("a line does not have the form `key: value`", ASK_THE_SENDER),
    "duplicate-key": ("a key appears twice in a record", ASK_THE_SENDER),
    "empty": ("the message has no record, or a record has no key", "drop it"),
    "not-json": (
        "the content type is JSON, but the body is not an object or an array of objects",
        ASK_THE_SENDER,
    ),
    "nested": ("a JSON value is an array or an object", "ask the sender; `rename` does not help"),
    "bad-text": ("the JSON contains a lone surrogate", "ask the sender"),
    "nul-byte": ("a value contains a NUL byte", ASK_THE_SENDER),
    "control-character": ("a value of one line contains a control character", ASK_THE_SENDER),
    "unknown-format": (
        "the header `samFormat` names an unknown format",
        "`edit --header samFormat=`",
    ),
    "bad-rename": ("the header `samRename` cannot be read", "`edit --header samRename=`"),
}
