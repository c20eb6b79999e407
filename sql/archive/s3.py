"""The archive in a bucket of an S3-compatible server, `s3a://BUCKET/PREFIX`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.session import Session

from sam_pipeline.sql.archive.data_source import DataSource
from sam_pipeline.sql.archive.store import translated
from sam_pipeline.sql.errors import (
    ArchiveAway,
    ArchiveConflict,
    ArchiveError,
    ArchiveFull,
    ArchiveRefused,
    NotArchived,
)

# A server that hangs is reported after about a minute.
_CONFIG = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 4})
_CHUNK_BYTES = 1024 * 1024
_CONFLICT = ("PreconditionFailed", "ConditionalRequestConflict")


class S3Store:
    """Uploads are complete or absent; a name is never overwritten (If-None-Match)."""

    def __init__(
        self,
        url: str,
        endpoint: str | None = None,
        region: str | None = None,
        credentials_file: Path | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        self._bucket, prefix = parts.netloc, parts.path.strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        session = Session()
        if credentials_file is not None:
            session.set_config_variable("credentials_file", str(credentials_file))
        with self._translated(""):
            self._session = boto3.Session(botocore_session=session, region_name=region)
            region = self._session.region_name or "us-east-1"
            self._client = self._session.client(
                "s3", region_name=region, endpoint_url=endpoint, config=_CONFIG
            )
        # The endpoint may be that of a variable or of the shared configuration file.
        host = urlsplit(self._client.meta.endpoint_url).hostname or ""
        endpoint = None if host.endswith(".amazonaws.com") else self._client.meta.endpoint_url
        self._location = {"endpoint_override": endpoint, "region": region}

    def names(self, prefix: str = "") -> list[str]:
        pages = self._client.get_paginator("list_objects_v2")
        with self._translated(prefix):
            return sorted(
                entry["Key"].removeprefix(self._prefix)
                for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix)
                for entry in page.get("Contents", ())
            )

    def read(self, name: str) -> bytes:
        with self._translated(name):
            content: bytes = self._get(name).read()
            return content

    def put(self, file: Path, name: str) -> None:
        with translated(str(file)), file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            content.seek(0)
            self._upload(name, content, digest)

    def create(self, name: str, content: bytes) -> None:
        self._upload(name, content, hashlib.sha256(content).hexdigest())

    def delete(self, name: str) -> None:
        with self._translated(name):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        with translated(gettempdir()):
            directory = TemporaryDirectory(prefix="sam-archive-", ignore_cleanup_errors=True)
        with directory as path:
            yield Path(path)

    def source(self) -> DataSource:
        """With the credentials of now: an executor needs no configuration of its own."""
        with self._translated(""):
            credentials = self._session.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            keys = credentials.get_frozen_credentials()
        s3 = {
            **{name: value for name, value in self._location.items() if value},
            "access_key": keys.access_key,
            "secret_key": keys.secret_key,
            "session_token": keys.token,
        }
        return DataSource(f"{self._bucket}/{self._prefix}".rstrip("/"), is_local=False, s3=s3)

    def _get(self, name: str) -> Any:
        return self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"]

    def _upload(self, name: str, content: Any, sha256: str) -> None:
        try:
            with self._translated(name):
                self._client.put_object(
                    Bucket=self._bucket, Key=self._prefix + name, Body=content, IfNoneMatch="*"
                )
        except ArchiveConflict:
            # An upload whose answer was lost is repeated, and then conflicts with itself.
            digest = hashlib.sha256()
            with self._translated(name):
                for chunk in self._get(name).iter_chunks(_CHUNK_BYTES):
                    digest.update(chunk)
            if digest.hexdigest() != sha256:
                raise

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise of_server(error, f"{self.url}/{name}".rstrip("/")) from error


def of_server(error: BotoCoreError | ClientError, where: str) -> ArchiveError:
    """Translate an error of the library."""
    text = f"{where}: {error}"
    if isinstance(error, (NoCredentialsError, PartialCredentialsError, ProfileNotFound)):
        return ArchiveRefused(text)
    if not isinstance(error, ClientError):
        return ArchiveAway(text)
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _CONFLICT or status == 412:
        return ArchiveConflict(text)
    if code == "NoSuchKey":
        return NotArchived(text)
    if status in (401, 403) or code in ("ExpiredToken", "InvalidToken"):
        return ArchiveRefused(text)
    if status == 507 or "StorageFull" in code or "QuotaExceeded" in code:
        return ArchiveFull(text)
    return ArchiveAway(text)
