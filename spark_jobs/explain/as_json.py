"""The explanation of a site's figures on a day, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from typing import Any

from sam_pipeline.spark_jobs.explain.causes import Cause, causes_by_effect
from sam_pipeline.spark_jobs.explain.explanation import Reason, Selection, SiteDay, arithmetic
from sam_pipeline.spark_jobs.explain.results import (
    Evidence,
    Ignored,
    JudgedResult,
    Result,
    range_text,
)
from sam_pipeline.spark_jobs.inputs.announced import announcement_json
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.levels import NAMES
from sam_pipeline.spark_jobs.rules.seconds import rounded
from sam_pipeline.spark_jobs.runs.published import Segment


def day_json(site_day: SiteDay, selection: Selection) -> dict[str, Any]:
    """The selected things of a site's day, and all its downtimes and exclusions."""
    costly, without_effect = causes_by_effect(selection.failures(site_day))
    return {
        **about_json(site_day),
        "things": [
            {
                "level": thing.level,
                **dict(zip(NAMES[thing.level], thing.names, strict=True)),
                "availability": rounded(thing.seconds.availability),
                "reliability": rounded(thing.seconds.reliability),
                **{f"{status}_s": seconds for status, seconds in asdict(thing.seconds).items()},
                "arithmetic": arithmetic(thing.seconds),
                "operation": thing.operation,
                "segments": list(map(_status_json, thing.segments)),
                "reasons": list(map(_reason_json, thing.reasons)),
            }
            for thing in selection.things(site_day)
        ],
        "failures": costly.failures,
        "failures_without_effect": without_effect.failures,
        **_announced_json(site_day),
        "ignored_results": list(map(_ignored_json, site_day.ignored)),
    }


def causes_json(site_day: SiteDay, selection: Selection) -> dict[str, Any]:
    """The causes of the failures that cost availability, of the others, and what was announced."""
    costly, without_effect = causes_by_effect(selection.failures(site_day))
    return {
        **about_json(site_day),
        "causes": list(map(_cause_json, costly.causes)),
        "causes_without_effect": list(map(_cause_json, without_effect.causes)),
        **_announced_json(site_day),
    }


def _announced_json(site_day: SiteDay) -> dict[str, Any]:
    return {
        "downtimes": [
            {
                **announcement_json(downtime),
                "publisher": site_day.announcer(downtime),
                "counts": site_day.run.counts(downtime),
            }
            for downtime in site_day.downtimes
        ],
        "exclusions": list(map(announcement_json, site_day.exclusions)),
    }


def about_json(site_day: SiteDay) -> dict[str, Any]:
    """The report, the site and the day, and the end of the data on an open day."""
    return {
        "report": site_day.report,
        "site": site_day.site,
        "day": site_day.run.day,
        "until": None if site_day.run.until is None else moment(site_day.run.until),
        "archive_versions": _versions(site_day.run.archived),
        "results_from_archive": _versions(site_day.from_archive),
    }


def _versions(archived: Mapping[date, int]) -> dict[str, int]:
    return {str(day): version for day, version in archived.items()}


def _cause_json(cause: Cause) -> dict[str, Any]:
    return {
        "service_flavour": cause.service_flavour,
        "metric_name": cause.metric_name,
        "status": cause.status,
        "text": cause.text,
        "count": cause.count,
        "first": moment(cause.first),
        "last": moment(cause.last),
        "endpoints": cause.endpoints,
        "example": {
            "host_name": cause.example.host_name,
            "at": moment(cause.example.at),
            "summary": cause.example.text,
            "message_id": cause.example.message_id,
            "publisher": cause.example.publisher,
            "threshold": cause.example.threshold or None,
        },
    }


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        **_status_json(reason),
        "because": [
            {
                "level": segment.level,
                **dict(zip(NAMES[segment.level], segment.names, strict=True)),
                **_status_json(segment),
            }
            for segment in reason.deciding
        ],
        "downtimes": list(map(announcement_json, reason.downtimes)),
        "exclusions": list(map(announcement_json, reason.exclusions)),
        "metrics": [
            {
                "metric_name": evidence.metric_name,
                **_status_json(evidence),
                "decides": evidence.decides,
                "results": list(map(_result_json, evidence.results)),
                "last_result": None if evidence.last is None else _result_json(evidence.last),
                "validity_s": evidence.validity_s,
                "exclusions": list(map(announcement_json, evidence.exclusions)),
                "ignored_results": list(map(_ignored_json, evidence.ignored)),
            }
            for evidence in reason.evidence
        ],
    }


def _status_json(span: Segment | Reason | Evidence) -> dict[str, Any]:
    return {"start": moment(span.start), "end": moment(span.end), "status": span.status}


def _result_json(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = {
        "measured_at": moment(result.measured),
        "status": result.status,
        "summary": result.summary,
        "message_id": result.message_id,
        "publisher": result.publisher,
        "monitoring_host": result.monitoring_host,
    }
    if isinstance(result, JudgedResult):
        document["original_status"] = result.original_status
        document["threshold"] = {
            "metric_name": result.threshold.metric_name,
            "service_flavour": result.threshold.service_flavour,
            "host_name": result.threshold.host_name,
            "label": result.value.label,
            "value": f"{result.value.number}{result.value.unit}",
            "warning": range_text(result.threshold.warning),
            "critical": range_text(result.threshold.critical),
        }
    return document


def _ignored_json(ignored: Ignored) -> dict[str, Any]:
    result = ignored.result
    return {
        "service_flavour": result.service_flavour,
        "host_name": result.host_name,
        "metric_name": result.metric_name,
        **_result_json(result),
        "exclusion_id": ignored.exclusion.exclusion_id,
    }
