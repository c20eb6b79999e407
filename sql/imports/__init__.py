"""What arrives as files instead of messages: history, tables, exports of GOCDB."""
