"""The publisher's own spool: its bound, its count, its inspection."""
