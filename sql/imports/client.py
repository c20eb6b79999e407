"""Fetches one document at a time, within a time and a size for the whole feed.

The library retries temporary failures. It reads nothing from the environment: no `.netrc`, no
certificates of the library.
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

import requests
from requests.adapters import HTTPAdapter
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
        context = tls_context(self._files) if feed.parts.scheme == "https" else None
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.mount(f"{feed.parts.scheme}://", _Adapter(retries, context, proxy))
        if proxy:
            host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
            self._session.proxies = {feed.parts.scheme: f"http://{host}:{proxy.port}"}

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
        except (HTTPError, requests.RequestException) as error:
            raise self._failure(url, error) from error

    def _fetch(
        self, url: str, path: Path, content_types: Sequence[str], known: Validators
    ) -> Validators | None:
        with self._response(url, content_types, known) as response:
            _refuse_status(url, response, known)
            if response.status_code == HTTPStatus.NOT_MODIFIED:
                return None
            declared = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if declared not in UNSPECIFIC and not declared.endswith(tuple(content_types)):
                wanted = content_types[0]
                raise BadInput(
                    f"{url}: answered with {one_line(declared, MAX_QUOTED)} instead of {wanted}:"
                    f" perhaps an error page; {UNCHANGED}"
                )
            with path.open("wb") as file:
                for data in response.raw.stream(CHUNK_BYTES, decode_content=True):
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
    ) -> requests.Response:
        """The answer, perhaps after redirects to other pages of the same server.

        The library would follow a redirect to another server, and show it our certificate.
        """
        headers = {"Accept": content_types[0], "Accept-Encoding": "gzip", "User-Agent": "sam-db"}
        target = url
        for _ in range(MAX_REDIRECTS + 1):
            try:
                response = self._session.get(
                    target,
                    headers={**headers, **known.headers},
                    stream=True,
                    allow_redirects=False,
                    timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
                )
                if not response.is_redirect:
                    return response
                response.close()
                target = urljoin(target, response.headers["Location"])
                is_same_server = _origin(target) == _origin(url)
            except (requests.ConnectionError, requests.Timeout):
                raise
            except ValueError as error:  # the library parses the location as well
                problem = f"redirects to an invalid URL: {one_line(str(error), MAX_QUOTED)}"
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


class _Adapter(HTTPAdapter):
    """Uses our TLS context, to which the library would add authorities of its own."""

    def __init__(self, retries: Retry, context: ssl.SSLContext | None, proxy: Proxy | None) -> None:
        self._context, self._proxy = context, proxy
        super().__init__(max_retries=retries)

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        super().init_poolmanager(*arguments, **keywords, ssl_context=self._context)

    def proxy_manager_for(self, proxy: Any, **keywords: Any) -> Any:
        return super().proxy_manager_for(proxy, **keywords, ssl_context=self._context)

    def proxy_headers(self, proxy: Any) -> dict[str, str]:
        return self._proxy.headers if self._proxy else {}

    def build_connection_pool_key_attributes(
        self, request: Any, verify: Any, cert: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Nothing to do: the context verifies."""


def _refuse_status(url: str, response: requests.Response, known: Validators) -> None:
    """Raise unless the answer is the document, or 304 for the known one."""
    status = response.status_code
    answer = f"{url}: answered {status} {one_line(response.reason or '', MAX_QUOTED)}".rstrip()
    if status == HTTPStatus.OK or (status == HTTPStatus.NOT_MODIFIED and known.headers):
        return
    if keys := TO_CHECK.get(status):
        raise FeedRefused(f"{answer}: check {keys}; {UNCHANGED}")
    if status in TEMPORARY:
        raise FeedUnavailable(f"{answer}; {UNCHANGED}, try again later")
    if status >= 400:
        raise ConfigError([f"{answer}: check the URL"], CONFIG)
    raise BadInput(f"{answer}, not 200; {UNCHANGED}")


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
