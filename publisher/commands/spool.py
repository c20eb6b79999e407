"""`sam-publish spool`: inspect, verify, repair and drain the spool."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Optional

from sam_pipeline.publisher.commands.arguments import add_broker_options, config_of
from sam_pipeline.publisher.commands.nagios import write_textfile
from sam_pipeline.publisher.delivery.drain import DrainTotals, drain, drain_until
from sam_pipeline.publisher.delivery.outgoing import refusals_of
from sam_pipeline.publisher.errors import PublishUsage
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.spool import inspection
from sam_pipeline.publisher.spool.inspection import (
    Element,
    drop,
    elements,
    losses,
    read,
    set_aside,
    state_of,
)
from sam_pipeline.schema.errors import ConfigError, SpoolError
from sam_pipeline.schema.messages.message import DESTINATION, MAX_BYTES, Message
from sam_pipeline.schema.net.broker import SPOOL, STOMP
from sam_pipeline.schema.net.deadline import BackgroundCall, Deadline
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    NO_INPUT,
    NO_PERMISSION,
    OK,
    TRY_LATER,
    UNAVAILABLE,
    AddOption,
    Verb,
    add_verbs,
    option,
    print_done,
    print_json,
    print_json_array,
    print_lines,
    whole_number,
)
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import did_you_mean_or_list, plural
from sam_pipeline.schema.spool.directory import is_hex
from sam_pipeline.schema.spool.queue import DirectoryQueue, written_at
from sam_pipeline.schema.times import format_time

ROW = "{element:23}  {written_at:20}  {size_bytes:>9}  {state:7}  {message_class:16}  {rest}"

TITLES = {
    "element": "element",
    "written_at": "written",
    "size_bytes": "bytes",
    "state": "state",
    "message_class": "class",
    "rest": "message id, destination",
}

REASON = {
    "rejected": "{} rejected by the brokers",
    "locked": "{} locked by other processes, which send them or died less than 10 minutes ago",
    "inaccessible": "{} not accessible to this account",
}
"""Why a drain left elements in the spool."""

WORST = (UNAVAILABLE, NO_PERMISSION, BAD_DATA, TRY_LATER)
"""The exit codes of a drain, the one that matters most first."""
PATIENCE_S = 1.0

DESCRIPTION = (
    "Inspect, repair or drain the spool, where messages wait that no broker has taken yet. Damaged"
    " ones are in the quarantine, a directory beside it whose name ends with `.bad`."
)
EXAMPLES = """\
examples:
  sam-publish spool status
  sam-publish spool drain
  sam-publish spool drain --broker stomp://msg.example.org --timeout 60
"""
NO_ELEMENTS, NO_SPOOL = "no messages in the spool", "no spool is configured: set `spool`"


def add_options(parser: argparse.ArgumentParser) -> None:
    def copy(default: str = "the section's") -> AddOption:
        text = f"the spool of this [[publisher.copy]] (default: {default})"
        return option("--copy", metavar="NAME", help=text)

    ids = option("ids", nargs="+", metavar="ID", help="an element's name or message id")
    of_all = copy("the section's and all copies'")
    parser.description = DESCRIPTION
    add_verbs(
        parser,
        EXAMPLES,
        status=Verb(
            "show the size and the limits of the spool",
            show_status,
            of_all,
            option(
                "--textfile",
                type=Path,
                metavar="PATH",
                help="write the sizes of all spools, and when certificates expire, to this file for"
                " the textfile collector of node_exporter instead",
            ),
        ),
        list=Verb(
            "list the elements, oldest first",
            list_elements,
            copy(),
            option("--limit", type=whole_number(), metavar="N", help="list at most N elements"),
        ),
        show=Verb("print headers and body of elements", show_elements, copy(), ids),
        verify=Verb("read every element and report problems; change nothing", verify, copy()),
        repair=Verb(
            "quarantine damaged elements, and remove leftovers of killed processes",
            partial(verify, repairs=True),
            copy(),
        ),
        drop=Verb(
            "delete elements permanently, quarantined ones included", drop_elements, copy(), ids
        ),
        drain=Verb(
            "send all elements to the first broker that takes them",
            drain_all,
            of_all,
            option("--loop", action="store_true", help="repeat until terminated"),
            add_broker_options,
        ),
    )


def chosen_config(args: argparse.Namespace) -> PublisherConfig:
    """The configuration of the section, or with --copy that of the copy.

    Raises:
        PublishUsage: no copy has this name.
    """
    if not args.copy:
        return config_of(args)
    urls = getattr(args, "brokers", None)
    config = config_of(argparse.Namespace(**{**vars(args), "brokers": None}))
    copies = {copy.copy_name: copy for copy in config.copies}
    if args.copy not in copies:
        advice = did_you_mean_or_list(args.copy, copies) if copies else "none is configured"
        raise PublishUsage(f"unknown copy {args.copy} ({advice})")
    chosen = copies[args.copy]
    if not urls:
        return chosen
    return chosen.only_at(urls).replace(timeout_s=config.timeout_s)


def chosen_configs(args: argparse.Namespace) -> list[PublisherConfig]:
    """Those with a spool: of the section and its copies, or with --copy of that copy alone."""
    config = chosen_config(args)
    configs = [one for one in (config, *config.copies) if one.spool]
    if not configs:
        raise ConfigError([NO_SPOOL])
    return configs


def chosen_queue(args: argparse.Namespace) -> tuple[DirectoryQueue, PublisherConfig]:
    """The spool of the section, or with --copy that of the copy."""
    config = chosen_config(args)
    if config.spool is None:
        raise ConfigError([NO_SPOOL])
    return DirectoryQueue(config.spool, config.shares_spool), config


def list_elements(args: argparse.Namespace) -> int:
    """Print one line per element, oldest first, then those that were set aside."""
    queue, config = chosen_queue(args)
    everything = chain(elements(queue), set_aside(queue))
    chosen = (read(queue, element) for element in islice(everything, args.limit))
    rows = ({**_facts(element), "refusals": _refusals(element, config)} for element in chosen)
    if args.json:
        print_json_array(rows)
        return OK
    first = next(rows, None)
    if first is None:
        print_done(args, NO_ELEMENTS)
        return OK
    print_lines(ROW.format_map(TITLES))
    for row in chain([first], rows):
        state = "damaged" if row["damage"] else "locked" if row["locked"] else ""
        state = "aside" if row["set_aside"] else state
        rest = row["damage"] or f"{row['message_id']}  {row['destination'] or ''}"
        rest += "".join(f"  not for {broker}: {why}" for broker, why in row["refusals"].items())
        cells = {**row, "written_at": format_time(row["written_at"]), "state": state, "rest": rest}
        line = ROW.format_map({k: "" if value is None else value for k, value in cells.items()})
        print_lines(line.rstrip())
    return OK


def show_elements(args: argparse.Namespace) -> int:
    """Print the elements with these names or message ids, in the order of the arguments."""
    chosen = _find(chosen_queue(args)[0], args.ids)
    if args.json:
        documents = [_facts(element) | _content(element.message) for element in chosen]
        print_json(documents if len(documents) > 1 else documents[0])
    else:
        for index, element in enumerate(chosen):
            facts = {**_facts(element), "written_at": format_time(written_at(element.entry.name))}
            lines = [f"{name}: {value}" for name, value in facts.items() if value is not None]
            message = element.message or Message({}, b"")
            headers = [f"{name}: {value}" for name, value in sorted(message.headers.items())]
            body = message.body.decode(errors="backslashreplace").rstrip("\n").split("\n")
            print_lines(*[""] * bool(index), *lines, "", *headers, "", *body)
    return BAD_DATA if any(element.damage for element in chosen) else OK


def drop_elements(args: argparse.Namespace) -> int:
    """Remove the elements with these names or message ids; none if one of them does not exist."""
    queue, _ = chosen_queue(args)
    chosen = {element.entry.name: element for element in _find(queue, args.ids)}
    locked = [name for name, element in chosen.items() if not drop(queue, element)]
    dropped = [element for name, element in chosen.items() if name not in locked]
    if args.json:
        print_json([_facts(element) for element in dropped])
    else:
        for entry, _, message, damage in dropped:
            print_done(args, f"dropped {entry.name}: {message.message_id if message else damage}")
    if locked:
        text = f"not dropped, because another process is sending it: {', '.join(locked)}"
        raise SpoolError(text, TRY_LATER)
    return OK


def verify(args: argparse.Namespace, repairs: bool = False) -> int:
    """Print each problem as soon as it is detected; the exit code says whether any is left."""
    queue, _ = chosen_queue(args)
    progress = Progress("repaired" if repairs else "verified", queue.count())
    left = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal left
        if repairs:
            for problem, done, action in inspection.repair(queue, progress.show):
                left += not done
                progress.end()
                yield {**problem._asdict(), "done": done, "action": action}
        else:
            for problem in inspection.problems(queue, progress.show):
                left += 1
                progress.end()
                yield problem._asdict()
        progress.end()

    if args.json:
        print_json_array(rows())
    else:
        for row in rows():
            print_lines(f"{row['name']}: {row['problem']}: {row.get('action', row['text'])}")
        outcome = f"{queue.path}: {plural(left, 'problem') if left else 'no problem found'}"
        print_done(args, outcome, success=repairs and not left)
    return BAD_DATA if left else OK


def show_status(args: argparse.Namespace) -> int:
    """Print size and limits of each spool, and its locked, quarantined and dropped elements."""
    if args.textfile:
        write_textfile(args.textfile, config_of(args))
        print_done(args, f"wrote {args.textfile}")
        return OK
    first, *others = map(status_of, chosen_configs(args))
    if args.json:
        print_json({**first, "copies": others})
        return OK
    for state in (first, *others):
        if state is not first:
            print_lines("")
        if state["copy"]:
            print_lines(f"copy         {state['copy']}")
        print_lines(f"spool        {state['path']}")
        most = f"{state['max_messages']}, {state['when_full']}"
        print_lines(f"messages     {state['messages']} of {most}")
        print_lines(f"bytes        {state['size_bytes']} of {state['max_bytes']}")
        print_lines(f"oldest       {format_time(state['oldest']) if state['oldest'] else '-'}")
        print_lines(f"locked       {state['locked']}")
        aside, size = state["quarantined"], state["quarantined_bytes"]
        note = f" ({size} bytes), which count towards the limits" if aside else ""
        print_lines(f"quarantined  {aside} in {state['path']}.bad{note}")
        print_lines(f"dropped      {state['dropped']}")
        for broker, number in state["refusals"].items():
            why = f"{number} too large for it: `spool drain` sends them to another broker"
            print_lines(f"not for      {broker}: {why}")
    if first["lost"]:
        print_lines(f"lost         {first['lost']}, neither published nor spooled")
    return OK


def status_of(config: PublisherConfig) -> dict[str, Any]:
    """The state of a spool, and how many of its messages each broker can never take."""
    assert config.spool is not None
    queue = DirectoryQueue(config.spool, config.shares_spool)
    refusals: dict[str, int] = {}
    over_http = any(target.broker.kind not in (STOMP, SPOOL) for target in config.targets)

    def count_refusals(element: Element) -> None:
        if over_http and element.entry.status.st_size > MAX_BYTES:  # the others fit everywhere
            for broker in _refusals(read(queue, element), config):
                refusals[broker] = refusals.get(broker, 0) + 1

    state = state_of(queue, config, count_refusals)
    shown = {**state._asdict(), "copy": state.copy or None, "path": str(state.path)}
    return {
        **shown,
        "when_full": config.spool_when_full,
        "refusals": refusals,
        "lost": losses(config.state).results,
    }


def drain_all(args: argparse.Namespace) -> int:
    """Send all elements, of several spools at the same time; with --loop, until terminated.

    Raises:
        SpoolError: a spool can't be used; raised after the report on the others.
    """
    configs = [config for config in chosen_configs(args) if config.targets]
    if not configs:
        raise ConfigError(["no broker to drain to: use --broker, or set `brokers` in [publisher]"])
    stop = Event()
    errors: list[SpoolError] = []
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def drained(config: PublisherConfig) -> Optional[SpoolDrain]:
        try:
            return drain_one(args, config, stop)
        except SpoolError as error:
            errors.append(error)
            return None

    try:
        calls = [BackgroundCall(drained, config) for config in configs[1:]]
        results = [drained(configs[0])]
        for call in calls:
            while not call.finished:
                with suppress(TimeoutError):
                    call.result(Deadline.after(PATIENCE_S))
            results.append(call.result(Deadline.after(PATIENCE_S)))
    finally:
        signal.signal(signal.SIGTERM, before)
    good = [result for result in results if result]
    code = next((code for code in WORST if any(code == one.code for one in good)), OK)
    if args.json and good:
        first, *others = (one.document for one in good)
        print_json({**first, "copies": others})
    elif not args.json:
        print_done(args, *(one.line for one in good), success=code == OK and not errors)
    if errors:
        raise errors[0]
    return code


class SpoolDrain(NamedTuple):
    """The outcome of draining one spool: as JSON, as text, and its exit code."""

    document: dict[str, Any]
    line: str
    code: int


def drain_one(args: argparse.Namespace, config: PublisherConfig, stop: Event) -> SpoolDrain:
    """Send all elements of a spool; with --loop, until `stop` is set."""
    assert config.spool is not None
    queue = DirectoryQueue(config.spool, config.shares_spool)
    started = time.monotonic()
    if args.loop:
        result = drain_until(stop, config)
    else:
        is_shown = sys.stderr.isatty() and not config.copy_name
        progress = Progress("drained", queue.count() if is_shown else 0)

        def go_on(totals: DrainTotals) -> bool:
            progress.show(totals.sent)
            return not stop.is_set()

        result = drain(config, go_on)
        progress.end()
    elapsed_s, left = time.monotonic() - started, set(queue.names())
    counts = {
        "rejected": sum(result.rejections.values()),
        "locked": len(result.locked & left),
        "inaccessible": len(result.inaccessible),
    }
    code = OK
    if not args.loop:  # which ends only because it is terminated
        if not result.complete:
            code = UNAVAILABLE
        elif result.inaccessible:
            code = NO_PERMISSION
        elif result.rejections or result.set_aside:
            code = BAD_DATA
        elif counts["locked"]:
            code = TRY_LATER
    document = {
        "copy": config.copy_name or None,
        "sent": result.sent,
        **counts,
        "set_aside": result.set_aside,
        "left": len(left),
        "elapsed_s": round(elapsed_s, 3),
    }
    why = ", ".join(REASON[name].format(count) for name, count in counts.items() if count)
    line = f"drained {plural(result.sent, 'message')} from {queue.path} in {elapsed_s:.1f} s"
    return SpoolDrain(document, f"{line}, {len(left)} left{why and f' ({why})'}", code)


def _find(queue: DirectoryQueue, ids: Sequence[str]) -> list[Element]:
    """The elements with these names or message ids, in the order of the ids.

    Raises:
        SpoolError: one of the ids does not exist.
    """
    found: dict[str, dict[str, Element]] = {name: {} for name in ids}
    by_name = all(is_hex(name[:8] + name[9:], 22) for name in found)
    for element in chain(elements(queue), set_aside(queue)):
        name = element.entry.name
        if not by_name or name in found:
            element = read(queue, element)
        message_id = element.message.message_id if element.message else ""
        for wanted in {name, message_id} & found.keys():
            found[wanted][name] = element
        if by_name and all(found.values()):
            break
    if missing := [name for name, matches in found.items() if not matches]:
        text = f"not in the spool {queue.path}: {', '.join(missing)} (drained, perhaps)"
        raise SpoolError(text, NO_INPUT)
    return [element for matches in found.values() for element in matches.values()]


def _facts(element: Element) -> dict[str, Any]:
    """An element in lists and JSON, without headers and body."""
    message = element.message
    return {
        "element": element.entry.name,
        "written_at": written_at(element.entry.name),
        "size_bytes": element.entry.status.st_size,
        "locked": element.locked,
        "set_aside": element.is_aside,
        "message_class": message.message_class if message else None,
        "message_id": message.message_id if message else None,
        "destination": message.headers.get(DESTINATION) if message else None,
        "damage": element.damage or None,
    }


def _refusals(element: Element, config: PublisherConfig) -> dict[str, str]:
    """By broker that can never take the message of an element: why."""
    return refusals_of(element.message, config) if element.message else {}


def _content(message: Optional[Message]) -> dict[str, Any]:
    """Headers and body of an element; a body that is not UTF-8 also in base64."""
    if message is None:
        return {"headers": None, "body": None}
    headers = dict(message.headers)
    try:
        return {"headers": headers, "body": message.body.decode()}
    except UnicodeDecodeError:
        body, in_base64 = message.body.decode(errors="replace"), b64encode(message.body).decode()
        return {"headers": headers, "body": body, "body_base64": in_base64}
