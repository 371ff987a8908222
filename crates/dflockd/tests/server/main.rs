//! The real `dflockd` program over real sockets: protocol, leaving, hostile clients, options. With
//! `DFLOCKD_TEST_STORE=etcd` in the environment, it keeps its locks there.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

mod clients;
mod cut_off;
mod fairness;
mod framing;
mod history;
mod hostile;
mod log;
mod protocol;
mod restart;
mod security;
mod several;
mod shared;
mod start;
mod stop;
mod together;
mod transcript;
mod watch;

/// A great many keys are so many times fewer where one client makes some hundred a second.
fn fewer() -> usize {
    if testbed::dflockd::is_on_etcd() { 20 } else { 1 }
}
