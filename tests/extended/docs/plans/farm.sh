#: place bare
#: needs farm rabbitmq
#: replace /cvmfs/probes.example.org => {farm}/cvmfs
#: replace /shared/probes => {farm}/shared
#: replace /var/tmp => {farm}/node
#: replace msg2.example.org:61613 => 127.0.0.1:1
#: write sh 1 release.sh
#: write sh 2 job.sh
#: write sh 3 shared.sh
#: write sh 4 end.sh
#: write sh 5 credentials.sh
#: write sh 6 monitoring.sh
plan=$PWD id=40011 read_only='mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
release() { (cd {farm} && rm -rf cvmfs && bash -euc "$(sed "s/msg1.example.org:61613/$1/" $plan/release.sh)"); }
script() { local text=$1; shift; unshare --mount sh -euc "$read_only" sh {farm}/cvmfs \
    setpriv --reuid=$id --regid=$id --clear-groups env -i -C / PATH=/usr/bin:/bin "$@" bash -euc "$text"; }
variables=$(grep ^export $plan/job.sh)
node() { local file=$plan/$1; shift; script "$variables"$'\n'"$(cat $file)" "$@"; }
waiting() { find {farm}/$1 -type f -regex '.*/[0-9a-f]*/[0-9a-f]*' | wc -l; }

# Results wait on the node until a later job of the account sends them
release 127.0.0.1:1
node job.sh
node end.sh
same $(waiting node) 2
node monitoring.sh
shows "SAM PUBLISHER OK - 2 messages in the spool"
release {rabbitmq}
node end.sh
same $(waiting node) 0
node job.sh PYTHONHOME=/nowhere PYTHONPATH=/nowhere > out
grep -q '^LOAD OK' out
same $(waiting node) 0

# In a shared directory
release 127.0.0.1:1
node job.sh SAM_PUBLISHER_SPOOL={farm}/shared/spool-$id
same $(waiting shared) 2
release {rabbitmq}
node shared.sh
shows "no problem found"
same $(waiting shared) 0

# The proxy certificate of a job is its login; others may not read it
openssl req -x509 -nodes -newkey rsa:2048 -subj /CN=job -keyout key -out certificate 2> /dev/null
cat certificate key > {farm}/x509up
chown $id {farm}/x509up
chmod 600 {farm}/x509up
node credentials.sh X509_USER_PROXY={farm}/x509up
chmod 644 {farm}/x509up
exits 78 node credentials.sh X509_USER_PROXY={farm}/x509up
