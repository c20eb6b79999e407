"""Who sent a message, and what they may send: identities, signatures, the policy."""
