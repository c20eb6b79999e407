"""HTTP clients of a door that repeat each message, with its id, until it is answered 2xx.

poster = Poster(Door("door", port), destination, senders.ledger)
with sending([*senders.kinds, *poster.kinds], senders.ledger, seed):
    ...
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from sam_pipeline.schema.messages.message import DESTINATION, Message
from sam_pipeline.schema.spool.element import serialise
from tests.soak.senders import END_S, Kind, Ledger
from tests.support.conservation import FIRST_TIMESTAMP, keys_of, numbered
from tests.support.consumer.door import COMMITTED, PATH, REPEAT, STORED, WITH_RETRY_AFTER, Door
from tests.support.http_client import LINES, NO_ANSWER, TEXT, HttpAnswer, HttpClient

PAUSE_S = 0.4
RECORDS = 5
"""Of a message that is posted alone."""
BAD_EVERY = 4
"""Every n-th of these messages has a record whose status does not exist."""
HANGS_UP_EVERY = 6
"""Every n-th of them is also sent once by a client that does not wait for the answer."""
MESSAGES = 20
"""Of a request with many messages."""


@dataclass(frozen=True)
class Poster:
    """The clients of one door. A message names its destination, for a broker behind the door.

    The methods that are iterators send a request at each step, and repeat it if necessary.
    """

    door: Door
    destination: str
    ledger: Ledger
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    first_timestamp: int = FIRST_TIMESTAMP

    @property
    def kinds(self) -> list[Kind]:
        name = self.door.name
        steps = {f"{name}, messages": self.singles, f"{name}, batches": self.batches}
        return [Kind(*item, PAUSE_S) for item in steps.items()]

    def singles(self, chance: random.Random) -> Iterator[None]:
        """A message of some records per request, whose answer counts them."""
        with self.door.client() as client:
            for number in count():
                bad = int(number % BAD_EVERY == BAD_EVERY - 1)
                numbers = range(number * RECORDS, (number + 1) * RECORDS)
                good = self._numbered("single", numbers[: RECORDS - bad])
                wrong = self._numbered("single", numbers[len(good) :], metricStatus="SPLENDID")
                body = b"".join(record.body for record in [*good, *wrong])
                self.ledger.bad.update(key for record in wrong for key in keys_of(record.body))
                self.ledger.uncertain.update(keys_of(body))
                path, message_id = f"{PATH}/metricOutput", good[0].message_id
                headers = {"Sam_Message_Id": message_id, "Sam_Destination": self.destination}
                if number % HANGS_UP_EVERY == HANGS_UP_EVERY - 1:
                    client.post_and_hang_up(path, body, **headers)
                answer = self._until_stored(client, path, body, **headers)
                self.ledger.accepted.update(keys_of(body))
                if answer.status == COMMITTED:
                    outcome = answer.document
                    assert outcome["messageId"] == message_id, outcome
                    assert outcome["rows"] + outcome["duplicates"] == len(good), outcome
                    assert len(outcome["deadLetters"]) == bad, outcome
                yield

    def batches(self, chance: random.Random) -> Iterator[None]:
        """Many messages per request; those whose line is missing or not 2xx are repeated."""
        with self.door.client() as client:
            for start in count(step=MESSAGES):
                messages = self._numbered("line", range(start, start + MESSAGES))
                waiting = {message.message_id: message for message in messages}
                self.ledger.uncertain.update(key for m in messages for key in keys_of(m.body))
                deadline = time.monotonic() + END_S
                while waiting:
                    assert time.monotonic() < deadline, f"not stored: {waiting}"
                    body = b"\n".join(map(self._element, waiting.values())) + b"\n"
                    lines = self._until_stored(client, PATH, body, LINES).lines
                    assert [line["messageId"] for line in lines] == [*waiting][: len(lines)], lines
                    for line in lines:
                        assert line["status"] in (*STORED, *REPEAT), line
                        if line["status"] in STORED:
                            message = waiting.pop(line["messageId"])
                            self.ledger.accepted.update(keys_of(message.body))
                    if waiting:
                        time.sleep(PAUSE_S)
                yield

    def _numbered(self, kind: str, numbers: Iterable[int], **changes: str) -> list[Message]:
        prefix = f"{self.prefix}{self.door.name}{kind}"
        return numbered(prefix, numbers, self.first_timestamp, **changes)

    def _element(self, message: Message) -> bytes:
        return serialise(Message({**message.headers, DESTINATION: self.destination}, message.body))

    def _until_stored(
        self, client: HttpClient, path: str, body: bytes, content_type: str = TEXT, **headers: str
    ) -> HttpAnswer:
        """Post until the answer is 2xx; fail if it is an error of the message."""
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            try:
                answer = client.post(path, body, content_type, **headers)
            except NO_ANSWER:
                self.ledger.answers[f"{self.door.name}, no answer"] += 1
            else:
                self.ledger.answers[f"{self.door.name}, {answer.status}"] += 1
                if answer.status in STORED:
                    return answer
                assert answer.status in REPEAT, answer
                assert answer.status not in WITH_RETRY_AFTER or "retry-after" in answer.headers
            time.sleep(PAUSE_S)
        raise AssertionError(f"the {self.door.name} stored nothing for {END_S:g} s")
