//! The real program in a machine of its own, and TCP clients of any user in its network.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test program uses its own part of this"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::MsgFlags;
use nix::unistd::{Uid, setfsuid};
use testbed::{LIMIT, Layout, Process, Sandbox, User, receive, until};

/// Where the program is in there.
pub(crate) const LFPD: &str = "/run/test/lfpd";

/// A pid that no process can have.
pub(crate) const GONE: u32 = 99_999_999;

pub(crate) fn layout() -> Layout {
    Sandbox::layout().bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
}

/// The network of a process of the sandbox, 1 for the sandbox's own.
pub(crate) fn network(sandbox: &Sandbox, pid: u32) -> PathBuf {
    sandbox.path(&format!("/proc/{pid}/ns/net"))
}

/// Does something in another network, with sockets that belong to that user.
pub(crate) fn inside<T: Send + 'static>(
    network: PathBuf,
    uid: u32,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || {
        let network = File::open(network).expect("a network");
        setns(network, CloneFlags::CLONE_NEWNET).expect("entering it");
        // A socket belongs to the file system uid of the thread that makes it.
        setfsuid(Uid::from_raw(uid));
        work()
    });
    thread.join().expect("the work in the other network")
}

/// Both ends of a connection: a client of that user from one address, accepted at another.
pub(crate) fn connect(sandbox: &Sandbox, address: &str, user: User) -> (TcpStream, OwnedFd) {
    let listen = if address.contains('.') { address } else { "::" }.to_owned();
    let own = network(sandbox, 1);
    let listener = inside(own.clone(), 0, move || TcpListener::bind((listen.as_str(), 0)).unwrap());
    connect_to(own, listener, address, user)
}

/// The same from another network.
pub(crate) fn connect_to(
    from: PathBuf,
    listener: TcpListener,
    address: &str,
    user: User,
) -> (TcpStream, OwnedFd) {
    let to = (address.to_owned(), listener.local_addr().unwrap().port());
    let client = inside(from, user.uid(), move || {
        until(LIMIT, || TcpStream::connect((to.0.as_str(), to.1)).ok()).expect("a connection")
    });
    client.set_read_timeout(Some(LIMIT)).unwrap();
    (client, listener.accept().unwrap().0.into())
}

/// A conversation over TCP.
pub(crate) struct Talk<'a> {
    pub(crate) stream: BufReader<TcpStream>,
    pub(crate) process: Process<'a>,
}

impl<'a> Talk<'a> {
    /// Starts the program as that user on a connection.
    pub(crate) fn start(
        sandbox: &'a Sandbox,
        server: User,
        options: &[&str],
        (client, theirs): (TcpStream, OwnedFd),
    ) -> Self {
        let process =
            sandbox.command(LFPD).args(options).user(server).on_connection(theirs).spawn();
        Self { stream: BufReader::new(client), process }
    }

    /// The next line, or nothing at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line in time");
        line
    }

    /// Says something and returns the code of the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let line = format!("{line}\r\n");
        self.stream.get_mut().write_all(line.as_bytes()).expect("a listener");
        let mut reply = self.line();
        reply.truncate(3);
        reply
    }
}

/// A daemon on a Unix socket in the sandbox.
pub(crate) const SOCKET: &str = "/run/lfpd.sock";

pub(crate) fn daemon<'a>(sandbox: &'a Sandbox, options: &[&str]) -> Process<'a> {
    let listen = format!("unix:{SOCKET}");
    let words = ["--listen", &listen].into_iter().chain(options.iter().copied());
    let process = sandbox.command(LFPD).args(words).spawn();
    let up = || std::os::unix::net::UnixStream::connect(sandbox.path(SOCKET)).ok();
    assert!(until(LIMIT, up).is_some(), "lfpd does not listen");
    process
}

/// What the daemon answers to one line of a user's, said by a program that ends with it.
pub(crate) fn answer(sandbox: &Sandbox, user: User, line: &str) -> String {
    let words = ["-t5", "-", &format!("UNIX-CONNECT:{SOCKET}")];
    let mut client = sandbox.command("socat").args(words).user(user).spawn();
    client.expect("220 ");
    client.type_in(&format!("{line}\n"));
    client.type_in("quit\n");
    client.expect("221 ");
    let output = client.output();
    let codes: Vec<&str> = output.lines().filter_map(|line| line.get(..3)).collect();
    codes.get(1).map(|code| (*code).to_owned()).unwrap_or_default()
}

/// A process of a user's.
pub(crate) fn sleeper(sandbox: &Sandbox, user: User) -> Process<'_> {
    sandbox.command("sleep").arg("1000").user(user).spawn()
}

/// The sandbox's syslog: `/dev/log`, read by the test.
pub(crate) struct Syslog(UnixDatagram);

impl Syslog {
    pub(crate) fn open(sandbox: &Sandbox) -> Self {
        let path = sandbox.path("/dev/log");
        let socket = UnixDatagram::bind(&path).expect("/dev/log");
        let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, anybody).expect("its mode");
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self(socket)
    }

    /// The next line as it came.
    pub(crate) fn raw(&self) -> Vec<u8> {
        let mut line = vec![0; 65536];
        let length = receive(&self.0, &mut line).expect("a line in time");
        line.truncate(length);
        line
    }

    /// The next line without priority and pid.
    pub(crate) fn line(&self) -> String {
        let raw = String::from_utf8(self.raw()).expect("text");
        let (_, line) = raw.split_once("]: ").unwrap_or_else(|| panic!("{raw:?}"));
        line.to_owned()
    }

    /// Whether nothing has come. To be asked when the service has ended, so that nothing can.
    pub(crate) fn silent(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        nix::sys::socket::recv(self.0.as_raw_fd(), &mut [0; 1], flags).is_err()
    }
}
