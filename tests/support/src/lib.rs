//! A small machine of its own for each test: private mounts, pids, network and host name, with
//! a private `/dev` of pseudo-terminals, a private `/run/lock`, users of its own, and real
//! programs run in it under hard time limits.
//!
//! ```no_run
//! use testbed::{Sandbox, User};
//! let sandbox = Sandbox::layout().port("ttyW0").link("modemW", "ttyW0").enter();
//! let holder = sandbox.sleeper(User::Alice);
//! println!("{}", holder.pid()); // as the sandbox counts pids
//! let end = sandbox.command("minicom").args(["-D", "/dev/ttyW0"]).run();
//! assert!(end.said("Welcome"), "{end}");
//! ```
//!
//! Everything in a sandbox ends with it, and a sandbox ends with the test, however the test
//! dies: its first process waits for the end of a pipe that only the test holds. Root makes it, or an
//! ordinary user in a user namespace.
//! Everything here panics when it cannot do its work: that is how a test fails.

mod client;
mod console;
mod corpus;
mod daemon;
pub mod dflockd;
mod ground;
mod harness;
pub mod local;
mod lots;
mod network;
mod package;
mod peers;
mod process;
mod programs;
mod sandbox;
mod service;
mod session;
mod signal;
mod syslog;
mod tcp;
mod terminal;
mod transcript;
mod until;
mod usage;

pub use client::Client;
pub use console::{Console, can_open};
pub use corpus::corpus;
pub use daemon::{CLOSING, Daemon, Holder, flock_is_held, many_descriptors, own, pause};
pub use ground::{Ground, ended, listing, make_old};
pub use harness::run_tests;
pub use lots::Lots;
pub use network::{connect_in, connect_to, in_network, network};
pub use package::Package;
pub use peers::{peer, shipped};
pub use process::{Command, End, Process, User, steps};
pub use programs::{example, library, program, script};
pub use sandbox::{LFPD, Layout, Sandbox};
pub use service::{LFP, SOCKET};
pub use session::Session;
pub use signal::signal;
pub use syslog::Syslog;
pub use tcp::TcpSocket;
pub use terminal::pseudo_terminal;
pub use transcript::{GONE, TRANSCRIPTS, Transcript, host};
pub use until::{LIMIT, comes, uninterrupted, until, until_every};
pub use usage::{cpu_ticks, status_kib};
