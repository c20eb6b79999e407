"""Where each page is: a place that stays the same, so that a link to a day can be kept."""

from __future__ import annotations

import hashlib
import re
from datetime import date

INDEX = "index.html"
TRENDS = "trends.html"
CHANGES = "changes.html"

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,80}")
_TAKEN = {"index", "trends", "changes"}


def month_path(report: str, month: date) -> str:
    """The directory of a report's month."""
    return f"{slug(report)}/{month:%Y-%m}"


def site_page(site: str) -> str:
    """The page of a site, beside the month's index."""
    return f"{slug(site)}.html"


def group_page(group_type: str) -> str:
    """The page of a kind of groups, seen from the month's index."""
    return f"groups/{slug(group_type)}.html"


def slug(name: str) -> str:
    """A file name for any name; different names give different ones."""
    if _PLAIN.fullmatch(name) and name.lower() not in _TAKEN:
        return name
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:80].strip("-")
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
