"""The wording of downtimes, exclusions, results, causes and times."""

from __future__ import annotations

import shlex
from datetime import date
from fractions import Fraction

from sam_pipeline.schema.identity.identity import known_identity
from sam_pipeline.schema.program.wording import duration, one_line
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.explain.causes import Cause
from sam_pipeline.spark_jobs.explain.evidence import Evidence
from sam_pipeline.spark_jobs.explain.results import NO_RESULT, Ignored, JudgedResult, Result
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Downtime, Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Range
from sam_pipeline.spark_jobs.rules.days import DAY_S, moment
from sam_pipeline.spark_jobs.rules.levels import METRIC


def cause_text(cause: Cause) -> str:
    """A cause on one line, with an example whose message can be looked up."""
    example = cause.example
    message = message_text(example.message_id, example.publisher)
    moments = span_text(cause.first, cause.last)
    return (
        f"{cause.count} x {cause.status} {cause.service_flavour} {cause.metric_name} {moments}"
        f" at {cause.where}: {cause.text or '(no text)'};"
        f" e.g. {example.host_name} {time_text(example.at)}{f' ({message})' if message else ''}"
    )


def downtime_text(downtime: Downtime) -> str:
    of = " ".join(filter(None, (downtime.site, downtime.service_flavour, downtime.host_name)))
    name = f" {downtime.downtime_id}" if downtime.downtime_id else ""
    text = f": {one_line(downtime.description)}" if downtime.description else ""
    kind = f"{downtime.classification}/{downtime.severity}"
    times = f"{time_text(downtime.start)} to {time_text(downtime.end)}"
    if downtime.announced is not None:
        late = ", after it had begun" if downtime.is_late else ""
        times += f", announced {time_text(downtime.announced)}{late}"
    return f"downtime{name} {kind} of {of}, {times}{text}"


def effect_text(downtime: Downtime, counts: bool, publisher: str) -> str:
    """A downtime, whether it counts for the report, and who announced it."""
    identity = known_identity(publisher)
    by = f", announced by {identity}" if identity else ""
    return f"{downtime_text(downtime)} ({'counts' if counts else 'does not count'}{by})"


def exclusion_text(exclusion: Exclusion) -> str:
    target = {
        MONITORING_HOST: f"monitoring host {exclusion.monitoring_host}",
        METRIC: f"metric {exclusion.metric_name}",
    }.get(exclusion.kind, f"site {exclusion.site}")
    selectors = (exclusion.site, exclusion.service_flavour, exclusion.host_name)
    if exclusion.kind == METRIC and any(selectors):
        target += f" at {' '.join(filter(None, selectors))}"
    times = f"{time_text(exclusion.start)} to {time_text(exclusion.end)}"
    return (
        f"exclusion {exclusion.exclusion_id} of {target}, {times},"
        f" by {exclusion.who}: {one_line(exclusion.reason)}"
    )


def missing_text(evidence: Evidence) -> str:
    last = evidence.last
    if last is None or evidence.validity_s is None:
        return f"{NO_RESULT} since {time_text(evidence.since)} (a report looks back no further)"
    since = last.measured + evidence.validity_s
    return (
        f"{NO_RESULT} for {duration(evidence.end - last.measured)}; the last one,"
        f" {result_text(last)}, was valid for {duration(evidence.validity_s)}:"
        f" MISSING since {time_text(since)}"
    )


def result_text(result: Result) -> str:
    text = f" {one_line(result.summary)}" if result.summary else ""
    judged = f" ({threshold_text(result)})" if isinstance(result, JudgedResult) else ""
    status = f"{time_text(result.measured)} {result.status}{judged}"
    message = message_text(result.message_id or "no message id", result.publisher)
    return f"{status}{text} ({message})"


def message_text(message_id: str, publisher: str) -> str:
    """A message that can be looked up, and the identity that sent it, if it has one."""
    identity = known_identity(publisher)
    return f"{message_id} from {identity}".lstrip() if identity else message_id


def range_text(limits: Range | None) -> str:
    """The range as a profile writes it."""
    if limits is None:
        return ""
    low = "~" if limits.low is None else _decimal(limits.low)
    high = "" if limits.high is None else _decimal(limits.high)
    start = "" if low == "0" and high else f"{low}:"
    return f"{'@' if limits.inside else ''}{start}{high}"


def ignored_text(ignored: Ignored) -> str:
    result, exclusion = ignored
    instance = f"{result.service_flavour} {result.host_name} {result.metric_name}"
    return (
        f"ignored: {instance} {result_text(result)}, measured by {exclusion.monitoring_host}"
        f" (exclusion {exclusion.exclusion_id})"
    )


def explain_command(
    report: str,
    site: str,
    day: date,
    service_flavour: str | None = None,
    host_name: str | None = None,
) -> list[str]:
    """The shell command that explains a site's day; each option and its value are one item."""
    options = {
        "--report": report,
        "--day": day.isoformat(),
        "--site": site,
        "--flavour": service_flavour,
        "--host": host_name,
    }
    return [
        "sam-report explain",
        *(
            # After a blank, a value that starts with - would be read as an option.
            f"{option}{'=' if value.startswith('-') else ' '}{shlex.quote(value)}"
            for option, value in options.items()
            if value is not None
        ),
    ]


def time_text(second: int) -> str:
    return format_time(moment(second))


def clock_text(second: int) -> str:
    minutes, seconds = divmod(second % DAY_S, 60)  # strftime is slow, and a page has many times
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def span_text(start: int, end: int, to: str = "-") -> str:
    ends_the_day = end > start and end % DAY_S == 0
    return f"{clock_text(start)}{to}{'24:00:00' if ends_the_day else clock_text(end)}"


def threshold_text(result: JudgedResult) -> str:
    """The status that was sent, and the threshold that changed it."""
    rule, value = result.threshold, result.value
    limits = rule.critical if result.status == "CRITICAL" else rule.warning
    of = " ".join(filter(None, (rule.metric_name, rule.service_flavour, rule.host_name)))
    return (
        f"sent as {result.original_status}; {value.label}={value.number}{value.unit} triggers"
        f" the threshold {result.status.lower()} {range_text(limits)} of {of}"
    )


def _decimal(number: Fraction) -> str:
    return f"{float(number):.12g}"
