"""Requests that a browser makes for a web page, with the rights of the person who looks at it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from sam_pipeline.schema.net.broker_url import is_loopback

LOCAL_NAMES = ("", "localhost", "localhost.localdomain")


def is_of_a_page(headers: Mapping[str, str]) -> bool:
    """Whether a web page makes this request.

    Browsers send `Origin` with each POST of a page, and `Sec-Fetch-Site`, which is `none` only for
    an address that a person typed. Source: Fetch Metadata Request Headers, W3C.
    """
    return "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none"


def is_rebound(own_address: object, host: str) -> bool:
    """Whether a request to an address of this machine alone has another `Host`.

    A web site whose name resolves to 127.0.0.1 would make its pages local ones (DNS rebinding).
    """
    if not is_loopback(str(own_address)):
        return False
    with suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        return name not in LOCAL_NAMES and not ip_address(name)
    return True
