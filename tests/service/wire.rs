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
use testbed::{Ground, LIMIT, ended, own};

/// The program under test on descriptors 0, 1 and 2 of one connection, as inetd would.
pub(crate) struct Wire {
    ours: OwnedFd,
    child: Child,
}

/// How it ended.
pub(crate) struct Ending {
    pub(crate) said: String,
    pub(crate) status: ExitStatus,
}

impl Wire {
    pub(crate) fn on(ground: &Ground) -> Self {
        Self::start(ground.command())
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
        let length = loop {
            match (&stream).read(&mut packet) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read.expect("a packet in time"),
            }
        };
        String::from_utf8(packet[..length].to_vec()).expect("text")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the input, takes all that is still said, and waits for the end.
    pub(crate) fn finish(self) -> Ending {
        let _ = shutdown(self.ours.as_raw_fd(), Shutdown::Write);
        let mut said = String::new();
        loop {
            match self.receive() {
                packet if packet.is_empty() => break,
                packet => said += &packet,
            }
        }
        Ending { said, status: ended(self.child) }
    }

    /// Closes the connection without reading, and waits for the end.
    pub(crate) fn hang_up(self) -> ExitStatus {
        drop(self.ours);
        ended(self.child)
    }
}

/// Starts the program with both descriptors on one end of a stream; the other end.
pub(crate) fn on_stream(mut command: Command) -> (UnixStream, Child) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(LIMIT)).unwrap();
    ours.set_write_timeout(Some(LIMIT)).unwrap();
    let child = command.stdin(copy(&theirs)).stdout(copy(&theirs)).spawn().unwrap();
    (ours, child)
}

/// The memory that a process has needed at most, in KiB.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A connection's end as a descriptor for a child.
pub(crate) fn copy(stream: &UnixStream) -> Stdio {
    Stdio::from(OwnedFd::from(stream.try_clone().unwrap()))
}

/// One TCP connection on loopback: the client's end, and the end that inetd would hand over.
pub(crate) fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Starts the program on a TCP connection.
pub(crate) fn on_tcp(ground: &Ground, theirs: TcpStream) -> Child {
    let copy = Stdio::from(OwnedFd::from(theirs.try_clone().unwrap()));
    ground.command().stdin(copy).stdout(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap()
}

/// Takes a device for the test's own process, and hangs up.
pub(crate) fn locked(ground: &Ground, device: &str) {
    let wire = Wire::on(ground);
    wire.receive();
    assert!(wire.send(format!("lock {device} {}\n", own()).as_bytes()));
    assert_eq!(wire.receive(), "200 Command okay.\r\n");
    wire.hang_up();
}
