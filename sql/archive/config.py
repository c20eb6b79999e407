"""The section [archive] of sam.toml, read by `sam-db` and `sam-report`."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.secret_file import credential_file
from sam_pipeline.schema.settings.key import (
    Settings,
    config_key,
    duration_key,
    secret_key,
)
from sam_pipeline.schema.settings.section import load
from sam_pipeline.sql.archive.store import LocalStore, Store

CREDENTIALS = "sam-archive-credentials"
"""The systemd credential that replaces `credentials_file`."""

_FILE, _S3 = "file://", ("s3a://", "s3://")


def _problem_of_url(url: str) -> str | None:
    if url.startswith(_S3):
        is_bucket = re.fullmatch(r"s3a?://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^?#]*)?", url)
        return None if is_bucket else "is not a bucket (expected s3a://BUCKET/PREFIX)"
    if url.startswith(_FILE):
        return None if url.startswith("file:///") else "expected file:///PATH"
    return (
        "expected file:///PATH, a path or s3a://BUCKET/PREFIX" if "://" in url or not url else None
    )


def _problem_of_endpoint(url: str) -> str | None:
    is_server = re.fullmatch(r"https?://[^/@?#]+/?", url)
    return None if is_server else "is not the URL of a server (expected https://HOST:PORT)"


def _absolute(url: str, folder: Path) -> str:
    return url if "://" in url or not url else f"{_FILE}{(folder / url).absolute()}"


class ArchiveConfig(Settings):
    """Where the archive is, and which days are in it."""

    SECTION = "archive"

    url: str | None = config_key(
        "the archive: a directory, `file:///PATH`, or `s3a://BUCKET/PREFIX`",
        _problem_of_url,
        None,
        read=_absolute,
    )
    min_age_days: float = duration_key(
        "min_age",
        "the age at which `sam-db archive write --due` archives a day, so that late results are in"
        " its first version",
        2.0,
        "1d",
        "99999d",
        unit_s=86_400,
    )
    endpoint: str | None = config_key(
        "the S3 server, `https://HOST:PORT`; by default Amazon's", _problem_of_endpoint, None
    )
    region: str | None = config_key(
        "its region; by default that of the AWS configuration", None, None
    )
    credentials_file: Path | None = secret_key(
        "the keys for S3, a file in the format of `~/.aws/credentials`; by default those of the"
        " AWS variables and files"
    )

    def open(self) -> Store | None:
        """The store, if one is configured.

        Raises:
            ArchiveError: it can't be used.
        """
        if self.url is None:
            return None
        if not self.url.startswith(_S3):
            return LocalStore(Path(self.url.removeprefix(_FILE)))
        from sam_pipeline.sql.archive.s3 import S3Store

        keys = self.credentials_file or credential_file(CREDENTIALS, os.environ)
        return S3Store(self.url, self.endpoint, self.region, keys)


def load_archive(args: argparse.Namespace) -> ArchiveConfig:
    """The section `[archive]`; raises ConfigError with all its problems."""
    return load(ArchiveConfig, args.config)


def require_store(args: argparse.Namespace) -> tuple[ArchiveConfig, Store]:
    """The configuration and the store of a command that needs them.

    Raises:
        ConfigError: no archive is configured.
    """
    config = load_archive(args)
    store = config.open()
    if store is None:
        raise ConfigError(["no archive is configured: set url in section [archive] of sam.toml"])
    return config, store
