"""Why a record or a message can never be loaded: what each reason means, and what to do then."""

from __future__ import annotations

ASK_THE_SENDER = "edit it, or ask the sender"

REASONS = {
    "missing-key": ("a key that the class requires is missing", ASK_THE_SENDER),
    "bad-status": (
        "`metricStatus` is not OK, WARNING, CRITICAL, UNKNOWN or 0 to 3",
        "ask the sender",
    ),
    "bad-time": ("not a time, a date or a time of day", "ask the sender"),
    "bad-host": ("`hostName` is not a host name", "ask the sender"),
    "bad-weight": ("the weight of a group's member is not a whole number", "ask the sender"),
    "too-old": ("`timestamp` is older than `max_age_days`", "drop it; or raise the limit, replay"),
    "in-the-future": (
        "`timestamp` is more than `max_future_s` ahead",
        "correct the clock, the sender's or ours",
    ),
    "too-large": ("the body exceeds `max_message_bytes`", "raise the limit, then replay"),
    "too-many-records": ("there are more than `max_records`", "raise the limit, then replay"),
    "truncated": ("a record ends without `EOT`", "the rest is lost: send it again"),
    "no-key": ("a line is not `key: value`", ASK_THE_SENDER),
    "duplicate-key": ("a record has a key twice", ASK_THE_SENDER),
    "empty": ("the message has no record, or a record no key", "drop it"),
    "not-json": ("announced as JSON, but not an object or an array of objects", ASK_THE_SENDER),
    "nested": ("a JSON value is an array or an object", "ask the sender; `rename` does not help"),
    "bad-text": ("JSON with a lone surrogate", "ask the sender"),
    "nul-byte": ("a value holds a NUL byte", ASK_THE_SENDER),
    "control-character": ("a value of one line holds a control character", ASK_THE_SENDER),
    "unknown-format": ("the header `samFormat` names no format", "`edit --header samFormat=`"),
    "bad-rename": ("the header `samRename` cannot be read", "`edit --header samRename=`"),
}
