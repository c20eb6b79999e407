"""The present policy, which the sources and the sink of a consumer share."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.schema.identity.policy_file import load_policy


class PolicyHolder:
    """Holds the policy of a file, or None if there is no file and everything is allowed."""

    def __init__(self, path: Optional[Path] = None) -> None:
        self.policy: Optional[Policy] = None
        self.read(path)

    def read(self, path: Optional[Path]) -> None:
        """Read the policy again.

        Raises:
            ConfigError: the file has problems; the present policy stays.
        """
        self.policy = load_policy(path) if path else None
