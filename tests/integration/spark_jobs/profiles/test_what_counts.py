"""Pages and `profile show` say in words what the profiles counted that the runs kept."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Engine

from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports.database import DAY
from tests.support.reports.published_days import publish

NEXT = DAY + timedelta(days=1)
PROFILE = """\
name = "critical"
validity_s = "off"
vo = "ops"
[flavours.CE]
metrics = ["ping"]
[flavours.SRM]
metrics = ["ping"]
[functions.ce]
flavours = ["CE", "SRM"]
"""


def profile_of(directory: Path, text: str) -> Profile:
    (directory / "critical.toml").write_text(text)
    return read_profile(directory / "critical.toml")


def test_a_month_says_what_counts_and_since_when(
    engine: Engine, sam_report: SamReport, tmp_path: Path
) -> None:
    old, new = profile_of(tmp_path, PROFILE), profile_of(tmp_path, PROFILE.replace("ops", "<b>"))
    publish(engine, old, DAY, {"A CE a1": {"00:00": "OK"}})
    publish(engine, new, NEXT, {"A CE a1": {"00:00": "OK"}})

    sam_report("site", "--month", f"{DAY:%Y-%m}", "--out", str(tmp_path / "out"))

    page = (tmp_path / "out/critical" / f"{DAY:%Y-%m}" / "index.html").read_text()
    top, counts = page.split('id="what-counts"')
    newest, earlier = counts.split("</section>")[0].split(str(DAY))
    assert "Up when CE or SRM" in top
    assert "<dd>CE or SRM</dd>" in newest and "VO &lt;b&gt;" in newest
    assert "VO ops" in earlier and "Metrics of CE" not in earlier


def test_profile_show_says_what_published_days_counted(
    engine: Engine, sam_report: SamReport, tmp_path: Path
) -> None:
    old, new = profile_of(tmp_path, PROFILE), profile_of(tmp_path, PROFILE.replace("ops", "cms"))
    publish(engine, old, DAY, {"A CE a1": {"00:00": "OK"}})
    publish(engine, new, NEXT, {"A CE a1": {"00:00": "OK"}})
    period = ("--from", f"{DAY}", "--to", f"{NEXT}")

    lines = sam_report("profile", "show", *period).splitlines()
    newest, earlier = json.loads(sam_report("profile", "show", "--json", *period))

    assert lines[0] == f"critical, {NEXT}"
    assert any(line.split() == ["Up", "when", "CE", "or", "SRM"] for line in lines)
    assert any(line.startswith(f"different on {DAY}") for line in lines)
    assert [entry["what"] for entry in earlier["counts"]] == ["Results"]
    assert (newest["first_day"], earlier["last_day"]) == (f"{NEXT}", f"{DAY}")
