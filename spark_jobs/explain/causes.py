"""Groups failures by cause: by the text that they have in common.

Probes write details into their texts that differ from one failure to the next: hosts, addresses,
times, numbers, ids, directories. `masked` replaces each of them with `*`; failures of one flavour,
metric and status with the same masked text have one `Cause`. Nouns that were counted may differ in
number: "1 try" and "2 tries" are one cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import pairwise

from sam_pipeline.schema.program.wording import one_line, plural

MASK = "*"

COSTLY = "cost availability or left it unknown"
WITHOUT_EFFECT = "in downtime, excluded or without effect"

# A probe may print a page of text; the error is at its beginning.
_MAX_READ = 4000
_MAX_TEXT = 200

# The worst first.
_SEVERITY = ("CRITICAL", "MISSING", "UNKNOWN", "WARNING")

_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    "|Sep(?:t|tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PIECE = re.compile(
    # Numbers that identify a cause are kept.
    r"(?P<code>\b(?:HTTP(?:/\d(?:\.\d)?)?|exit(?:ed)?(?: with)?(?: code| status)?|signal|errno)"
    r"[ :=]{1,2}\d{1,3}\b)"
    r"|(?P<date>\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? )?"
    rf"(?:\d{{1,2}}[ .-])?{_MONTH}[ .-]{{1,2}}\d[\d:.]*)"
    r"""|(?P<word>[^\s,;=()\[\]{}<>"'`|]+)"""
)
# Numbers, times, dates and IPv4 addresses; IPv6 addresses.
_NUMBER = re.compile(r"[+-]?\d[\d:.TZ/+-]*")
_IPV6 = re.compile(r"[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?:%\w+)?", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.([a-z]{2,})")
_DOMAINS = ("org", "com", "net", "edu", "gov", "int", "local")
_HEX = re.compile(r"(?:0x)?[0-9a-f]{8,}|(?=[a-f]*[0-9])[0-9a-f]{6,}", re.IGNORECASE)
_NUMBERED = re.compile(r"(\D*)\d+")
_SEPARATOR = re.compile(r"([/:@])")
_REPEATED = re.compile(r"\*(?:[\s,;.:+-]+(?:\*|(?:UTC|GMT|CET|CEST|AM|PM)\b))+")
_TEMPORARY = re.compile(r"(/tmp/).+")
_COUNTED = re.compile(r"(?<=\* )[a-z]{3,}\b")
_A_DIGIT = re.compile("[0-9]")
_ONE_DIGIT = str.maketrans("0123456789", "1" * 10)
# The minimum length of a word that counts as random, such as an id in base 64.
_MIN_RANDOM_LENGTH = 16


Key = tuple[str, str, str, str]
"""flavour, metric, status and masked text, the nouns that were counted without their plural"""


@dataclass(frozen=True)
class Failure:
    """A metric of an endpoint that was not OK: because of a result, or for lack of one (MISSING).

    `at` is its time (epoch s), and `until` when it was over, or the end of the day; `message_id`
    and `publisher` are '' if no message is known. `costs`: it cost its site availability, or left
    it unknown. `threshold` describes what a threshold changed. It is not `measured` without a
    result.
    """

    service_flavour: str
    host_name: str
    metric_name: str
    status: str
    at: int
    text: str
    message_id: str
    publisher: str = ""
    costs: bool = True
    threshold: str = ""
    until: int = 0
    measured: bool = True
    monitoring_host: str = ""


@dataclass(frozen=True)
class Cause:
    """Failures of one flavour, metric and status with the same masked `text`."""

    service_flavour: str
    metric_name: str
    status: str
    text: str
    failures: Sequence[Failure]

    @property
    def key(self) -> Key:
        """Flavour, metric, status and masked text without plurals, which its failures share."""
        text = _without_plurals(self.text)
        return self.service_flavour, self.metric_name, self.status, text

    @property
    def count(self) -> int:
        return len(self.failures)

    @property
    def first(self) -> int:
        return min(failure.at for failure in self.failures)

    @property
    def last(self) -> int:
        """The time of the newest failure, or the end of the time without results."""
        return max(failure.at if failure.measured else failure.until for failure in self.failures)

    @property
    def endpoints(self) -> int:
        return len({failure.host_name for failure in self.failures})

    @property
    def where(self) -> str:
        """The host of its endpoint, or the number of endpoints."""
        return self.example.host_name if self.endpoints == 1 else f"{self.endpoints} endpoints"

    @property
    def example(self) -> Failure:
        """The newest failure with a message to look up."""
        return max(self.failures, key=lambda f: (f.message_id != "", f.at, f.host_name))


@dataclass(frozen=True)
class CauseList:
    """The causes of the failures that affected the site's figures, or of those that did not."""

    title: str
    causes: Sequence[Cause]

    @property
    def failures(self) -> int:
        return sum(cause.count for cause in self.causes)

    def __str__(self) -> str:
        failures, causes = self.failures, len(self.causes)
        return f"{self.title}: {plural(failures, 'failure')}, {plural(causes, 'cause')}"


def causes_by_effect(failures: Sequence[Failure]) -> tuple[CauseList, CauseList]:
    """The causes that cost availability, and those that did not."""
    return (
        CauseList(COSTLY, causes(failure for failure in failures if failure.costs)),
        CauseList(WITHOUT_EFFECT, causes(failure for failure in failures if not failure.costs)),
    )


def causes(failures: Iterable[Failure]) -> list[Cause]:
    """The causes of the failures: the worst status first, then the most frequent."""
    groups: dict[Key, list[Failure]] = {}
    for failure in failures:
        text = masked(failure.text, failure.host_name)
        key = (failure.service_flavour, failure.metric_name, failure.status, text)
        groups.setdefault(key, []).append(failure)
    return _joined(Cause(*key, of_key) for key, of_key in groups.items())


def merged(
    causes_of: Mapping[date, Sequence[CauseList]],
) -> list[tuple[CauseList, dict[Key, list[date]]]]:
    """The lists of several days together, and the days of each cause.

    Texts are not masked again, which is slow.
    """
    together = []
    for cause_lists in zip(*causes_of.values(), strict=True):
        days: dict[Key, list[date]] = {}
        for day, cause_list in zip(causes_of, cause_lists, strict=True):
            for cause in cause_list.causes:
                days.setdefault(cause.key, []).append(day)
        found = _joined(cause for of_day in cause_lists for cause in of_day.causes)
        together.append((CauseList(cause_lists[0].title, found), days))
    return together


def _joined(found: Iterable[Cause]) -> list[Cause]:
    """One cause for each key, with the longest of its texts, which is the plural."""
    groups: dict[Key, list[Cause]] = {}
    for cause in found:
        groups.setdefault(cause.key, []).append(cause)
    return sorted(
        (
            Cause(
                *key[:3],
                max((cause.text for cause in of_key), key=lambda text: (len(text), text)),
                [failure for cause in of_key for failure in cause.failures],
            )
            for key, of_key in groups.items()
        ),
        key=lambda cause: (
            _SEVERITY.index(cause.status) if cause.status in _SEVERITY else len(_SEVERITY),
            -cause.count,
            cause.service_flavour,
            cause.metric_name,
            cause.text,
        ),
    )


@lru_cache(maxsize=4096)
def _without_plurals(text: str) -> str:
    def singular(counted: re.Match[str]) -> str:
        noun = counted.group()
        if noun.endswith("ies"):
            return f"{noun[:-3]}y"
        if noun.endswith(("sses", "shes", "ches", "xes")):
            return noun[:-2]
        return noun[:-1] if noun.endswith("s") and not noun.endswith(("ss", "us", "is")) else noun

    return _COUNTED.sub(singular, text)


def masked(text: str, host_name: str = "") -> str:
    """The text on one line of at most 200 characters, with `*` for the details of one failure.

    The endpoint's own `host_name` is masked even if it is a short word.
    """
    # The texts of a probe differ mostly in digits, and all digits are masked alike: unless they are
    # kept, or make a word look like the host.
    shape = text.translate(_ONE_DIGIT)
    host_shape, names = _host_shape(host_name)
    if all(text.lower().count(name) == shape.lower().count(other) for name, other in names):
        result = _masked(shape, host_shape)
        if not _A_DIGIT.search(result):
            return result
    return _masked(text, host_name)


def _host_names(host_name: str) -> set[str]:
    return {host_name.lower(), host_name.lower().partition(".")[0]} - {""}


@lru_cache(maxsize=4096)
def _host_shape(host_name: str) -> tuple[str, list[tuple[str, str]]]:
    """The host with one digit for all, and each of its names beside its shape."""
    names = [(name, name.translate(_ONE_DIGIT)) for name in _host_names(host_name)]
    return host_name.translate(_ONE_DIGIT), names


@lru_cache(maxsize=4096)  # probes repeat themselves
def _masked(text: str, host_name: str) -> str:
    line = one_line(_CONTROL.sub(" ", text[:_MAX_READ]))  # such as colours
    host_names = _host_names(host_name)

    def mask(piece: re.Match[str]) -> str:
        word = piece.group()
        if piece.lastgroup != "word":
            return word if piece.lastgroup == "code" else MASK
        bare = word.rstrip(".:!?")
        ending = word[len(bare) :]
        if _NUMBER.fullmatch(bare) or (_IPV6.fullmatch(bare) and _has_digit(bare)):
            return MASK + ending
        # A path, an address or a URL: mask the parts between the separators.
        parts = _SEPARATOR.split(bare)
        parts[::2] = (_masked_part(part, host_names) for part in parts[::2])
        return _TEMPORARY.sub(rf"\1{MASK}", "".join(parts)) + ending

    return one_line(_REPEATED.sub(MASK, _PIECE.sub(mask, line)), _MAX_TEXT)


def _masked_part(part: str, host_names: set[str]) -> str:
    bare = part.strip(".!?+~#")
    domain = _HOST.fullmatch(bare.lower()) if bare in (bare.lower(), bare.upper()) else None
    is_host = domain is not None and (bare.count(".") > 1 or domain.group(1) in _DOMAINS)
    if is_host or bare.lower() in host_names or _HEX.fullmatch(bare) or _is_random(bare):
        return part.replace(bare, MASK)
    if not _has_digit(bare):
        return part
    numbered = _NUMBERED.fullmatch(bare)  # ce01, SRMv2: keep the letters
    return part.replace(bare, f"{numbered.group(1)}{MASK}" if numbered else MASK)


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _is_random(word: str) -> bool:
    """Whether upper and lower case change too often for a name."""
    if len(word) < _MIN_RANDOM_LENGTH or not word.replace("_", "").replace("-", "").isalnum():
        return False
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(word))
    return 3 * changes > len(word) or (changes > 2 and _has_digit(word))
