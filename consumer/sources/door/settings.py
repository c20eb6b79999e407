"""What all doors of a consumer share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sam_pipeline.consumer.door_config import DoorConfig
from sam_pipeline.consumer.process.listening import Listeners
from sam_pipeline.consumer.sources.door.credentials import Credentials
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.schema.messages.foreign import Stamp


@dataclass(frozen=True)
class DoorSettings:
    """The settings, and what decides over a message as it arrives."""

    config: DoorConfig
    max_message_bytes: int
    buffer_bytes: int
    listeners: Listeners
    credentials: Credentials = field(default_factory=Credentials)
    signatures: SignatureCheck = field(default_factory=SignatureCheck)
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    """By destination, the headers for messages that lack them."""
