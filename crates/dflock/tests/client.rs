//! The real `dflock` program against the real `dflockd`: what a command under a lease sees and how it ends, what
//! scripts read, and how the servers are reached.

#[cfg(test)]
#[path = "../../dflockd/tests/server/daemon.rs"]
#[expect(dead_code, reason = "the tests of the server use all of it")]
mod daemon;
#[cfg(test)]
#[path = "../../dflockd/tests/server/port.rs"]
mod port;
#[cfg(test)]
#[path = "client/program.rs"]
mod program;

#[cfg(test)]
#[path = "client/ask.rs"]
mod ask;
#[cfg(test)]
#[path = "client/blocked.rs"]
mod blocked;
#[cfg(test)]
#[path = "client/blocking.rs"]
mod blocking;
#[cfg(test)]
#[path = "client/cancel.rs"]
mod cancel;
#[cfg(test)]
#[path = "client/documents.rs"]
mod documents;
#[cfg(test)]
#[path = "client/faults.rs"]
mod faults;
#[cfg(test)]
#[path = "client/library.rs"]
mod library;
#[cfg(test)]
#[path = "client/loss.rs"]
mod loss;
#[cfg(test)]
#[path = "client/proxy.rs"]
mod proxy;
#[cfg(test)]
#[path = "client/python.rs"]
mod python;
#[cfg(test)]
#[path = "client/race.rs"]
mod race;
#[cfg(test)]
#[path = "client/reach.rs"]
mod reach;
#[cfg(test)]
#[path = "client/recipes.rs"]
mod recipes;
#[cfg(test)]
#[path = "client/run.rs"]
mod run;
#[cfg(test)]
#[path = "client/several.rs"]
mod several;
#[cfg(test)]
#[path = "client/shared.rs"]
mod shared;
#[cfg(test)]
#[path = "client/terminal.rs"]
mod terminal;
#[cfg(test)]
#[path = "client/watch.rs"]
mod watch;

/// The server, which is a package of its own.
#[cfg(test)]
fn dflockd() -> std::path::PathBuf {
    testbed::program("dflockd", "dflockd", &[])
}

/// Locks are kept in its memory.
#[cfg(test)]
fn store() -> daemon::Store {
    daemon::Store::default()
}
