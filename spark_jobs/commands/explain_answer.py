"""What `explain` answers: all of it, a line for each cause, or a ticket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.explain.as_json import about_json, causes_json, day_json
from sam_pipeline.spark_jobs.explain.as_text import Question, as_text, causes_text, site_causes
from sam_pipeline.spark_jobs.explain.explanation import SiteDay
from sam_pipeline.spark_jobs.explain.ticket import ticket

Form = Literal["full", "group", "ticket"]


def text(days: Sequence[SiteDay], question: Question, form: Form) -> str:
    """In words."""
    if form == "ticket":
        told = ["\n".join(ticket(_only(days), question))]
    else:
        told = [(causes_text if form == "group" else as_text)(each, question) for each in days]
    return "\n\n".join(told)


def documents(days: Sequence[SiteDay], question: Question, form: Form) -> list[dict[str, Any]]:
    """For machines: a document for each report."""
    if form == "ticket":
        return [{**about_json(each), "lines": ticket(_only(days), question)} for each in days]
    if form == "group":
        return [causes_json(each, site_causes(each, question)) for each in days]
    return [day_json(each, question.things(each)) for each in days]


def _only(days: Sequence[SiteDay]) -> SiteDay:
    """The day a ticket is about: one figure."""
    if len(days) > 1:
        names = ", ".join(each.report for each in days)
        raise ReportUsage(f"a ticket is about one report; choose by --report: {names}")
    return days[0]
