//! Connections in other networks, of any user.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns};
use nix::unistd::{Uid, setfsuid};

use crate::process::User;
use crate::sandbox::Sandbox;
use crate::until::{LIMIT, until};

/// The network of a process of the sandbox, 1 for the sandbox's own.
#[must_use]
pub fn network(sandbox: &Sandbox, pid: u32) -> PathBuf {
    sandbox.path(&format!("/proc/{pid}/ns/net"))
}

/// Does something with sockets that belong to that user.
///
/// # Panics
/// The work does.
pub(crate) fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    // A socket belongs to the file system uid of the thread that makes it.
    let alone = || {
        setfsuid(Uid::from_raw(uid));
        work()
    };
    std::thread::scope(|scope| scope.spawn(alone).join()).expect("the work of a user")
}

/// The same in another network.
///
/// # Panics
/// The test may not enter it, or the work panics.
pub fn in_network<T: Send>(network: PathBuf, uid: u32, work: impl FnOnce() -> T + Send) -> T {
    as_user(0, || {
        let network = File::open(network).expect("a network");
        setns(network, CloneFlags::CLONE_NEWNET).expect("entering it");
        as_user(uid, work)
    })
}

/// Both ends of a connection: a client of that user from one address, accepted at another.
///
/// # Panics
/// There is no such address.
#[must_use]
pub fn connect_in(sandbox: &Sandbox, address: &str, user: User) -> (TcpStream, OwnedFd) {
    let listen = if address.contains('.') { address } else { "::" };
    let own = network(sandbox, 1);
    let listener = in_network(own.clone(), 0, || TcpListener::bind((listen, 0)).unwrap());
    connect_to(own, listener, address, user)
}

/// The same from another network.
///
/// # Panics
/// The listener cannot be reached from there.
#[must_use]
pub fn connect_to(
    from: PathBuf,
    listener: TcpListener,
    address: &str,
    user: User,
) -> (TcpStream, OwnedFd) {
    let port = listener.local_addr().unwrap().port();
    let connect = || until(LIMIT, || TcpStream::connect((address, port)).ok());
    let client = in_network(from, user.uid(), connect).expect("a connection");
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    (client, listener.accept().unwrap().0.into())
}
