#!/bin/sh
# Makes sure programs are there: apt-need.sh PROGRAM=PACKAGE...
#
# PROGRAM is a command or a path (a pattern will do). What is missing is installed by apt when this
# runs as root, else named. Nothing missing costs nothing: apt is not even asked.
set -eu

is_there() {
    case $1 in
    /*) for path in $1; do [ -e "$path" ] && return 0; done; return 1 ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

packages=
for need in "$@"; do
    is_there "${need%%=*}" || packages="$packages ${need#*=}"
done
[ -n "$packages" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "missing on this machine; install with: sudo apt-get install$packages" >&2
    exit 2
fi

# Debian starts a server as soon as it is installed. The tests start private ones instead.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
fi

echo "installing$packages"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends $packages >/dev/null; }
# The lists of a fresh machine are empty or old; those of others need no minute of update.
install 2>/dev/null || { apt-get update -q >/dev/null && install; }
