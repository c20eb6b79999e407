"""When the certificates of the daemon expire."""

from __future__ import annotations

from collections.abc import Iterator

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.net.certificate import CertificateLife, lives_of


def certificate_lives(config: ConsumerConfig) -> Iterator[CertificateLife]:
    """The certificates that the configuration names; without files that can't be read."""
    ours = [config.certificate_file, config.door.certificate_file, config.metrics_certificate_file]
    ours += [table.certificate_file for table in config.broker]
    authorities = [config.ca_file, config.door.client_ca_file]
    authorities += [table.ca_file for table in config.broker]
    return lives_of(ours, authorities)
