"""Fetches one document at a time, within a time and a size for the whole feed.

Nothing of the environment but the proxy is used: no `.netrc`, no certificates of the library.
"""

from __future__ import annotations

import logging
import random
import re
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import IncompleteRead
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from sam_pipeline.schema.errors import CONFIG, ConfigError
from sam_pipeline.schema.net.channel import NO_ANSWER
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.proxy import Proxy
from sam_pipeline.schema.net.tls import ABOUT_US, CERTIFICATE_REQUIRED, tls_context
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.sql.errors import BadInput, FeedRefused, FeedUnavailable
from sam_pipeline.sql.imports.http.feed_config import FeedConfig

CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 60.0
"""How long the server may send nothing."""
ATTEMPTS = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Between attempts; the server may demand a longer pause."""
MAX_REDIRECTS = 5
CHUNK_BYTES = 1 << 16
MAX_QUOTED = 200

XML = ("application/xml", "text/xml", "+xml")
JSON = ("application/json", "text/json", "+json")
UNSPECIFIC = ("", "text/plain", "application/octet-stream")
"""Content types of files for which a web server knows no better one."""

TEMPORARY = (429, 500, 502, 503, 504)
LOGIN_REQUIRED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
UNCHANGED = "nothing was changed"

_TUNNEL = re.compile(r"Tunnel connection failed: (\d+) ?([^'\"]*)")

logger = logging.getLogger(__name__)


class Validators(NamedTuple):
    """What a server says to recognise the version of a document; "" for what it does not say."""

    etag: str = ""
    last_modified: str = ""

    @property
    def headers(self) -> Mapping[str, str]:
        """Of a request for the document unless it is still this version."""
        values = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in values.items() if value}


class _TryAgain(Exception):
    """The attempt failed, but another one may not; `pause_s` is what the server demands."""

    def __init__(self, text: str, pause_s: float | None = None) -> None:
        super().__init__(text)
        self.pause_s = pause_s


class FeedClient:
    """A session with the server of a feed.

    `sleep` waits between two attempts; tests replace it.

    Raises:
        ConfigError: a certificate can't be used.
    """

    def __init__(
        self,
        feed: FeedConfig,
        proxy: Proxy | None,
        deadline: Deadline,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._deadline = deadline
        self._proxy = proxy
        self._sleep = sleep
        self._bytes_left = feed.max_bytes
        self._max_bytes = feed.max_bytes
        self._files = feed.tls_files
        context = tls_context(self._files) if feed.parts.scheme == "https" else None
        self._session = requests.Session()
        self._session.trust_env = False
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, _Adapter(context, proxy))
        if proxy:
            host = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
            address = f"http://{host}:{proxy.port}"
            self._session.proxies = {"http": address, "https": address}

    def fetch(
        self, url: str, path: Path, content_types: Sequence[str], known: Validators
    ) -> Validators | None:
        """Write a document to a file; None if it is still the `known` one, and nothing is written.

        Raises:
            FeedUnavailable: it did not arrive in time, or the server refuses us.
            BadInput: the answer can't be the document.
        """
        for attempt in count(1):
            try:
                return self._try(url, path, content_types, known)
            except _TryAgain as failure:
                backoff = min(FIRST_PAUSE_S * 2 ** (attempt - 1), LONGEST_PAUSE_S)
                pause = max(random.uniform(backoff / 2, backoff), failure.pause_s or 0)
                if attempt == ATTEMPTS or pause >= self._deadline.remaining():
                    advice = f"{UNCHANGED}, try again later"
                    raise FeedUnavailable(f"{url}: {failure}; {advice}") from failure
                logger.warning("%s: %s; retrying in %.1f s", url, failure, pause)
                self._sleep(pause)
        raise AssertionError("unreachable")

    def _try(
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
                    f" perhaps the page of an error; {UNCHANGED}"
                )
            with path.open("wb") as file:
                for data in self._body(url, response):
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
        """The answer, perhaps after redirects to other pages of the same server."""
        headers = {"Accept": content_types[0], "Accept-Encoding": "gzip", **known.headers}
        headers["User-Agent"] = "sam-db"
        target = url
        for _ in range(MAX_REDIRECTS + 1):
            try:
                response = self._session.get(
                    target,
                    headers=headers,
                    stream=True,
                    allow_redirects=False,
                    timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
                )
            except (requests.RequestException, HTTPError, OSError) as error:
                raise self._failure(url, error) from error
            except ValueError as error:  # the library parses the location of a redirect
                problem = one_line(str(error), MAX_QUOTED)
                raise BadInput(
                    f"{url}: redirects to no valid URL: {problem}; {UNCHANGED}"
                ) from None
            if not response.is_redirect:
                return response
            response.close()
            target = urljoin(target, response.headers["Location"])
            if _origin(target) != _origin(url):
                where = one_line(target, MAX_QUOTED)
                raise ConfigError(
                    [f"{url}: redirects to another server, {where}: if that is right, configure it"]
                )
        raise ConfigError([f"{url}: redirects more than {MAX_REDIRECTS} times"])

    def _body(self, url: str, response: requests.Response) -> Iterator[bytes]:
        """The decoded body, as it arrives.

        Decoding it here bounds what a small answer may expand to, and notices a truncated one.
        """
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "x-gzip"):
            raise BadInput(f"{url}: has the unknown encoding {encoding[:40]!r}; {UNCHANGED}")
        unzip = None if encoding == "identity" else zlib.decompressobj(wbits=31)
        while True:
            try:
                data = response.raw.read1(CHUNK_BYTES, decode_content=False)
            except (HTTPError, OSError) as error:
                raise self._failure(url, error) from error
            if not data:
                break
            if unzip is None:
                yield data
                continue
            while data and not unzip.eof:
                try:
                    yield unzip.decompress(data, CHUNK_BYTES)
                except zlib.error as error:
                    raise BadInput(f"{url}: is not valid gzip: {error}; {UNCHANGED}") from error
                data = unzip.unconsumed_tail
        if unzip is not None and not unzip.eof:
            raise _TryAgain("the compressed answer is truncated")

    def _failure(self, url: str, error: Exception) -> Exception:
        """What to do about an error of the connection."""
        for cause in _causes(error):
            if isinstance(cause, ssl.SSLCertVerificationError):
                reason = cause.verify_message.rstrip(".").lower()
                problem = f"its certificate can't be trusted: {reason} (ca_file)"
                return FeedUnavailable(f"{url}: {problem}; {UNCHANGED}")
            if isinstance(cause, ssl.SSLError):
                alert = (cause.reason or "").partition("_ALERT_")[2]
                if alert in ABOUT_US:
                    ours = self._files.certificate_file
                    problem = (
                        f"it rejected our certificate {ours}: {ABOUT_US[alert]}"
                        if ours
                        else f"{CERTIFICATE_REQUIRED}: {ABOUT_US[alert]}"
                    )
                    return FeedRefused(f"{url}: {problem}; {UNCHANGED}")
            tunnel = _TUNNEL.search(str(cause))
            if tunnel and self._proxy:
                return FeedUnavailable(
                    f"{url}: {self._proxy.refusal(int(tunnel[1]), tunnel[2])}; {UNCHANGED}"
                )
        return _TryAgain(_reason(error))


class _Adapter(HTTPAdapter):
    """Uses our TLS context, to which the library would add authorities of its own."""

    def __init__(self, context: ssl.SSLContext | None, proxy: Proxy | None) -> None:
        self._context = context
        self._proxy = proxy
        super().__init__(pool_connections=1, pool_maxsize=1)

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
        """Not needed: the context verifies."""


def _refuse_status(url: str, response: requests.Response, known: Validators) -> None:
    """Raise unless the answer is the document, or says that it is the known one."""
    status = response.status_code
    answer = f"answered {status} {one_line(response.reason or '', MAX_QUOTED)}".rstrip()
    if status == HTTPStatus.OK or (status == HTTPStatus.NOT_MODIFIED and known.headers):
        return
    if status in TEMPORARY:
        pause = _retry_after(response)
        raise _TryAgain(f"{answer}: retry after {pause:.0f} s" if pause else answer, pause)
    if status in LOGIN_REQUIRED:
        raise FeedRefused(f"{url}: {answer}: check certificate_file; {UNCHANGED}")
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        raise FeedRefused(f"{url}: {answer}: check proxy and proxy_password_file; {UNCHANGED}")
    if status >= 400:
        raise ConfigError([f"{url}: {answer}: check the URL"], CONFIG)
    raise BadInput(f"{url}: {answer}, not 200; {UNCHANGED}")


def _retry_after(response: requests.Response) -> float | None:
    """The pause that the server demands, in seconds or until a time."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        default = {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname, parts.port or default
    except ValueError:
        return "", None, None


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
