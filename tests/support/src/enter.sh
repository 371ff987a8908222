#!/bin/sh
# Furnishes the private namespaces of one sandbox, says "ready", and lives until its standard
# input ends. It is pid 1 in there: when it goes, whatever way the test died, everything goes.
# Arguments come in threes: port NAME SLAVE, link NAME TARGET, bring NAME PATH, lock MODE OWNER.
set -eu

# First of all, everything that is bound from outside, before /dev and /tmp are hidden.
mount --make-rprivate /
mount -t tmpfs -o mode=755 run /run
dev=/run/test/dev
mkdir -p /run/lock /run/test/pids $dev/pts $dev/shm
chmod 1777 $dev/shm
for node in null zero full random urandom; do
    : >"$dev/$node"
    mount --bind "/dev/$node" "$dev/$node"
done
# Enough of /dev/ppp for pppd to come as far as its lock.
: >$dev/ppp
mount --bind /dev/null $dev/ppp
ln -s /proc/self/fd $dev/fd
lock_mode=1777
lock_owner=root:root
while [ $# -gt 0 ]; do
    case $1 in
    port)
        mkdir -p "$(dirname "$dev/$2")"
        : >"$dev/$2"
        mount --bind "$3" "$dev/$2"
        ;;
    link)
        mkdir -p "$(dirname "$dev/$2")"
        ln -s "$3" "$dev/$2"
        ;;
    bring)
        mkdir -p "$(dirname "/run/test/$2")"
        if [ -d "$3" ]; then mkdir "/run/test/$2"; else : >"/run/test/$2"; fi
        mount --bind "$3" "/run/test/$2"
        ;;
    lock)
        lock_mode=$2
        lock_owner=$3
        ;;
    esac
    shift 3
done

for name in passwd group hosts nsswitch.conf services; do
    mount --bind "/run/test/etc/$name" "/etc/$name"
done
mount --rbind $dev /dev
mount -t tmpfs -o "mode=$lock_mode" lock /run/lock
chown "$lock_owner" /run/lock
mount -t tmpfs -o mode=755 spool /var/spool
mount -t tmpfs -o mode=755 log /var/log
mkdir /var/log/mgetty
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=755 home /home
for user in alice bob; do
    mkdir "/home/$user"
    chown "$user:$user" "/home/$user"
done
hostname testbed
ip link set lo up
# A documentation address (RFC 5737): without any but loopback's, getaddrinfo(3) with
# AI_ADDRCONFIG refuses even "127.0.0.1", and ser2net asks that way.
ip address add 192.0.2.1/32 dev lo
echo ready
# Not exec: the shell, as pid 1, must collect the orphans that programs leave.
cat >/dev/null
