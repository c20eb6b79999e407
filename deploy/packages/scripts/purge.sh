# Removal keeps configuration, state and spool, and which units are enabled. Only a purge deletes.
rm -rf @PURGED@
rm -f @LINKS@
