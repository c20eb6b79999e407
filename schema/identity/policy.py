"""The policy: which identity may send what, and how fast. Nothing that it does not list is allowed.

Every site that a record names, or that its host belongs to in the record's period, must match the
`sites` of the publisher; a host that belongs to no site must match its `hosts`. The site that a
metric result names is not believed: the topology is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import translate
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Optional

from sam_pipeline.schema.errors import ConfigError, how_to_install
from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    BROKER,
    CERTIFICATE,
    KEY,
    TOKEN,
    UID,
    key_identity,
)
from sam_pipeline.schema.identity.keys import PublicKey, parse_public_key
from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, folded
from sam_pipeline.schema.settings.key import POSITIVE, Settings, config_key, each, joined, one_of
from sam_pipeline.schema.settings.section import examine_file

ENFORCE, OBSERVE = "enforce", "observe"
"""What to do with forbidden records: refuse them, or load them and count them."""

NOT_AUTHORISED, UNSIGNED = "not-authorised", "unsigned"
"""The reasons for which the policy refuses a record."""

KINDS = (KEY, TOKEN, CERTIFICATE, BROKER, UID)
"""The kinds of identities that a policy may list; what operators enter is always allowed."""
ANY = "*"
MAX_IDENTITIES = 20_000
"""Identities whose publishers are cached."""
LONGEST = 80
"""The most characters of a value that a refusal quotes."""
MOST_SHOWN = 5
"""The most patterns that a refusal quotes."""
_SPECIAL = re.compile(r"[*?[]")
_USER = re.compile(rf"{BROKER}:(?:[^/]*://)?[^/]*/(.*)", re.DOTALL)


def _problems_of_identities(texts: tuple[str, ...]) -> Iterator[str]:
    if not texts:
        yield "the list is empty"
    for text in texts:
        kind, _, name = text.partition(":")
        if text == ANONYMOUS:
            continue
        if kind not in KINDS or not name:
            suggestion = did_you_mean(kind, (*KINDS, ANONYMOUS)) if kind not in KINDS else ""
            forms = ", ".join(f"{known}:NAME" for known in KINDS)
            problem = f"{text!r} is not an identity: expected {forms} or {ANONYMOUS}"
            yield f"{problem}{suggestion and f' ({suggestion})'}"
        elif kind == CERTIFICATE and (form := _usual_subject(name)) != name:
            yield f"{text!r} never matches: write {kind}:{form}, the last part first"
        elif kind == KEY and ANY in name:
            yield f"{text!r}: a key has one name, without {ANY}"


def _usual_subject(text: str) -> str:
    """A subject as we write it, from the forms of grid-mapfiles and of `openssl`."""
    if text.startswith("/"):
        parts = re.split(r"/(?=[A-Za-z]+=)", text[1:])
    else:
        parts = re.split(r"(?<!\\),\s*", text)
    parts = [re.sub(r"\s*=\s*", "=", part, count=1).strip() for part in parts]
    keys = [part.partition("=")[0].upper() for part in parts]
    is_reversed = keys[0] in ("C", "DC") and "CN" in keys[1:]
    return ",".join(reversed(parts) if is_reversed else parts)


def _problem_of_key(text: str) -> str | None:
    try:
        parse_public_key(text)
    except ValueError as error:
        return str(error)
    return None


def _check_not_empty(value: Sequence[str]) -> str | None:
    return None if value else "it is empty, so nothing would be allowed"


class PublisherRule(Settings):
    """What one publisher may send."""

    name: str = config_key("the name in reports and messages", _check_not_empty)
    identities: tuple[str, ...] = config_key(
        "the identities of the publisher; `*` stands for any characters",
        joined(_problems_of_identities),
        key="is",
    )
    classes: tuple[str, ...] = config_key(
        "the classes that it may send, as patterns", _check_not_empty
    )
    keys: tuple[str, ...] = config_key(
        "the public keys of its identity `key:NAME`, as `sam-publish key show` prints them",
        each(_problem_of_key),
        (),
    )
    signed: bool = config_key("what it sends must be signed with one of its keys", default=False)
    sites: tuple[str, ...] = config_key(
        "patterns of sites: each one that a record names or to which its host belongs must match",
        default=(),
    )
    hosts: tuple[str, ...] = config_key("patterns of hosts that belong to no site", default=())
    monitoring_hosts: Optional[tuple[str, ...]] = config_key(
        "patterns of the `monitoringHost` of its metric results; by default any", default=None
    )
    records_per_minute: Optional[int] = config_key(
        "above this rate its source is read more slowly; nothing is lost", POSITIVE, None
    )
    dead_letters_per_hour: Optional[int] = config_key(
        "the limit on its dead letters, instead of the one in [consumer]",
        POSITIVE,
        None,
    )
    backdates: bool = config_key(
        "its downtimes count as announced at their `timestamp`, even if they arrive later",
        default=False,
    )
    until: Optional[date] = config_key("the last day on which it may send, in UTC", default=None)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The names of its keys, which its signed messages bear."""
        prefix = key_identity("")
        return tuple(text[len(prefix) :] for text in self.identities if text.startswith(prefix))

    @cached_property
    def allowed(self) -> Allowed:
        """The lists as patterns: those of classes and hosts, which have no case, in lower case."""
        return Allowed(
            Patterns(map(folded, self.classes)),
            Patterns(self.sites),
            Patterns(map(str.lower, self.hosts)),
            Patterns(map(str.lower, self.monitoring_hosts or ())),
        )


class Allowed(NamedTuple):
    """The values that a publisher may use."""

    classes: Patterns
    sites: Patterns
    hosts: Patterns
    monitoring_hosts: Patterns


class Policy(Settings):
    """All publishers; no two of them share a name, an identity or a key."""

    mode: str = config_key(
        "`enforce`: a forbidden record becomes a dead letter; `observe`: it is loaded and counted",
        one_of(ENFORCE, OBSERVE),
    )
    publishers: tuple[PublisherRule, ...] = config_key("", default=(), key="publisher")
    accept_refusals: bool = config_key(
        "a reload uses it although it refuses more than a tenth of the records accepted in the last"
        " hour",
        default=False,
    )

    @property
    def enforces(self) -> bool:
        """Whether forbidden records are refused."""
        return self.mode == ENFORCE

    @property
    def class_names(self) -> set[str]:
        """The classes that publishers list by name, not by a pattern."""
        texts = {text for publisher in self.publishers for text in publisher.classes}
        return {text for text in texts if not _SPECIAL.search(text)}

    @cached_property
    def publisher_of(self) -> Callable[[str], PublisherRule | None]:
        """Finds the publisher that lists an identity, else the first with a pattern for it."""
        return lru_cache(maxsize=MAX_IDENTITIES)(_Finder(self.publishers).publisher_of)

    @cached_property
    def keys(self) -> Mapping[str, Sequence[PublicKey]]:
        """The public keys by the name that signed messages bear."""
        return {
            name: tuple(map(parse_public_key, publisher.keys))
            for publisher in self.publishers
            for name in publisher.key_names
        }


def refusal(
    publisher: PublisherRule | None,
    message_class: str,
    row: Mapping[str, str],
    sites: Collection[str],
    today: date,
) -> str | None:
    """Why the publisher may not send this, as rule and value; None if it may.

    `row` has the values of the record by key; `sites` are those that its host belongs to in the
    record's period. A publisher of None is one that the policy does not know.
    """
    reason = refusal_of_class(publisher, message_class, today)
    if publisher is None or reason:
        return reason
    allowed = publisher.allowed
    is_result = folded(message_class) == folded(METRIC_OUTPUT.name)
    host, site = row.get("hostName", ""), row.get("siteName", "")
    if site and not is_result and not allowed.sites.match(site):
        return f"sites: {site[:LONGEST]} does not match {allowed.sites}"
    for site in sorted(sites):
        if not allowed.sites.match(site):
            return (
                f"sites: {site}, to which {host[:LONGEST]} belongs, does not match {allowed.sites}"
            )
    if host and not sites and not allowed.hosts.match(host.lower()):
        return f"hosts: {host[:LONGEST]}, which belongs to no site, does not match {allowed.hosts}"
    monitoring_host = row.get("monitoringHost", "")
    is_limited = publisher.monitoring_hosts is not None and (is_result or monitoring_host)
    if is_limited and not allowed.monitoring_hosts.match(monitoring_host.lower()):
        value = monitoring_host[:LONGEST] or "none"
        return f"monitoring_hosts: {value} does not match {allowed.monitoring_hosts}"
    return None


def refusal_of_class(
    publisher: PublisherRule | None, message_class: str, today: date
) -> str | None:
    """Why the publisher may send nothing of this class today; None if it may."""
    if publisher is None:
        return "no publisher of the policy has this identity"
    if publisher.until is not None and today > publisher.until:
        return f"until: {publisher.until} has passed"
    if not publisher.allowed.classes.match(folded(message_class)):
        return f"classes: {message_class[:LONGEST]} does not match {publisher.allowed.classes}"
    return None


class Patterns:
    """Shell patterns, one of which a text must match."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._texts = tuple(patterns)
        self._names = frozenset(self._texts)
        self._patterns = tuple(filter(_SPECIAL.search, self._texts))

    def match(self, text: str) -> bool:
        """Whether the text is one of the patterns, or matches one."""
        return text in self._names or any(matches(pattern, text) for pattern in self._patterns)

    def __str__(self) -> str:
        shown = ", ".join(self._texts[:MOST_SHOWN])
        more = len(self._texts) - MOST_SHOWN
        return f"{shown} and {more} more" if more > 0 else shown or "an empty list"


class _Finder:
    """The publishers by identity; patterns are indexed by what follows their last `*`.

    So thousands of publishers with patterns such as `broker:*/NAME` cost no more than one.
    """

    def __init__(self, publishers: Iterable[PublisherRule]) -> None:
        self._listed: dict[str, PublisherRule] = {}
        self._by_tail: dict[str, list[tuple[int, str, str, PublisherRule]]] = {}
        for number, publisher in enumerate(publishers):
            for text in publisher.identities:
                self._listed[text] = publisher
                if ANY in text:
                    literal = re.sub(r"[\[?]", r"[\g<0>]", text)
                    entry = (number, literal, user_in(literal), publisher)
                    self._by_tail.setdefault(text.rpartition(ANY)[2], []).append(entry)
        self._lengths = sorted({len(tail) for tail in self._by_tail})

    def publisher_of(self, identity: str) -> PublisherRule | None:
        if identity in self._listed:
            return self._listed[identity]
        tails = {identity[max(len(identity) - length, 0) :] for length in self._lengths}
        user = user_in(identity)
        matching = [
            (number, publisher)
            for tail in tails
            for number, pattern, user_pattern, publisher in self._by_tail.get(tail, ())
            if matches(pattern, identity) and matches(user_pattern, user)
        ]
        return min(matching, key=lambda pair: pair[0])[1] if matching else None


def user_in(identity: str) -> str:
    """The user in the identity of a broker, or in a pattern of such; `*` if it has none.

    It is compared by itself: `broker:*/alice` must not be `broker:URL/mallory/alice`, since a `*`
    for a URL would otherwise include the beginning of a user name.
    """
    match = _USER.match(identity)
    return match[1] if match else ANY


def matches(pattern: str, text: str) -> bool:
    """Whether a text matches a pattern as in a shell; case matters."""
    head, _, tail = pattern.partition(ANY)
    if _SPECIAL.search(head) or _SPECIAL.search(tail):
        return _compiled(pattern).match(text) is not None
    # Nearly all patterns have a single `*`: without compiling them, thousands cost nothing.
    return len(text) >= len(head) + len(tail) and text.startswith(head) and text.endswith(tail)


@lru_cache(maxsize=MAX_IDENTITIES)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


MINUTE_S = 60.0
MAX_BUCKETS = 10_000
"""The limit on clients, which may have many addresses; above it full buckets are forgotten."""


class RateLimits:
    """For how long to accept nothing more from a sender."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        """What each sender could still send, and at which time."""

    def spend(self, publisher: PublisherRule, records: int, now_s: float) -> float:
        """Count records of a publisher; returns for how many seconds to read no more from it.

        A bucket that is overdrawn is empty for a minute at most, however many records came at once.
        """
        limit = publisher.records_per_minute
        if not limit:
            return 0.0
        left = max(self._left(publisher.name, limit, now_s) - records, -limit)
        self._buckets[publisher.name] = (left, now_s)
        return max(-left, 0.0) / limit * MINUTE_S

    def admit(self, client: str, limit: int, now_s: float) -> float:
        """Count a request of a client that may make `limit` of them per minute; 0 means unlimited.

        Returns 0, or the seconds until the client may make the request, which is not counted then.
        """
        if not limit:
            return 0.0
        left = self._left(client, limit, now_s)
        if left < 1:
            return (1 - left) / limit * MINUTE_S
        self._buckets[client] = (left - 1, now_s)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets = {
                name: bucket
                for name, bucket in self._buckets.items()
                if self._left(name, limit, now_s) < limit
            }
        return 0.0

    def _left(self, name: str, limit: int, now_s: float) -> float:
        left, since_s = self._buckets.get(name, (float(limit), now_s))
        return min(left + limit * (now_s - since_s) / MINUTE_S, limit)


def load_policy(path: Path) -> Policy:
    """The policy of a file; raises ConfigError with all of its problems."""
    findings = examine_file(Policy, path)
    problems = list(findings.problems)
    publishers: tuple[Optional[PublisherRule], ...] = findings.values.get("publishers", ())
    owners: dict[str, str] = {}
    for number, publisher in enumerate(publishers, 1):
        place = f"publisher[{number}]"
        # The problems of a publisher of None are among those of the file.
        for key, problem in _problems(publisher, place, owners) if publisher else ():
            location = findings.table.item("publisher", number).locate(key)
            problems.append(f"{location}: {problem}")
    if problems:
        raise ConfigError(problems)
    return Policy(**findings.values)


def usable_policy(path: Optional[Path]) -> Optional[Policy]:
    """The policy of a file, None without one.

    Raises:
        ConfigError: the file has problems, or no signature could be verified.
    """
    policy = load_policy(path) if path else None
    if policy and policy.keys and find_spec("nacl") is None:
        why = "its keys can't be used: PyNaCl is not installed"
        raise ConfigError([f"{path}: {why}", *how_to_install("nacl")])
    return policy


def _problems(
    publisher: PublisherRule, place: str, owners: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Keys and problems of rules that do not fit together.

    `owners` are the places of the publishers before, by their names, identities and keys.
    """
    if publisher.key_names and not publisher.keys:
        yield "is", f"{KEY}:{publisher.key_names[0]} requires `keys`"
    if publisher.keys and not publisher.key_names:
        yield "keys", f"they require an identity {KEY}:NAME in `is`"
    if publisher.signed and not publisher.keys:
        yield "signed", "it requires `keys`; without them nothing would be allowed"
    values = [
        *(("name", text) for text in [publisher.name]),
        *(("is", text) for text in publisher.identities),
        *(("keys", text) for text in publisher.keys),
    ]
    for key, text in values:
        owner = owners.setdefault(f"{key} {text}", place)
        if owner != place:
            yield key, f"{text} is also in {owner}"
