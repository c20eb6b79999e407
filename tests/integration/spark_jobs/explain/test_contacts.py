"""Who to call about a site: on its page, in a ticket, and in its current status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.integration.spark_jobs.conftest import SamReport
from tests.support.database.sql_rows import insert, service_endpoint, site_contact
from tests.support.reports.database import DAY, profile
from tests.support.reports.published_days import publish

SITE = "EXAMPLE-LCG2"


@pytest.fixture(autouse=True)
def published(engine: Engine, tmp_path: Path) -> None:
    # `publish` names the function of a flavour after it.
    functions = (("functions.compute", "functions.ce"), ("functions.storage", "functions.srm"))
    timelines = {f"{site} CE c1": {"00:00": "OK", "06:00": "CRITICAL"} for site in (SITE, "B")}
    publish(engine, profile(tmp_path, *functions), DAY, timelines)
    insert(engine, "serviceEndpoint", service_endpoint(), service_endpoint(siteName="B"))
    insert(engine, "siteContact", site_contact(contact="Jane <grid@example.org>"))


def test_the_page_of_a_site_says_who_to_call(sam_report: SamReport, tmp_path: Path) -> None:
    sam_report("site", "--month", f"{DAY:%Y-%m}", "--out", str(tmp_path / "out"))

    pages = tmp_path / "out" / "test" / f"{DAY:%Y-%m}"
    assert "Jane &lt;grid@example.org&gt;" in (pages / f"{SITE}.html").read_text()
    assert "Who to call" not in (pages / "B.html").read_text()


def test_a_new_contact_changes_the_page(
    engine: Engine, sam_report: SamReport, tmp_path: Path
) -> None:
    write = ("site", "--month", f"{DAY:%Y-%m}", "--out", str(tmp_path / "out"))
    sam_report(*write)
    insert(engine, "siteContact", site_contact(contact="Bob", timestamp="2026-12-01T00:00:00Z"))

    sam_report(*write)

    page = (tmp_path / "out" / "test" / f"{DAY:%Y-%m}" / f"{SITE}.html").read_text()
    assert "Who to call: <b>Bob</b>" in page


def test_a_ticket_names_the_contact(sam_report: SamReport) -> None:
    day = ("--day", f"{DAY}", "--ticket", "--site")

    with_contact, without = (sam_report("explain", *day, site) for site in (SITE, "B"))

    assert "contact: Jane <grid@example.org>" in with_contact.splitlines()
    assert "contact" not in without


def test_the_current_status_of_a_site_names_its_contact(sam_report: SamReport) -> None:
    lines = sam_report("now", "--site", SITE).splitlines()
    document = json.loads(sam_report("now", "--site", SITE, "--json"))
    other = json.loads(sam_report("now", "--site", "B", "--json"))

    assert lines[1] == "contact: Jane <grid@example.org>"
    assert document["contact"] == "Jane <grid@example.org>"
    assert other["contact"] is None


def test_a_removed_contact_is_shown_no_more(engine: Engine, sam_report: SamReport) -> None:
    insert(engine, "siteContact", site_contact(contact="", timestamp="2026-12-01T00:00:00Z"))

    assert "Jane" not in sam_report("now", "--site", SITE)
