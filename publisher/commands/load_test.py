"""`sam-publish load-test`: the published load test of messaging brokers, and its plots."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Optional, TextIO

from sam_pipeline.publisher.commands.arguments import add_broker, config_of, seconds_argument
from sam_pipeline.publisher.errors import LoadTestFailed, PublishUsage
from sam_pipeline.publisher.load_test.conduct import StopSignal, run_cell
from sam_pipeline.publisher.load_test.figures import (
    document_of,
    read_results,
    table_heading,
    table_row,
)
from sam_pipeline.publisher.load_test.plan import (
    CONSUMERS,
    KINDS,
    MATRIX,
    OPTION,
    PRODUCERS,
    SCENARIOS,
    SIZES,
    WARM_UP,
    LoadCell,
    LoadSelection,
    bounds_text,
    plan,
    target_of,
)
from sam_pipeline.publisher.load_test.wire import NAME, LoadRoute
from sam_pipeline.schema.errors import how_to_install
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    print_done,
    print_json_line,
    print_lines,
    to_json,
    whole_number,
)
from sam_pipeline.schema.program.wording import plural

RESULTS, PAGE = "results.jsonl", "report.html"
MOST_CLIENTS = 1000
MOST_BYTES = 10_000_000
MOST_PER_S = 10_000_000
RESOLVE_S = 10.0

DESCRIPTION = """\
Measure the throughput of a broker, in one cell for each combination of producers, consumers and
payload. Every message is counted by its id. Prints the bounds of the test, then a line per cell. A
broker that is not on loopback is refused unless it is named.
"""
EPILOG = """\
examples:
  sam-publish load-test --broker stomp://localhost:61613 --out before
  sam-publish load-test --producers 1,5 --consumers 1,10 --sizes 0,1k --queue
  sam-publish load-test --scenario collector --scenario fan-out --scenario flow-control
  sam-publish load-test --compare before after --out comparison
  sam-publish load-test --broker stomp+ssl://test.example.org --yes-this-broker test.example.org

scenarios:
  matrix        each number of producers with each number of consumers and each payload
  collector     300 producers, 2,000 messages/s in total, one consumer, 500 B
  fan-out       10 producers, 100 consumers, 200 B
  flow-control  5 producers, 2,000 messages/s in total, 5 consumers, \
one of them slow for a while, 1 kB
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler=handle, kinds=[], persistence=[])
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_cell_options(parser)
    where = parser.add_argument_group("where")
    add_broker(where, "test this broker, such as stomp://localhost:61613")
    where.add_argument(
        OPTION,
        dest="confirmed",
        metavar="HOST",
        help="test the broker with exactly this host although it is not on loopback",
    )
    where.add_argument(
        "--processes",
        type=whole_number(1, 64),
        metavar="N",
        default=max(1, (os.cpu_count() or 1) // 2),
        help="send with N processes and receive with N (default: half of the processors)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"write {RESULTS}, and with matplotlib {PAGE}, to this directory",
    )
    output.add_argument(
        "--compare",
        nargs="+",
        type=Path,
        metavar="DIR",
        help=f"measure nothing: draw the results of these directories side by side, to {PAGE} in"
        " the directory --out",
    )
    output.add_argument(
        "--dry-run", action="store_true", help="print the cells and the bounds, and exit"
    )


def add_cell_options(parser: argparse.ArgumentParser) -> None:
    """The cells, and the bounds of each."""
    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "--scenario",
        dest="scenarios",
        action="append",
        choices=[MATRIX, *SCENARIOS],
        metavar="NAME",
        help=f"measure this scenario: {', '.join([MATRIX, *SCENARIOS])} (default: {MATRIX})",
    )
    clients = whole_number(1, MOST_CLIENTS)
    lists = {
        "producers": (PRODUCERS, clients, "numbers of producers in the matrix"),
        "consumers": (CONSUMERS, clients, "numbers of consumers in the matrix"),
        "sizes": (SIZES, size_argument, "payloads in the matrix, in bytes; 10k is 10000"),
    }
    for name, (default, convert, text) in lists.items():
        shown = ",".join(map(str, default))
        what.add_argument(
            f"--{name}",
            type=list_argument(convert),
            metavar="N,…",
            default=default,
            help=f"{text} (default: {shown})",
        )
    both = "with both of them, measure both"
    flags = {
        "--topic": ("kinds", KINDS[0], "each consumer gets each message (default)"),
        "--queue": ("kinds", KINDS[1], f"the consumers share the messages; {both}"),
        "--persistent": ("persistence", True, "the broker stores the messages (default)"),
        "--no-persistent": ("persistence", False, f"it need not store them; {both}"),
    }
    for flag, (dest, value, text) in flags.items():
        what.add_argument(flag, dest=dest, action="append_const", const=value, help=text)
    bounds = parser.add_argument_group("bounds of each cell")
    bounds.add_argument(
        "--messages", type=whole_number(), metavar="N", help="send at most N (default: 10000)"
    )
    bounds.add_argument(
        "--seconds",
        type=seconds_argument,
        metavar="S",
        help="send for at most S seconds (default: 5; scenarios: 30)",
    )
    bounds.add_argument(
        "--rate",
        type=whole_number(1, MOST_PER_S),
        metavar="N",
        help="all producers together send N messages/s (default: as many as the broker confirms; "
        "collector and flow-control: 2000)",
    )


def handle(args: argparse.Namespace) -> int:
    if args.compare:
        return compare(args)
    cells = plan(LoadSelection(*(getattr(args, name) for name in LoadSelection._fields)))
    notes = sys.stderr if args.json else sys.stdout
    if args.dry_run:
        print_lines(*cells, bounds_text(cells))
        return OK
    config = config_of(args)
    target = target_of(config, args.confirmed, Deadline.after(RESOLVE_S))
    route = LoadRoute(target, secrets.token_hex(4))
    with ExitStack() as stack:
        file = None
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((args.out / RESULTS).open("w", encoding="utf-8"))
        print_done(args, f"broker {target}, destinations {NAME}.{route.run}", file=notes)
        print_done(args, bounds_text(cells), file=notes)
        stop = stack.enter_context(StopSignal())
        documents, failure = measure(route, cells, stop, args, file)
    if args.out:
        written = f"wrote {args.out / RESULTS}"
        if find_spec("matplotlib"):
            write_page([(args.out.resolve().name, documents)], args.out / PAGE)
            written += f" and {args.out / PAGE}"
        else:
            print_lines(f"no {PAGE}: {how_to_install('matplotlib')[0]}", file=sys.stderr)
        print_done(args, written, file=notes)
    if stop.received:
        done = f"{len(documents)} of {len(cells) - 1} cells were measured"
        print_lines(f"sam-publish: stopped by {stop.received.name}: {done}", file=sys.stderr)
    if failure:
        raise failure
    lost = sum(document["lost"] for document in documents)
    if lost:
        print_lines(f"sam-publish: error: the broker lost {plural(lost, 'message')}", file=notes)
    if stop.received:
        return 128 + stop.received  # as shells report a signal
    return BAD_DATA if lost else OK


def measure(
    route: LoadRoute,
    cells: Sequence[LoadCell],
    stop: StopSignal,
    args: argparse.Namespace,
    file: Optional[TextIO],
) -> tuple[list[dict[str, Any]], Optional[LoadTestFailed]]:
    """The figures of the cells that were measured, and why the others were not."""
    documents: list[dict[str, Any]] = []
    for number, cell in enumerate(cells):
        if stop.received:
            break
        try:
            document = document_of(run_cell(route, cell, number, args.processes, stop), route)
        except LoadTestFailed as failure:
            return documents, LoadTestFailed(f"{cell}: {failure}")
        for problem in document["problems"]:
            print_lines(f"sam-publish: warning: {cell}: {problem}", file=sys.stderr)
        if cell.scenario == WARM_UP:
            if not args.json:
                processors = document["machine"]["processors"]
                print_done(args, f"{document['server']} on {processors} processors")
                if document["to_broker_ms"] is None:
                    text = "the broker adds no time of its own to messages"
                    print_done(args, f"{text}, so only the whole lag is known")
                print_done(args, *table_heading())
            continue
        documents.append(document)
        if file:
            file.write(to_json(document, indent=None) + "\n")
            file.flush()
        if args.json:
            print_json_line(document)
        else:
            print_done(args, table_row(document))
    return documents, None


def compare(args: argparse.Namespace) -> int:
    """Draw the results of several directories side by side."""
    if args.out is None:
        raise PublishUsage("--compare needs --out for the page")
    runs = [
        (name, read_results(directory / RESULTS))
        for name, directory in zip(run_names(args.compare), args.compare)
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    write_page(runs, args.out / PAGE)
    print_done(args, f"wrote {args.out / PAGE}")
    return OK


def run_names(directories: Sequence[Path]) -> list[str]:
    """The last part of each path that is not the same for all, as in `NAME/matrix`."""
    paths = [directory.resolve() for directory in directories]
    while len(paths) > len({path.name for path in paths}) == 1 and paths[0].name:
        paths = [path.parent for path in paths]
    return [path.name for path in paths]


def write_page(runs: Sequence[tuple[str, list[dict[str, Any]]]], path: Path) -> None:
    from sam_pipeline.publisher.load_test.page import page  # needs the extra load-test

    path.write_text(page(runs), encoding="utf-8")


def list_argument(convert: Callable[[str], int]) -> Callable[[str], tuple[int, ...]]:
    """The argparse `type` of numbers that are separated by commas."""

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(dict.fromkeys(convert(part.strip()) for part in text.split(",")))

    return numbers


def size_argument(text: str) -> int:
    """A number of bytes, or of thousands of bytes with a k behind."""
    number, factor = (text[:-1], 1000) if text[-1:] in ("k", "K") else (text, 1)
    return whole_number(0, MOST_BYTES // factor)(number) * factor
