"""Times in other forms than ISO 8601, which only a person can name: is 2/3 in February or March?"""

from __future__ import annotations

from datetime import UTC, datetime

from sam_pipeline.schema.times import format_time, parse_time


def problem_of_format(time_format: str) -> str | None:
    """What is wrong with a format such as `%m/%d/%Y %H:%M`: it must say day, month and year."""
    sample = datetime(2026, 11, 29, 13, 45, tzinfo=UTC)
    try:
        read = datetime.strptime(sample.strftime(time_format), time_format)
    except ValueError as error:
        return f"{time_format!r} is not a format of strptime: {error}"
    if read.date() != sample.date() or (read.hour, read.minute) != (sample.hour, sample.minute):
        return f"{time_format!r} must say day, month, year, hour and minute (%m/%d/%Y %H:%M)"
    return None


def time_in(time_format: str | None, text: str) -> str:
    """A time in this format, or in ours if it is None; without a zone it is in UTC.

    Raises:
        ValueError: the text is not such a time.
    """
    if time_format is None:
        try:
            return format_time(parse_time(text))
        except ValueError as error:
            raise ValueError(f"{error}; --time-format names another form") from None
    try:
        time = datetime.strptime(text, time_format)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time in the format {time_format!r}") from None
    return format_time(time if time.tzinfo else time.replace(tzinfo=UTC))
