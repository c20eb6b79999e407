#!/bin/sh
# The last step of mmdebstrap: fills REPOSITORY with PACKAGES and all that they depend on, and makes
# that the only place from which the new Debian, whose files are below $1, installs packages.
set -eu
mkdir "$REPOSITORY"
# shellcheck disable=SC2086
APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get install -qq --download-only \
    -o "Dir::Cache::archives=$REPOSITORY" $PACKAGES >/dev/null
cd "$REPOSITORY"
rm -r partial lock
dpkg-scanpackages --multiversion . 2>/dev/null >Packages

cd "$1"
rm -f etc/apt/sources.list.d/* etc/apt/apt.conf.d/99mmdebstrap
echo 'deb [trusted=yes] file:/mnt/debian ./' >etc/apt/sources.list
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' >etc/hosts
# On a first boot, systemd enables the units of all packages.
systemd-machine-id-setup --root=. 2>/dev/null
# Their timers would take the lock of apt away from a test.
systemctl --quiet --root=. mask apt-daily.timer apt-daily-upgrade.timer
