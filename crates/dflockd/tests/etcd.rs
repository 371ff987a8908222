//! The store on etcd, with three real members: every table and conversation that the store in memory
//! is tested with, and what only this store must bear.
#![cfg(feature = "etcd")]

#[cfg(test)]
#[path = "etcd/check.rs"]
mod check;
#[cfg(test)]
#[path = "etcd/cluster.rs"]
mod cluster;
#[cfg(test)]
#[path = "server/daemon.rs"]
mod daemon;
#[cfg(test)]
#[path = "etcd/tenure.rs"]
mod tenure;
#[cfg(test)]
#[path = "server/transcript.rs"]
mod transcript;

#[cfg(test)]
#[path = "http/admin.rs"]
mod admin;
#[cfg(test)]
#[path = "server/clients.rs"]
mod clients;
#[cfg(test)]
#[path = "http/curl.rs"]
mod curl;
#[cfg(test)]
#[path = "server/expiry.rs"]
mod expiry;
#[cfg(test)]
#[path = "server/fairness.rs"]
mod fairness;
#[cfg(test)]
#[path = "etcd/faults.rs"]
mod faults;
#[cfg(test)]
#[path = "server/framing.rs"]
mod framing;
#[cfg(test)]
#[path = "server/history.rs"]
mod history;
#[cfg(test)]
#[path = "server/hostile.rs"]
mod hostile;
#[cfg(test)]
#[path = "http/hostile.rs"]
mod http_hostile;
#[cfg(test)]
#[path = "etcd/journal.rs"]
mod journal;
#[cfg(test)]
#[path = "etcd/leader.rs"]
mod leader;
#[cfg(test)]
#[path = "http/metrics.rs"]
mod metrics;
#[cfg(test)]
#[path = "etcd/model.rs"]
mod model;
#[cfg(test)]
#[path = "etcd/moves.rs"]
mod moves;
#[cfg(test)]
#[path = "etcd/observers.rs"]
mod observers;
#[cfg(test)]
#[path = "server/owner.rs"]
mod owner;
#[cfg(test)]
#[path = "http/paths.rs"]
mod paths;
#[cfg(test)]
#[path = "server/port.rs"]
mod port;
#[cfg(test)]
#[path = "server/protocol.rs"]
mod protocol;
#[cfg(test)]
#[path = "etcd/reach.rs"]
mod reach;
#[cfg(test)]
#[path = "etcd/report.rs"]
mod report;
#[cfg(test)]
#[path = "server/security.rs"]
mod security;
#[cfg(test)]
#[path = "server/several.rs"]
mod several;
#[cfg(test)]
#[path = "server/shared.rs"]
mod shared;
#[cfg(test)]
#[path = "http/site.rs"]
mod site;
#[cfg(test)]
#[path = "etcd/together.rs"]
mod together;

#[cfg(test)]
#[path = "http/strangers.rs"]
mod strangers;

#[cfg(test)]
#[path = "server/stop.rs"]
mod stop;
#[cfg(test)]
#[path = "server/watch.rs"]
mod watch;

/// The program under test.
#[cfg(test)]
fn dflockd() -> &'static str {
    env!("CARGO_BIN_EXE_dflockd")
}

/// A great many keys are so many times fewer: one client makes some hundred a second here.
#[cfg(test)]
const FEWER: usize = 20;

/// Keys of a great table.
#[cfg(test)]
const GREAT: usize = 5000;
/// How much a server may grow while it gives a long answer is not told here: what came from etcd
/// in one piece, its whole table now and then, is larger than any answer.
#[cfg(test)]
const ROOM_KIB: Option<u64> = None;

/// Locks are kept in a service of their own on three members that all tests share.
#[cfg(test)]
fn store() -> daemon::Store {
    cluster::shared()
}
