# A machine that vanishes without a word: a server on one side of a wire, a holder and a waiter on the
# other, and the wire is taken away. Run in network and pid namespaces of its own.
set -eu
ip link set lo up
unshare --net sleep 1000 & peer=$!
trap 'kill $peer $server $local $held $wanted 2>/dev/null' EXIT
server= local= held= wanted=
until [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add near type veth peer name far netns $peer
ip addr add 10.77.0.1/24 dev near; ip link set near up
there() { nsenter --net=/proc/$peer/ns/net "$@"; }
there ip addr add 10.77.0.2/24 dev far; there ip link set far up
dflockd --host 10.77.0.1 --read-timeout 10 2>/dev/null & server=$!
export DFLOCK_SERVERS=10.77.0.1
until dflock ping >/dev/null 2>&1; do sleep 0.05; done
dflock run wanted --read-timeout 10 -- sleep 1000 & local=$!
there dflock run held --ttl 1000 --read-timeout 10 -- sleep 1000 & held=$!
shows() { dflock stats | grep -q "$1"; }
until shows 'lock       held' && shows 'lock       wanted'; do sleep 0.05; done
there dflock run wanted --timeout 50 -- sleep 1000 & wanted=$!
until shows 'wanted .* 1 waiting'; do sleep 0.05; done
ip link set near down
# Its own address goes with the link.
ip addr add 10.77.0.1/32 dev lo
dflock run held -- echo the lock is free
until shows 'wanted .* 0 waiting'; do sleep 0.1; done
echo nobody waits
code=0; wait $held || code=$?; echo holder $code
code=0; wait $wanted || code=$?; echo waiter $code
