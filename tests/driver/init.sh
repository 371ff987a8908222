#!/bin/busybox sh
# shellcheck shell=dash disable=SC2016,SC2094 # a script of its own; one terminal
# The first process of the virtual machine. What the host has, as the test's sandbox shows it, is here as well, to be
# read, and written over in memory. Then it runs the lines that the console says, one after another, and says "@@ CODE"
# after each.
set -e
busybox=/bin/busybox
$busybox mkdir -p /proc /host /over /root
$busybox mount -t proc proc /proc
for module in $($busybox cat /modules); do
    $busybox insmod "/lib/$module.ko"
done
$busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host
$busybox mount -t tmpfs over /over
$busybox mkdir /over/upper /over/work
$busybox mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work root /root
cd /root
$busybox mount -t proc proc proc
$busybox mount -t sysfs sysfs sys
$busybox mount -t tracefs tracefs sys/kernel/tracing
$busybox mount -t devtmpfs devices dev
$busybox mount -t tmpfs -o mode=1777 lock run/lock
$busybox mount -t tmpfs -o mode=1777 tmp tmp
$busybox ln -s /proc/self/fd dev/fd
exec $busybox chroot /root /bin/sh -c '
    stty -echo -onlcr
    mkfifo -m 666 /tmp/go
    exec 9<>/tmp/go
    printf "%s@ ready\n" @
    while read -r line; do
        (eval "$line") </dev/null 2>&1 9>&-
        printf "%s@ %s\n" @ $?
    done' <dev/ttyS0 >dev/ttyS0 2>&1
