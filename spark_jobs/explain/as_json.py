"""What made a site's figures on a day, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sam_pipeline.spark_jobs.explain.causes import Cause, causes_by_effect
from sam_pipeline.spark_jobs.explain.evidence import Evidence
from sam_pipeline.spark_jobs.explain.explanation import Reason, SiteDay, Thing, arithmetic
from sam_pipeline.spark_jobs.explain.phrases import range_text
from sam_pipeline.spark_jobs.explain.results import Ignored, JudgedResult, Result
from sam_pipeline.spark_jobs.explain.selection import Selection
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.levels import NAMES
from sam_pipeline.spark_jobs.rules.seconds import rounded
from sam_pipeline.spark_jobs.runs.published import Names, Segment


def day_json(site_day: SiteDay, selection: Selection) -> dict[str, Any]:
    """The selected things of a site's day, and all that was announced or excluded."""
    costly, without_effect = causes_by_effect(selection.failures(site_day))
    return {
        **about_json(site_day),
        "things": [_thing_json(thing) for thing in selection.things(site_day)],
        "failures": costly.failures,
        "failures_without_effect": without_effect.failures,
        "downtimes": [
            {**_announcement_json(each), "counts": site_day.run.counts(each)}
            for each in site_day.downtimes
        ],
        "exclusions": [_announcement_json(each) for each in site_day.exclusions],
        "ignored_results": [_ignored_json(each) for each in site_day.ignored],
    }


def causes_json(site_day: SiteDay, selection: Selection) -> dict[str, Any]:
    """The causes of what cost availability, and of the other failures."""
    costly, without_effect = causes_by_effect(selection.failures(site_day))
    return {
        **about_json(site_day),
        "causes": [_cause_json(cause) for cause in costly.causes],
        "causes_without_effect": [_cause_json(cause) for cause in without_effect.causes],
    }


def about_json(site_day: SiteDay) -> dict[str, Any]:
    """Which report, site and day it is about."""
    return {
        "report": site_day.report,
        "site": site_day.site,
        "day": site_day.run.day,
        "until": None if site_day.run.until is None else moment(site_day.run.until),
    }


def _thing_json(thing: Thing) -> dict[str, Any]:
    return {
        "level": thing.level,
        **_names_json(thing.level, thing.names),
        "availability": rounded(thing.seconds.availability),
        "reliability": rounded(thing.seconds.reliability),
        **{f"{status}_s": seconds for status, seconds in asdict(thing.seconds).items()},
        "arithmetic": arithmetic(thing.seconds),
        "operation": thing.operation,
        "segments": [_segment_json(each) for each in thing.segments],
        "reasons": [_reason_json(reason) for reason in thing.reasons],
    }


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
            "threshold": cause.example.threshold or None,
        },
    }


def _names_json(level: str, names: Names) -> dict[str, str]:
    return dict(zip(NAMES[level], names, strict=True))


def _segment_json(segment: Segment) -> dict[str, Any]:
    return {
        "start": moment(segment.start),
        "end": moment(segment.end),
        "status": segment.status,
    }


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        "start": moment(reason.start),
        "end": moment(reason.end),
        "status": reason.status,
        "because": [
            {"level": each.level, **_names_json(each.level, each.names), **_segment_json(each)}
            for each in reason.deciding
        ],
        "downtimes": [_announcement_json(each) for each in reason.downtimes],
        "exclusions": [_announcement_json(each) for each in reason.exclusions],
        "metrics": [_evidence_json(each) for each in reason.evidence],
    }


def _evidence_json(evidence: Evidence) -> dict[str, Any]:
    return {
        "metric_name": evidence.metric_name,
        "start": moment(evidence.start),
        "end": moment(evidence.end),
        "status": evidence.status,
        "decides": evidence.decides,
        "results": [_result_json(result) for result in evidence.results],
        "last_result": None if evidence.last is None else _result_json(evidence.last),
        "validity_s": evidence.validity_s,
        "exclusions": [_announcement_json(each) for each in evidence.exclusions],
        "ignored_results": [_ignored_json(each) for each in evidence.ignored],
    }


def _result_json(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = {
        "measured_at": moment(result.measured),
        "status": result.status,
        "summary": result.summary,
        "message_id": result.message_id,
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


def _announcement_json(announcement: Downtime | Exclusion) -> dict[str, Any]:
    document = asdict(announcement)
    start, end = document.pop("start"), document.pop("end")
    return {**document, "start_time": moment(start), "end_time": moment(end)}
