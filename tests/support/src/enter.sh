#!/bin/sh
# Furnishes the private namespaces of one sandbox, says "ready", and lives until its standard
# input ends. It is pid 1 in there: when it goes, whatever way the test died, everything goes.
# Arguments come in threes: link NAME TARGET, file NAME PATH, directory NAME PATH, lock MODE OWNER. Then it says "ports",
# and reads a line for each pseudo-terminal that the test has opened in /run/test/pts, "NUMBER NAME MODE", until "end".
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
directories="/run/lock /run/test/pids /run/test/pts $dev/pts $dev/shm"
links='' files=$dev/ppp lock_mode=1777 lock_owner=root:root
# Lines as in fstab(5), for one mount(8). Pseudo-terminals of its own, so that an ordinary user may give them owners of the
# sandbox. Enough of /dev/ppp for pppd to come as far as its lock.
mounts="devpts /run/test/pts devpts newinstance,ptmxmode=666,mode=620,gid=5
/dev/null $dev/ppp none bind
"
mount_all() {
    printf %s "$mounts" >/run/test/fstab
    mount --all --fstab /run/test/fstab
}
for node in null zero full random urandom; do
    files="$files $dev/$node"
    mounts="$mounts/dev/$node $dev/$node none bind
"
done
while [ $# -gt 0 ]; do
    place=/run/test/$2
    case $1 in
    link)
        links="$links $2 $3"
        case $2 in */*) directories="$directories $dev/${2%/*}" ;; esac
        ;;
    file)
        directories="$directories ${place%/*}"
        files="$files $place"
        ;;
    directory) directories="$directories $place" ;;
    lock)
        lock_mode=$2
        lock_owner=$3
        ;;
    esac
    case $1 in file | directory)
        mounts="$mounts$3 $place none bind
"
        ;;
    esac
    shift 3
done
# shellcheck disable=SC2086 # lists of names without blanks
mkdir -p $directories
chmod 1777 $dev/shm
for file in $files; do
    : >"$file"
done
mount_all
ln -s /proc/self/fd $dev/fd
# shellcheck disable=SC2086
set -- $links
while [ $# -gt 0 ]; do
    ln -s "$2" "$dev/$1"
    shift 2
done

echo ports
mounts=
while read -r number name mode && [ "$number" != end ]; do
    slave=/run/test/pts/$number
    chown root:20 "$slave"
    chmod "$mode" "$slave"
    case $name in */*) mkdir -p "$dev/${name%/*}" ;; esac
    : >"$dev/$name"
    mounts="$mounts$slave $dev/$name none bind
"
done

for name in passwd group hosts nsswitch.conf services subuid; do
    [ -e "/etc/$name" ] || continue
    mounts="$mounts/run/test/etc/$name /etc/$name none bind
"
done
mounts="$mounts$dev /dev none rbind
lock /run/lock tmpfs mode=$lock_mode
spool /var/spool tmpfs mode=755
log /var/log tmpfs mode=755
tmp /tmp tmpfs mode=1777
home /home tmpfs mode=755
"
mount_all
mkdir /var/log/mgetty /home/alice /home/bob
chown "$lock_owner" /run/lock
chown alice:alice /home/alice
chown bob:bob /home/bob
hostname testbed
# A documentation address (RFC 5737): without any but loopback's, getaddrinfo(3) with
# AI_ADDRCONFIG refuses even "127.0.0.1", and ser2net asks that way.
ip -batch - <<END
link set lo up
address add 192.0.2.1/32 dev lo
END
echo ready
# Not exec: the shell, as pid 1, must collect the orphans that programs leave.
cat >/dev/null
