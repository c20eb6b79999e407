"""Where a relay sends messages: one directory queue, or any number of brokers."""

from __future__ import annotations

from sam_pipeline.schema.net.broker_url import SPOOL, STOMP, parse_broker


def problem_of_target(url: str) -> str | None:
    """The problem of the URL of a broker or directory queue to which a relay sends."""
    try:
        broker = parse_broker(url)
    except ValueError as error:
        return str(error)
    if broker.kind in (STOMP, SPOOL):
        return None
    return f"{url}: expected stomp://HOST, stomp+ssl://HOST or spool:///PATH"


def check_targets(urls: tuple[str, ...]) -> str | None:
    """The problems of the whole list, one per line."""
    if problems := [*filter(None, map(problem_of_target, urls))]:
        return "\n".join(problems)
    targets = [parse_broker(url) for url in urls]
    names = [str(target) for target in targets]
    problems = [f"{name}: appears twice" for name in sorted({*names}) if names.count(name) > 1]
    if len(targets) > 1 and any(target.kind == SPOOL for target in targets):
        problems.append("expected one spool, or any number of stomp:// and stomp+ssl:// brokers")
    return "\n".join(problems) or None
