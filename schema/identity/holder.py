"""The present policy, which the sources and the sink of a consumer share."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.schema.identity.policy_file import load_policy
from sam_pipeline.schema.program.extras import how_to_install


class PolicyHolder:
    """Holds the policy of a file, or None if there is no file and everything is allowed."""

    def __init__(self, path: Optional[Path] = None) -> None:
        self.policy: Optional[Policy] = None
        self.file: Optional[Path] = None
        self.read(path)
        self.is_recorded = True
        """Whether the log of operations has that the policy was read again."""

    def read(self, path: Optional[Path]) -> None:
        """Read the policy again.

        Raises:
            ConfigError: the file has problems, or no signature could be verified; the present
                policy stays.
        """
        policy = load_policy(path) if path else None
        if policy and policy.keys and find_spec("nacl") is None:
            why = "its keys can't be used: PyNaCl is not installed"
            raise ConfigError([f"{path}: {why}", *how_to_install("nacl")])
        if policy or self.policy:
            self.is_recorded = False
        self.policy, self.file = policy, path
