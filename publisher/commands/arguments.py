"""The command line of sam-publish."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import CommandParser, common_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    AddOptions = Callable[[argparse.ArgumentParser], None]

PROGRAM = "sam-publish"

EXAMPLES = """\
examples:
  sam-publish result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE
  sam-publish run --flavour CE -- /usr/lib/nagios/plugins/check_load -w 9 -c 12
  sam-publish send results.txt --broker stomp://msg.example.org --broker stomp://msg2.example.org
  sam-publish spool status

Where to publish stands in the section [publisher] of sam.toml, or in options. What no broker
takes is kept in the spool, and sent by the next call that reaches one.
"""
SEND = """\
Publish records from files or standard input: text (`key: value` lines, ended by EOT) or JSON (an
object or an array of objects), packed into messages of at most 100 records or 64 kB.

A bad record is refused with its file and line, exit code 65; the others are published.
"""
SEND_EXAMPLES = """\
examples:
  sam-publish send results.txt
  sam-publish send --class serviceEndpoint endpoints.json
  sam-publish send --dry-run results.txt
"""
RESULT_EXAMPLES = """\
examples:
  sam-publish result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE
  df -h | sam-publish result --metric org.example.Disk --status WARNING --host se01.example.org \\
      --flavour SE --summary "91 % used" --details -
"""
RUN = """\
Run a monitoring plugin and publish what it found. Its output and exit code are passed on
unchanged; everything else is said on standard error.

Exit codes 0 to 3 are OK, WARNING, CRITICAL and UNKNOWN. A plugin that takes too long is killed
with its whole process group. That, death by a signal, any other exit code, output that is not
UTF-8 or above 1 MB are published as UNKNOWN, with the reason.
"""
RUN_EXAMPLES = """\
examples:
  sam-publish run -- /usr/lib/nagios/plugins/check_load -w 9 -c 12
  sam-publish run --metric org.example.Ssh --host ce01.example.org --flavour CE \\
      -- /usr/lib/nagios/plugins/check_ssh ce01.example.org
"""
DRAIN_EXAMPLES = """\
examples:
  sam-publish spool drain
  sam-publish spool drain --broker stomp://msg.example.org --timeout 60
"""
CHECK = """\
Look at configuration, files, their modes and secrets, and tell every problem at once (exit code
78). With --connect, send each broker a message of class `sam-check` and see it come back:
consumers count such messages and never load them.
"""
CHECK_EXAMPLES = """\
examples:
  sam-publish check
  sam-publish check --connect --broker stomp://msg.example.org
"""

RECORD_KEYS = {
    "metric": "metricName",
    "status": "metricStatus",
    "host": "hostName",
    "flavour": "serviceFlavour",
    "uri": "serviceURI",
    "site": "siteName",
    "vo": "voName",
    "fqan": "voFqan",
    "summary": "summaryData",
    "details": "detailsData",
    "performance_data": "performanceData",
    "timestamp": "timestamp",
    "gathered_at": "gatheredAt",
}
"""The key of a record that each option fills."""


def build_parser() -> argparse.ArgumentParser:
    """The parser; options of a command are only made when it is the one that is called."""
    parser = CommandParser(
        prog=PROGRAM,
        description="Publish probe results to the first broker that takes them.",
        epilog=EXAMPLES,
        parents=[common_options()],
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = _commands(parser, "command")
    commands.add_parser(
        "send",
        help="publish records from files or standard input",
        description=SEND,
        epilog=SEND_EXAMPLES,
        options=_send_options,
    )
    commands.add_parser(
        "result", help="publish one result", epilog=RESULT_EXAMPLES, options=_result_options
    )
    commands.add_parser(
        "run",
        help="run a monitoring plugin and publish its result",
        usage=f"{PROGRAM} run [options] -- PLUGIN [ARGS...]",
        description=RUN,
        epilog=RUN_EXAMPLES,
        options=_run_options,
    )
    commands.add_parser(
        "spool", help="look at the spool, mend it, or send what it holds", options=_spool_options
    )
    commands.add_parser(
        "check",
        help="find every problem of configuration, files and brokers",
        description=CHECK,
        epilog=CHECK_EXAMPLES,
        options=_check_options,
    )
    return parser


class _LateParser:
    """The parser of a command, made when it is asked for anything: one of them is."""

    def __init__(self, options: AddOptions, **keywords: Any) -> None:
        self._options = options
        self._keywords = keywords
        self._made: CommandParser | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = CommandParser(**self._keywords)
            self._options(self._made)
            self._made._add_container_actions(common_options())
        return getattr(self._made, name)


def _commands(parser: argparse.ArgumentParser, name: str) -> Any:
    return parser.add_subparsers(
        dest=name,
        required=True,
        metavar=name.upper(),
        prog=parser.prog,  # else argparse formats a whole usage text to find it
        parser_class=_LateParser,
    )


def _send_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="`-` or none: standard input")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--one-per-message", action="store_true", help="do not pack records")
    form.add_argument("--raw", action="store_true", help="each file unread, as one message")
    _add_where(parser)
    _add_how(parser)


def _result_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--metric", required=True, metavar="NAME")
    parser.add_argument("--status", required=True, help="OK, WARNING, CRITICAL, UNKNOWN or 0 to 3")
    parser.add_argument("--host", required=True, help="that was measured")
    parser.add_argument("--flavour", required=True, help="of the service there, such as CE")
    parser.add_argument("--summary", metavar="TEXT", help="one line")
    parser.add_argument("--details", metavar="TEXT", help="many lines; `-`: standard input")
    parser.add_argument("--performance-data", metavar="TEXT")
    _add_optional_keys(parser)
    parser.add_argument("--timestamp", metavar="TIME", help="of the measurement (default: now)")
    _add_where(parser)
    _add_how(parser)


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metric", metavar="NAME", help="default: org.nagios.FILE, after the plugin's file"
    )
    parser.add_argument("--host", help="that is measured (default: this host)")
    parser.add_argument("--flavour", default="Host", help="of the service there (default: Host)")
    _add_optional_keys(parser)
    parser.add_argument(
        "--plugin-timeout", type=_seconds, default=60.0, metavar="S", help="default: 60"
    )
    parser.add_argument(
        "--publish-failure",
        choices=["keep", "unknown"],
        default="keep",
        help="where neither a broker nor the spool took the result: keep the plugin's exit code "
        "(default), or end with 3, unknown",
    )
    parser.add_argument("plugin", nargs="+", metavar="PLUGIN", help="with its arguments, after --")
    _add_where(parser)
    _add_how(parser)


def _spool_options(spool: argparse.ArgumentParser) -> None:
    actions = _commands(spool, "action")
    actions.add_parser("status", help="how much it holds, and may hold", options=_no_options)
    actions.add_parser("list", help="its elements, oldest first", options=_list_options)
    actions.add_parser("show", help="headers and body of elements", options=_show_options)
    actions.add_parser("verify", help="read every element and change nothing", options=_no_options)
    actions.add_parser(
        "repair",
        help="set damaged elements aside, sweep what killed processes left",
        options=_no_options,
    )
    actions.add_parser(
        "drain", help="send all it holds", epilog=DRAIN_EXAMPLES, options=_drain_options
    )


def _no_options(parser: argparse.ArgumentParser) -> None:
    """None but the common ones."""


def _list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=_count, metavar="N", help="no more than so many")


def _show_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="name of an element, or message id")


def _drain_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--loop", action="store_true", help="and go on until terminated")
    _add_where(parser)


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connect", action="store_true", help="prove a round trip per broker, too")
    parser.add_argument(
        "--destination", help="of the check messages (default: where results would go)"
    )
    _add_where(parser)


def _add_optional_keys(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--uri", help="of the service; its host counts then")
    parser.add_argument("--site")
    parser.add_argument("--vo")
    parser.add_argument("--fqan", help="VO role")
    parser.add_argument("--gathered-at", metavar="HOST", help="that measured (default: this host)")


def _add_where(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where to publish")
    group.add_argument(
        "--broker",
        dest="brokers",
        action="append",
        type=_broker,
        metavar="URL",
        help="such as stomp+ssl://HOST or spool:///PATH; repeat to fall back to the next",
    )
    group.add_argument(
        "--timeout",
        dest="timeout_s",
        type=_seconds,
        metavar="S",
        help="of the publishing in total, of a drain for each step (default: 10)",
    )


def _add_how(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to publish as, and what if no broker takes it")
    group.add_argument(
        "--class", dest="message_class", metavar="NAME", help="default: metricOutput"
    )
    group.add_argument("--destination", help="default: /topic/grid.probe.CLASS")
    group.add_argument(
        "--header",
        dest="headers",
        action="append",
        type=_header,
        default=[],
        metavar="K=V",
        help="of the message, repeatable",
    )
    keep = group.add_mutually_exclusive_group()
    keep.add_argument("--no-spool", action="store_true", help="fail (exit code 69), keep nothing")
    keep.add_argument("--require-broker", action="store_true", help="spool, but exit with 75")
    group.add_argument(
        "--dry-run", action="store_true", help="print exactly what would be sent, and send nothing"
    )


def _broker(url: str) -> str:
    from sam_pipeline.schema.net.broker_url import parse_broker

    try:
        parse_broker(url)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return url


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _header(text: str) -> tuple[str, str]:
    from sam_pipeline.publisher.brokers.stomp.headers import OURS, belongs_to_broker, is_header_name

    name, equals, value = text.partition("=")
    if not equals or not is_header_name(name) or not value.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    if belongs_to_broker(name):
        raise argparse.ArgumentTypeError(f"{name} means something to brokers: choose another name")
    if name.lower() in OURS:
        raise argparse.ArgumentTypeError(f"{name} is written by {PROGRAM} itself")
    return name, value


class _Version(argparse.Action):
    """Looks the version up only when asked: that takes longer than a whole publishing."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{PROGRAM} {version('sam-pipeline')}")
        parser.exit()
