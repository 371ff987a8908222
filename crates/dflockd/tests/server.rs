//! The real `dflockd` program over real sockets: protocol, leaving, hostile clients, options.

#[cfg(test)]
#[path = "server/daemon.rs"]
mod daemon;
#[cfg(test)]
#[path = "server/transcript.rs"]
mod transcript;

#[cfg(test)]
#[path = "server/clients.rs"]
mod clients;
#[cfg(test)]
#[path = "server/expiry.rs"]
mod expiry;
#[cfg(test)]
#[path = "server/fairness.rs"]
mod fairness;
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
#[path = "server/log.rs"]
mod log;
#[cfg(test)]
#[path = "server/owner.rs"]
mod owner;
#[cfg(test)]
#[path = "server/port.rs"]
mod port;
#[cfg(test)]
#[path = "server/protocol.rs"]
mod protocol;
#[cfg(test)]
#[path = "server/restart.rs"]
mod restart;
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
#[path = "server/start.rs"]
mod start;
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

/// A great many keys are so many times fewer.
#[cfg(test)]
const FEWER: usize = 1;

/// Locks are kept in its memory.
#[cfg(test)]
fn store() -> daemon::Store {
    daemon::Store::default()
}
