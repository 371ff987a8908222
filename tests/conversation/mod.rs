//! Golden conversations (`tests/transcripts`), and the real program on a connection of the test.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test program uses its own part of this"
)]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use lfpd::limits::READ_BYTES;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, send, shutdown, socketpair,
};
use testbed::{LIMIT, until};

/// A pid that no process can have: above the kernel's `pid_max` (at most 2^22), below `pid_t`'s.
pub(crate) const GONE: i32 = 99_999_999;

/// The conversations, by name.
pub(crate) const TRANSCRIPTS: [(&str, &str); 6] = [
    ("memo", include_str!("../transcripts/memo.txt")),
    ("rxtx", include_str!("../transcripts/rxtx.txt")),
    ("grammar", include_str!("../transcripts/grammar.txt")),
    ("refusals", include_str!("../transcripts/refusals.txt")),
    ("telnet", include_str!("../transcripts/telnet.txt")),
    ("hostile", include_str!("../transcripts/hostile.txt")),
];

/// What is said, in order.
#[derive(Clone, Debug)]
pub(crate) struct Transcript {
    /// The greeting, with its end.
    pub(crate) greeting: String,
    /// Each line of the client, as bytes, and the reply to it.
    pub(crate) turns: Vec<(Vec<u8>, String)>,
}

impl Transcript {
    /// Reads a transcript. `$HOST`, `$OWN` and `$GONE` are filled in; `{x*3}` is `xxx`; `\r`,
    /// `\n`, `\t` and `\xNN` are bytes. `>` lines get CR LF, `>>` lines are sent as they stand.
    /// `{ *}` fills a repeated line up to 64 characters.
    pub(crate) fn read(text: &str) -> Self {
        let mut greeting = None;
        let mut turns: Vec<(Vec<u8>, String)> = Vec::new();
        let mut asked = None;
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if let Some(raw) = line.strip_prefix(">> ") {
                asked = Some(bytes(&fill(raw)));
            } else if let Some(typed) = line.strip_prefix("> ") {
                let mut typed = bytes(&fill(typed));
                typed.extend(b"\r\n");
                asked = Some(typed);
            } else {
                let reply = line.strip_prefix("< ").unwrap_or_else(|| panic!("line {line:?}"));
                let reply = fill(reply) + "\r\n";
                match asked.take() {
                    Some(asked) => turns.push((asked, reply)),
                    None => assert!(greeting.replace(reply).is_none(), "two greetings"),
                }
            }
        }
        assert!(asked.is_none() && !turns.is_empty());
        Self { greeting: greeting.expect("a greeting"), turns }
    }

    /// The same over a Unix socket, where nobody takes a lock for a process that is gone: a client that does that
    /// in a transcript is the test's own process here.
    pub(crate) fn over_unix(name: &str, text: &str) -> Self {
        match name {
            "memo" | "grammar" => Self::read(&text.replace("$GONE", "$OWN")),
            _ => Self::read(text),
        }
    }

    /// All bytes of the client.
    pub(crate) fn sent(&self) -> Vec<u8> {
        self.turns.iter().flat_map(|(sent, _)| sent).copied().collect()
    }

    /// All bytes of the service when the client has sent so many bytes.
    pub(crate) fn answered(&self, length: usize) -> String {
        let mut answered = self.greeting.clone();
        let mut end = 0;
        for (sent, reply) in &self.turns {
            end += sent.len();
            if end <= length {
                answered.push_str(reply);
            }
        }
        answered
    }
}

pub(crate) fn host() -> String {
    nix::unistd::gethostname().unwrap().into_string().unwrap()
}

fn fill(text: &str) -> String {
    let text = text
        .replace("$HOST", &host())
        .replace("$OWN", &std::process::id().to_string())
        .replace("$GONE", &GONE.to_string());
    let mut filled = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (what, after) = after.split_once('}').expect("a closing brace");
        let (what, times) = what.split_once('*').expect("{x*3}");
        filled.push_str(before);
        let times = match times {
            "" => 64 - filled.strip_prefix("500 '").expect("an echo").len(),
            times => times.parse().expect("a number"),
        };
        filled.push_str(&what.repeat(times));
        rest = after;
    }
    filled + rest
}

fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'\\' => match rest.next().expect("an escape") {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => panic!("escape {other}"),
            },
            byte => byte,
        };
        bytes.push(byte);
    }
    bytes
}

/// Directories of the test's own, and the program with options that lead there.
pub(crate) struct Ground {
    root: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["lock", "other", "state"] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
        }
        Self { root }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// The names in the lock directory.
    pub(crate) fn locks(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path("lock"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn command(&self) -> Command {
        // Another build of it, for another kind of machine, is put to the same tests (.ci/targets).
        let other = std::env::var_os("LFPD_PROGRAM").map(PathBuf::from);
        self.command_of(other.as_deref().unwrap_or(Path::new(env!("CARGO_BIN_EXE_lfpd"))))
    }

    pub(crate) fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("--lock-dir").arg(self.path("lock"));
        command.arg("--search-dir").arg(self.path("other"));
        command.arg("--state-dir").arg(self.path("state"));
        command
    }

    /// Starts the program on a connection whose packets stay what they are: one send, one read.
    pub(crate) fn start(&self) -> Wire {
        Wire::start(self.command())
    }
}

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

/// Waits for a child that ends by itself.
pub(crate) fn ended(mut child: Child) -> ExitStatus {
    let status = until(LIMIT, || child.try_wait().unwrap());
    if status.is_none() {
        let _ = child.kill();
    }
    status.expect("an end in time")
}

/// A process that surely lives: the test's.
pub(crate) fn own() -> u32 {
    std::process::id()
}

pub(crate) fn transcript(name: &str) -> Transcript {
    Transcript::over_unix(name, TRANSCRIPTS.iter().find(|(it, _)| *it == name).unwrap().1)
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
    let wire = ground.start();
    wire.receive();
    assert!(wire.send(format!("lock {device} {}\n", own()).as_bytes()));
    assert_eq!(wire.receive(), "200 Command okay.\r\n");
    wire.hang_up();
}
