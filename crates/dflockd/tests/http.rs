//! The HTTP side of the real `dflockd`: every path, numbers, rights, hostile clients, and the page in a real
//! browser.

#[cfg(test)]
#[expect(dead_code, reason = "the tests of the lock protocol use more of it")]
#[path = "server/daemon.rs"]
mod daemon;
#[cfg(test)]
#[path = "server/port.rs"]
mod port;
#[cfg(test)]
#[path = "http/site.rs"]
mod site;

#[cfg(test)]
#[path = "http/driver.rs"]
mod driver;

#[cfg(test)]
#[path = "http/admin.rs"]
mod admin;
#[cfg(test)]
#[path = "http/browser.rs"]
mod browser;
#[cfg(test)]
#[path = "http/curl.rs"]
mod curl;
#[cfg(test)]
#[path = "http/guard.rs"]
mod guard;
#[cfg(test)]
#[path = "http/hostile.rs"]
mod hostile;
#[cfg(test)]
#[path = "http/metrics.rs"]
mod metrics;
#[cfg(test)]
#[path = "http/paths.rs"]
mod paths;
#[cfg(test)]
#[path = "http/strangers.rs"]
mod strangers;

/// The program under test.
#[cfg(test)]
fn dflockd() -> &'static str {
    env!("CARGO_BIN_EXE_dflockd")
}

/// Keys of a great table.
#[cfg(test)]
const GREAT: usize = 50_000;
/// Less than this a server may grow while it gives an answer of twelve megabytes.
#[cfg(test)]
const ROOM_KIB: Option<u64> = Some(4096);

/// Locks are kept in its memory.
#[cfg(test)]
fn store() -> daemon::Store {
    daemon::Store::default()
}
