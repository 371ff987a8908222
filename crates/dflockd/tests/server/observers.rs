//! Clients that watch a key over one server, whose holder is connected to another one.

use crate::watch::Watch;
use nix::sys::signal::Signal;
use testbed::dflockd::etcd::shared;
use testbed::dflockd::{Daemon, Store, fence, program_on};

fn daemon(store: &Store) -> Daemon {
    Daemon::run(program_on(store).args(["--port", "0"]))
}

/// Both tell the same, with the same tag; and what the other one held ends with its lease.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_leader_of_another_server_is_seen_until_its_lease_ends() {
    let store = shared();
    let (here, there) = (daemon(&store), daemon(&store));
    let (mut watcher, mut leader) = (here.talk(), there.talk());
    let free = watcher.look("k");
    watcher.watch(&format!("60 {}", free.tag));
    leader.value("10.0.0.1:80");
    let token = leader.take("k", "0 9");
    let seen = watcher.seen();
    assert_eq!((seen.value(), seen.held.as_ref().unwrap().0), ("10.0.0.1:80", fence(&token)));
    assert_eq!(there.talk().look("k"), seen);
    watcher.watch(&format!("60 {}", seen.tag));
    there.signal(Signal::SIGKILL);
    assert_eq!(watcher.seen(), free);
}
