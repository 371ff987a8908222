//! The service as a program: sessions as inetd starts them, the daemon, and what each user may do. The name of a module
//! begins with the part of the service that it tests.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails where it stands"
)]

mod machine;
mod wire;

mod exclusive_ports;
mod extension_pass;
mod extension_status;
mod fcntl_locks;
mod gate;
mod granted;
mod holder_identity;
mod listen_service;
mod peer_identity;
mod race_lock;
mod session_journal;
mod session_process;
mod superservers;
mod wait_order;
mod watch_opens;
