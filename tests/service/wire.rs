//! The real program on a connection whose packets stay what they are: one send, one read.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};

use lfpd::limits::READ_BYTES;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, send, shutdown, socketpair,
};
use testbed::{Ground, LIMIT, ended, own, uninterrupted};

/// The answer to a command that was obeyed.
pub(crate) const DONE: &str = "200 Command okay.";

/// The answer if another process has the device.
pub(crate) const BUSY: &str = "450 : File busy";

/// The program under test on descriptors 0, 1 and 2 of one connection, as inetd would.
pub(crate) struct Wire {
    ours: OwnedFd,
    child: Child,
}

impl Wire {
    pub(crate) fn on(ground: &Ground) -> Self {
        Self::start(ground.command())
    }

    /// The same, after the greeting.
    pub(crate) fn greeted(ground: &Ground) -> Self {
        let wire = Self::on(ground);
        assert!(wire.receive().starts_with("220 "));
        wire
    }

    pub(crate) fn start(mut command: Command) -> Self {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .unwrap();
        let copy = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        command.stdin(copy(&theirs)).stdout(copy(&theirs)).stderr(copy(&theirs));
        let child = command.spawn().expect("lfpd");
        Self { ours, child }
    }

    /// Sends one packet, or more when it is larger than what the service reads at once. False
    /// when nobody is there to take it.
    pub(crate) fn send(&self, packet: &[u8]) -> bool {
        let send = |piece| send(self.ours.as_raw_fd(), piece, MsgFlags::MSG_NOSIGNAL);
        packet.chunks(READ_BYTES).all(|piece| send(piece).is_ok())
    }

    /// The next packet, or nothing at the end.
    pub(crate) fn receive(&self) -> String {
        let stream = UnixStream::from(self.ours.try_clone().unwrap());
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut packet = [0; 4096];
        let length = read_some(&stream, &mut packet);
        String::from_utf8(packet[..length].to_vec()).expect("text")
    }

    /// Sends one line, and returns the answer without its end.
    pub(crate) fn ask(&self, line: &str) -> String {
        assert!(self.send(format!("{line}\r\n").as_bytes()));
        self.receive().trim_end().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the input and waits for the end. Returns what was still said, and the exit code.
    pub(crate) fn finish(self) -> (String, Option<i32>) {
        let _ = shutdown(self.ours.as_raw_fd(), Shutdown::Write);
        let mut said = String::new();
        loop {
            match self.receive() {
                packet if packet.is_empty() => break,
                packet => said += &packet,
            }
        }
        (said, ended(self.child).code())
    }

    /// Closes the connection without reading, and waits for the end.
    pub(crate) fn hang_up(self) -> ExitStatus {
        drop(self.ours);
        ended(self.child)
    }
}

/// Starts the program with descriptors 0 and 1 on one end of a stream, and returns the other end.
pub(crate) fn on_stream(command: Command) -> (UnixStream, Child) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(LIMIT)).unwrap();
    ours.set_write_timeout(Some(LIMIT)).unwrap();
    (ours, on_connection(command, theirs))
}

/// Starts the program with descriptors 0 and 1 on this connection, as inetd would.
pub(crate) fn on_connection(mut command: Command, theirs: impl Into<OwnedFd>) -> Child {
    let theirs = theirs.into();
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs).spawn().unwrap()
}

/// What comes next, at most as much as there is room for.
pub(crate) fn read_some(mut stream: impl Read, room: &mut [u8]) -> usize {
    uninterrupted(|| stream.read(room)).expect("something in time")
}

/// One TCP connection on loopback: the client's end, and the end that inetd would hand over.
pub(crate) fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Takes a device for the test's own process, and hangs up.
pub(crate) fn locked(ground: &Ground, device: &str) {
    let wire = Wire::greeted(ground);
    assert_eq!(wire.ask(&format!("lock {device} {}", own())), DONE);
    // The lock is the process's, not the connection's.
    assert_eq!(wire.hang_up().code(), Some(0));
    assert!(ground.locks().contains(&format!("LCK..{device}")));
}
