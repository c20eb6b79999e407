"""Part F: what verifying the signature of each message costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from sam_pipeline.schema.identity.identity import ANONYMOUS, key_identity
from sam_pipeline.schema.identity.keys import Signer, load_signer, make_key
from sam_pipeline.schema.identity.signature import sign
from sam_pipeline.schema.messages.message import DESTINATION as HEADER
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.text import Record
from tests.benchmarks.consume_drain import RECORDS, Turns, ours, print_turns, rotated
from tests.benchmarks.consume_road import DESTINATION, Road, fifty, single
from tests.benchmarks.load import print_ratio

KEY = "bench-key"
BOUND = 0.6
"""Of the rows per second that are loaded without signatures."""

SIGNED, UNSIGNED = "signed", "unsigned"

Maker = Callable[[Iterator[Record]], Message]


def signed_messages(road: Road, messages: int, rounds: int) -> bool:
    """Drains of signed and unsigned messages in turn, under a policy that allows both."""
    signer = configure_policy(road)

    def signed(make: Maker, results: Iterator[Record]) -> Message:
        headers, body = make(results)
        return sign(Message({**headers, HEADER: DESTINATION}, body), signer, datetime.now(UTC))

    good = []
    for make, records, count in ((single, 1, messages), (fifty, RECORDS, messages // 20)):
        makers: dict[str, Maker] = {SIGNED: partial(signed, make), UNSIGNED: make}
        turns: Turns = defaultdict(list)
        for turn in range(rounds + 1):
            for name in rotated(list(makers), turn):
                result = ours(road, road.publish(count, makers[name]), count, records)
                if turn:
                    turns[name].append(result)
        print(f"{plural(records, 'record')} a message, signed with Ed25519 or not")
        print_turns(turns, "rows/s")
        seconds = {name: [turn.wall_s for turn in own] for name, own in turns.items()}
        good.append(print_ratio("signed / unsigned", seconds[UNSIGNED], seconds[SIGNED], BOUND))
    return all(good)


def configure_policy(road: Road) -> Signer:
    """Give the consumer a policy, and return a signer whose key it knows."""
    key_file = road.directory / f"{KEY}.pem"
    make_key(key_file)
    signer = load_signer(key_file)
    (road.directory / "publishers.toml").write_text(
        f'mode = "enforce"\n[[publisher]]\nname = "bench"\n'
        f'is = ["{key_identity(KEY)}", "{ANONYMOUS}"]\nkeys = ["{signer.public_key()}"]\n'
        'classes = ["metricOutput"]\nsites = ["*"]\nhosts = ["*"]\n'
    )
    config = road.directory / "sam.toml"
    section = '[consumer]\npublishers = "publishers.toml"\n'
    config.write_text(config.read_text().replace("[consumer]\n", section))
    return signer
