"""Whether a lost session with a broker can be opened again without anybody's help."""

from __future__ import annotations

import re
from ssl import SSLCertVerificationError

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.stomp_session import SessionLost
from sam_pipeline.schema.net.tunnel import ProxyRefused

LOGIN_REFUSED = re.compile(
    r"password is invalid|unable to validate user|security error|access refused|not authori[sz]ed",
    re.IGNORECASE,
)
"""How ActiveMQ, Artemis and RabbitMQ refuse a login."""


def needs_action(loss: SessionLost) -> bool:
    """Whether someone must act: on a login, a certificate, a proxy or the configuration."""
    if isinstance(loss.__cause__, (ConfigError, SSLCertVerificationError, ProxyRefused)):
        return True
    return loss.by_error and LOGIN_REFUSED.search(str(loss)) is not None
