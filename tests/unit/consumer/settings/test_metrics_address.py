"""Where metrics may be served, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.consumer.settings.metrics_address import (
    MetricsAddress,
    check_address,
    exposure_problems,
    parse_address,
)

FILE = Path("file")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464),
        ("0.0.0.0:1", "0.0.0.0", 1),
        ("[::1]:65535", "::1", 65535),
        ("localhost:9464", "localhost", 9464),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)
    assert str(parse_address(text)) == text
    assert check_address(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("9464", ":9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:9464", "[::1]"),
        *("a:b", "http://127.0.0.1:9464", "127.0.0.1:9464/metrics", "user@127.0.0.1:9464"),
        " 127.0.0.1:1",
    ],
)
def test_anything_else_is_a_problem_that_shows_an_example(text: str) -> None:
    assert "127.0.0.1:9464" in str(check_address(text))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.2.1"])
def test_loopback_needs_neither_tls_nor_a_token(host: str) -> None:
    assert not list(exposure_problems(MetricsAddress(host, 1), None, None))


@pytest.mark.parametrize(
    ("certificate", "token", "missing"),
    [
        (None, None, ["metrics_certificate_file", "metrics_token_file"]),
        (FILE, None, ["metrics_token_file"]),
        (None, FILE, ["metrics_certificate_file"]),
        (FILE, FILE, []),
    ],
)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "db.example.org"])
def test_other_addresses_need_tls_and_a_token(
    host: str, certificate: Path | None, token: Path | None, missing: list[str]
) -> None:
    problems = list(exposure_problems(MetricsAddress(host, 1), certificate, token))

    assert len(problems) == bool(missing)
    assert all(key in problems[0] for key in [*missing, "metrics_insecure"] if missing)
