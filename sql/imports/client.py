"""Fetches one document at a time, within a time and a size for the whole feed.

The library retries temporary failures. It reads nothing from the environment, and adds no
authorities to our TLS context.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple
from urllib.parse import urljoin

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout
from urllib3.exceptions import (
    DecodeError,
    HTTPError,
    IncompleteRead,
    ProtocolError,
    ReadTimeoutError,
)
from urllib3.util import Retry, parse_url

from sam_pipeline.schema.errors import CONFIG, ConfigError
from sam_pipeline.schema.net.broker import Proxy
from sam_pipeline.schema.net.channel import NO_ANSWER
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.tls import ABOUT_US, CERTIFICATE_REQUIRED, tls_context
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.sql.errors import BadInput, FeedRefused, FeedUnavailable
from sam_pipeline.sql.imports.feed_config import FeedConfig

CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 60.0
"""How long the server may send nothing."""
ATTEMPTS = 5
MAX_REDIRECTS = 5
CHUNK_BYTES = 1 << 16
MAX_QUOTED = 200

XML = ("application/xml", "text/xml", "+xml")
JSON = ("application/json", "text/json", "+json")
UNSPECIFIC = ("", "text/plain", "application/octet-stream")
"""Content types of files for which a web server knows no better one."""

TEMPORARY = (429, 500, 502, 503, 504)
TO_CHECK: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "certificate_file",
    HTTPStatus.FORBIDDEN: "certificate_file",
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "proxy and proxy_password_file",
}
"""The keys that may be wrong if a server refuses us."""
UNCHANGED = "nothing was changed"

_TUNNEL = re.compile(r"Tunnel connection failed: (\d+) ?([^'\"]*)")

logger = logging.getLogger(__name__)


class Validators(NamedTuple):
    """The headers of an answer that identify the version of a document; "" if absent."""

    etag: str = ""
    last_modified: str = ""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of a request for the document unless it is still this version."""
        values = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in values.items() if value}


class FeedRetry(Retry):
    """Retries temporary failures, with no pause longer than the time that is left for the feed."""

    deadline: Deadline

    def new(self, **keywords: Any) -> FeedRetry:
        new = super().new(**keywords)
        new.deadline = self.deadline
        return new

    def sleep(self, response: Any = None) -> None:
        last = self.history[-1]
        failure = f"{last.url}: " + (
            _reason(last.error) if last.error else f"answered {last.status}"
        )
        pause = (response and self.get_retry_after(response)) or self.get_backoff_time()
        if pause >= self.deadline.remaining():
            wait = f"retry after {pause:.0f} s"
            raise FeedUnavailable(f"{failure}: {wait}; {UNCHANGED}, try again later")
        if response:  # urllib3 itself logs connections that fail
            logger.warning("%s; retrying in %.1f s", failure, pause)
        sleep(pause)


class FeedClient:
    """The connections to the server of a feed.

    Raises:
        ConfigError: a certificate can't be used.
    """

    def __init__(self, feed: FeedConfig, proxy: Proxy | None, deadline: Deadline) -> None:
        self._deadline = deadline
        self._max_bytes = self._bytes_left = feed.max_bytes
        self._proxy, self._files = proxy, feed.tls_files
        retries = FeedRetry(
            total=None,
            connect=ATTEMPTS - 1,
            read=ATTEMPTS - 1,
            status=ATTEMPTS - 1,
            # A refused certificate will be refused again, and so will a connection by a proxy.
            other=0,
            status_forcelist=TEMPORARY,
            backoff_factor=1,
            backoff_jitter=1,
            raise_on_status=False,
        )
        retries.deadline = deadline
        options: dict[str, Any] = {
            "ssl_context": tls_context(self._files) if feed.parts.scheme == "https" else None,
            "retries": retries,
            "timeout": Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
        }
        if proxy is None:
            self._pool = PoolManager(**options)
        else:
            host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
            address = f"http://{host}:{proxy.port}"
            self._pool = ProxyManager(address, proxy_headers=proxy.headers, **options)

    def fetch(
        self, url: str, path: Path, content_types: Sequence[str], known: Validators
    ) -> Validators | None:
        """Write a document to a file; None if it is still the `known` one, and nothing is written.

        Raises:
            FeedUnavailable: it did not arrive, or the server refuses us.
            TimeoutError: the deadline is past.
            BadInput: the answer can't be the document.
            ConfigError: the URL is wrong.
        """
        try:
            try:
                return self._fetch(url, path, content_types, known)
            except (ProtocolError, ReadTimeoutError) as error:
                # The body broke off: urllib3 retries nothing after the headers.
                logger.warning("%s: %s; retrying", url, _reason(error))
                return self._fetch(url, path, content_types, known)
        except DecodeError as error:
            raise BadInput(f"{url}: is not valid gzip: {error}; {UNCHANGED}") from error
        except HTTPError as error:
            raise self._failure(url, error) from error

    def _fetch(
        self, url: str, path: Path, content_types: Sequence[str], known: Validators
    ) -> Validators | None:
        with self._response(url, content_types, known) as response:
            status = response.status
            if status == HTTPStatus.NOT_MODIFIED and known.headers:
                return None
            answer = f"{url}: answered {status} {one_line(response.reason or '', MAX_QUOTED)}"
            answer = answer.rstrip()
            if keys := TO_CHECK.get(status):
                raise FeedRefused(f"{answer}: check {keys}; {UNCHANGED}")
            if status in TEMPORARY:
                raise FeedUnavailable(f"{answer}; {UNCHANGED}, try again later")
            if status >= 400:
                raise ConfigError([f"{answer}: check the URL"], CONFIG)
            if status != HTTPStatus.OK:
                raise BadInput(f"{answer}, not 200; {UNCHANGED}")
            declared = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if declared not in UNSPECIFIC and not declared.endswith(tuple(content_types)):
                wanted = content_types[0]
                raise BadInput(
                    f"{url}: answered with {one_line(declared, MAX_QUOTED)} instead of {wanted}:"
                    f" perhaps the page of an error; {UNCHANGED}"
                )
            with path.open("wb") as file:
                for data in response.stream(CHUNK_BYTES, decode_content=True):
                    if self._deadline.expired:
                        raise TimeoutError
                    self._bytes_left -= len(data)
                    if self._bytes_left < 0:
                        path.unlink()
                        limit = f"more than {self._max_bytes} bytes (max_bytes)"
                        raise BadInput(f"{url}: the feed has {limit}; {UNCHANGED}")
                    file.write(data)
            headers = response.headers
            return Validators(headers.get("ETag", ""), headers.get("Last-Modified", ""))

    def _response(
        self, url: str, content_types: Sequence[str], known: Validators
    ) -> BaseHTTPResponse:
        """The answer, perhaps after redirects to other pages of the same server.

        The library would follow a redirect to another server, and show it our certificate.
        """
        headers = {"Accept": content_types[0], "Accept-Encoding": "gzip", "User-Agent": "sam-db"}
        headers |= known.headers
        target = url
        for _ in range(MAX_REDIRECTS + 1):
            response = self._pool.request(
                "GET", target, headers=headers, preload_content=False, redirect=False
            )
            location = response.get_redirect_location()
            if not location:
                return response
            response.close()
            try:
                target = urljoin(target, location)
                is_same_server = _origin(target) == _origin(url)
            except ValueError as error:
                problem = f"redirects to no valid URL: {one_line(str(error), MAX_QUOTED)}"
                raise BadInput(f"{url}: {problem}; {UNCHANGED}") from None
            if not is_same_server:
                where = one_line(target, MAX_QUOTED)
                raise ConfigError(
                    [f"{url}: redirects to another server, {where}: if that is right, configure it"]
                )
        raise ConfigError([f"{url}: redirects more than {MAX_REDIRECTS} times"])

    def _failure(self, url: str, error: Exception) -> FeedUnavailable | FeedRefused:
        """The error of a connection that failed in every attempt."""
        problem = f"{_reason(error)}; {UNCHANGED}, try again later"
        for cause in _causes(error):
            if isinstance(cause, ssl.SSLCertVerificationError):
                reason = cause.verify_message.rstrip(".").lower()
                problem = f"its certificate can't be trusted: {reason} (ca_file); {UNCHANGED}"
            elif isinstance(cause, ssl.SSLError):
                alert = (cause.reason or "").partition("_ALERT_")[2]
                if alert in ABOUT_US:
                    ours = self._files.certificate_file
                    rejected = f"it rejected our certificate {ours}"
                    what = rejected if ours else CERTIFICATE_REQUIRED
                    return FeedRefused(f"{url}: {what}: {ABOUT_US[alert]}; {UNCHANGED}")
            elif (tunnel := _TUNNEL.search(str(cause))) and self._proxy:
                problem = f"{self._proxy.refusal(int(tunnel[1]), tunnel[2])}; {UNCHANGED}"
        return FeedUnavailable(f"{url}: {problem}")


def _origin(url: str) -> tuple[str | None, str | None, int | None]:
    parts = parse_url(url)
    return (
        parts.scheme,
        parts.host,
        parts.port or {"http": 80, "https": 443}.get(parts.scheme or ""),
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it wraps, which libraries keep in different places."""
    seen: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting:
        cause = waiting.pop(0)
        if isinstance(cause, BaseException) and cause not in seen:
            seen.append(cause)
            yield cause
            reason = getattr(cause, "reason", None)
            waiting += [reason, cause.__cause__, cause.__context__, *cause.args]


def _reason(error: Exception) -> str:
    """The innermost reason of a connection's failure in one line."""
    for cause in reversed(list(_causes(error))):
        if isinstance(cause, TimeoutError):
            return NO_ANSWER
        if isinstance(cause, IncompleteRead):
            return "the answer is truncated"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        if isinstance(cause, ConnectionError):
            return "it closed the connection without an answer"
    return one_line(str(error), MAX_QUOTED)
