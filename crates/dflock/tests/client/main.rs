//! The real `dflock` program against the real `dflockd`: what a command under a lease sees and how it ends, what
//! scripts read, and how the servers are reached. With `DFLOCKD_TEST_STORE=etcd` in the environment, the servers keep
//! their locks there.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

mod ask;
mod blocked;
mod blocking;
mod cancel;
mod documents;
mod faults;
mod fronts;
mod kitchen;
mod lengths;
mod library;
mod loss;
mod other_programs;
mod program;
mod proxy;
mod python;
mod python_package;
mod race;
mod reach;
mod recipes;
mod run;
mod several;
mod shared;
mod terminal;
mod watch;
