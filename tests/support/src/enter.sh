#!/bin/sh
# Furnishes the private namespaces of one sandbox, says "ready", and lives until its standard
# input ends. It is pid 1 in there: when it goes, whatever way the test died, everything goes.
# Arguments come in threes: link NAME TARGET, bring NAME PATH, lock MODE OWNER. Then it says "ports", and reads a line
# for each pseudo-terminal that the test has opened in /run/test/pts, "NUMBER NAME MODE", until "end".
set -eu

# First of all, everything that is bound from outside, before /dev and /tmp are hidden.
mount --make-rprivate /
# In a user namespace the host's root directory is nobody's: systemd-tmpfiles goes no way through it. Ours has all that
# is in there.
if [ ! -O / ]; then
    mount -t tmpfs -o mode=755 root /mnt
    for entry in /*; do
        if [ -L "$entry" ]; then
            cp -P "$entry" /mnt/
        elif [ -d "$entry" ] && [ "$entry" != /mnt ]; then
            mkdir "/mnt$entry"
            mount --rbind "$entry" "/mnt$entry"
        fi
    done
    cd /mnt
    pivot_root . .
    umount -l .
    cd /
fi
mount -t tmpfs -o mode=755 run /run
dev=/run/test/dev
mkdir -p /run/lock /run/test/pids $dev/pts $dev/shm
chmod 1777 $dev/shm
for node in null zero full random urandom; do
    : >"$dev/$node"
    mount --bind "/dev/$node" "$dev/$node"
done
# Pseudo-terminals of its own, so that an ordinary user may give them owners of the sandbox.
mkdir /run/test/pts
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts /run/test/pts
# Enough of /dev/ppp for pppd to come as far as its lock.
: >$dev/ppp
mount --bind /dev/null $dev/ppp
ln -s /proc/self/fd $dev/fd
lock_mode=1777
lock_owner=root:root
while [ $# -gt 0 ]; do
    case $1 in
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

echo ports
while read -r number name mode && [ "$number" != end ]; do
    slave=/run/test/pts/$number
    chown root:20 "$slave"
    chmod "$mode" "$slave"
    mkdir -p "$(dirname "$dev/$name")"
    : >"$dev/$name"
    mount --bind "$slave" "$dev/$name"
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
