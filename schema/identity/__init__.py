"""Who sent a message, and what they may say: identities, signatures, the policy."""
