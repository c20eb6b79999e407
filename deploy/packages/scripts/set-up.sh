[ ! -e /usr/lib/sysusers.d/@NAME@.conf ] || systemd-sysusers @NAME@.conf
[ ! -e /usr/lib/tmpfiles.d/@NAME@.conf ] || systemd-tmpfiles --create @NAME@.conf
