//! The HTTP side of the real `dflockd`: every path, numbers, rights, hostile clients, the page in a real browser, and
//! what is installed for others to read. With `DFLOCKD_TEST_STORE=etcd` in the environment, locks are kept there; with
//! `DFLOCKD_TEST_STORE=state-dir`, in a directory.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

mod admin;
mod browser;
mod deployment;
mod driver;
mod generated;
mod guard;
mod hostile;
mod limits;
mod locks;
mod metrics;
mod paths;
mod reference;
mod restart;
mod sessions;
mod site;
mod strangers;

/// Keys of a great table.
fn great() -> usize {
    if testbed::dflockd::is_on_etcd() { 5000 } else { 50_000 }
}
