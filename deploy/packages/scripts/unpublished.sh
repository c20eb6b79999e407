for spool in @SPOOL@; do
    messages=$(find "$spool" -type f -name '??????????????' 2>/dev/null | wc -l)
    [ "$messages" -eq 0 ] || echo "@NAME@: $spool has $messages unpublished messages: a removal keeps them, a purge deletes them"
done
