"""When the certificates of the daemon expire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.net.certificate import validities

DAY = timedelta(days=1)


@dataclass(frozen=True)
class CertificateLife:
    """A file of certificates, and from when until when it can be used."""

    file: str
    begin: datetime
    end: datetime

    def days_left(self, now: datetime) -> float:
        """The days until it expires, negative after that."""
        return (self.end - now) / DAY

    @property
    def days(self) -> float:
        """The days of its whole life."""
        return (self.end - self.begin) / DAY


def certificate_lives(config: ConsumerConfig) -> Iterator[CertificateLife]:
    """The certificates that the configuration names; without files that can't be read.

    Of ours and their signers, the first to expire counts; of several authorities, the last.
    """
    ours = [config.certificate_file, config.door.certificate_file, config.metrics_certificate_file]
    ours += [table.certificate_file for table in config.broker]
    authorities = [config.ca_file, config.door.client_ca_file]
    authorities += [table.ca_file for table in config.broker]
    lives = [(path, min) for path in ours] + [(path, max) for path in authorities]
    for path, choose in dict.fromkeys(lives):
        if path and (found := validities(path)):
            chosen = choose(found, key=lambda validity: validity.end)
            yield CertificateLife(str(path), chosen.begin, chosen.end)
