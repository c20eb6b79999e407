#!/bin/sh
# Boots systemd as the first process of new namespaces, on a copy of the files below ROOT:
#
#     unshare --mount --pid --uts --ipc --fork --kill-child \
#         boot.sh DIRECTORY GROUP ROOT [NAME=SHARED ...]
#
# DIRECTORY is an empty mount point. What is written is in memory and gone with the last process;
# only the control group GROUP remains. Each directory SHARED can be read at /mnt/NAME.
set -eu

if [ $# -ge 3 ]; then
    directory=$1 group=$2 root=$3
    shift 3
    mount -t tmpfs -o size=6g tmpfs "$directory"
    mkdir "$directory/upper" "$directory/work" "$directory/root" "$directory/group"
    # First into a group of its own, so that systemd sees nothing above it.
    mount -t cgroup2 cgroup2 "$directory/group"
    mkdir "$directory/group/$group"
    echo 0 >"$directory/group/$group/cgroup.procs"
    umount "$directory/group"
    # The lower files must not contain the upper ones, so those are not on the disk.
    layers="lowerdir=$root,upperdir=$directory/upper,workdir=$directory/work"
    mount -t overlay -o "$layers" overlay "$directory/root"
    mount -t tmpfs tmpfs "$directory/root/mnt"
    for share in "$@"; do
        mkdir "$directory/root/mnt/${share%%=*}"
        mount --bind -o ro "${share#*=}" "$directory/root/mnt/${share%%=*}"
    done
    exec unshare --cgroup "$0" "$directory/root"
fi

cd "$1"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for place in run tmp var/tmp dev; do
    mount -t tmpfs -o mode=1777 tmpfs $place
done
chmod 755 run dev
mkdir dev/pts dev/shm
chmod 1777 dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0:stdin 1:stdout 2:stderr; do
    ln -s "/proc/self/fd/${number%:*}" "dev/${number#*:}"
done
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
# A history of its own, and no package is newer than the installed one.
rm -rf var/log/journal var/lib/apt/lists/* var/cache/apt/*.bin
mkdir run/outside
pivot_root . run/outside
umount --lazy /run/outside
# As a systemd outside of containers leaves them: it mounts credentials from a namespace of its own.
mount --make-rshared /
# It may neither load modules into the kernel of this machine nor set its clock.
exec env --ignore-environment container=test PATH="$PATH" \
    setpriv --bounding-set=-sys_module,-sys_time \
    /lib/systemd/systemd --system --unit=basic.target --show-status=no </dev/null
