//! `dflock` against a `dflockd` that keeps its locks in etcd: it notices nothing. What is tested is in
//! the files that the store in memory is tested with.

#[cfg(test)]
#[path = "../../dflockd/tests/etcd/cluster.rs"]
#[expect(dead_code, reason = "the tests of the server use all of it")]
mod cluster;
#[cfg(test)]
#[path = "../../dflockd/tests/server/daemon.rs"]
#[expect(dead_code, reason = "the tests of the server use all of it")]
mod daemon;
#[cfg(test)]
#[path = "client/program.rs"]
#[expect(dead_code, reason = "the other tests of the client use all of it")]
mod program;

#[cfg(test)]
#[path = "client/race.rs"]
mod race;
#[cfg(test)]
#[path = "client/run.rs"]
mod run;

/// The server, which is a package of its own.
#[cfg(test)]
fn dflockd() -> std::path::PathBuf {
    testbed::program("dflockd", "dflockd", &[])
}

/// Locks are kept in a service of their own on three members that all tests share.
#[cfg(test)]
fn store() -> daemon::Store {
    cluster::shared()
}
