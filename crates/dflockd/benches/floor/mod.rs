//! The floor: the least any single-threaded server must do to answer the same bytes.
//!
//! One thread, one epoll set; every acquire is granted and every release accepted, nothing is
//! remembered. It is the physical limit the lock server is measured against, so it must never
//! learn to do more.

mod on_tokio;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use testbed::dflockd::Daemon;

/// The words that turn a benchmark program into a floor server: the barest one, and one on tokio.
const BARE_WORD: &str = "serve-the-floor";
const TOKIO_WORD: &str = "serve-the-floor-on-tokio";

const LISTENER: u64 = u64::MAX;
const EVENTS_PER_WAIT: usize = 512;
const LINES_PER_REQUEST: u8 = 3;

struct Peer {
    stream: TcpStream,
    dialogue: Dialogue,
}

struct Dialogue {
    line: u8,
    at_line_start: bool,
    command: u8,
    outbox: Vec<u8>,
}

impl Dialogue {
    const fn new() -> Self {
        Self { line: 0, at_line_start: true, command: 0, outbox: Vec::new() }
    }
}

/// Starts this same program again, as the floor server.
pub(crate) fn start() -> Daemon {
    start_as(BARE_WORD)
}

/// The same, on tokio.
pub(crate) fn start_on_tokio() -> Daemon {
    start_as(TOKIO_WORD)
}

fn start_as(word: &str) -> Daemon {
    let own = std::env::current_exe().unwrap_or_default();
    Daemon::run(Command::new(own).arg(word))
}

/// Serves, if this program was started for that.
pub(crate) fn serve_if_asked() -> Option<io::Result<()>> {
    match std::env::args().nth(1)?.as_str() {
        BARE_WORD => Some(serve()),
        TOKIO_WORD => Some(on_tokio::serve()),
        _ => None,
    }
}

/// Listens on a port that the system chooses, prints it as the lock server does, and serves until killed.
fn serve() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    eprintln!("msg=listening addr={}", listener.local_addr()?);
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(listener.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let mut events = [EpollEvent::empty(); EVENTS_PER_WAIT];
    let mut buffer = vec![0; 64 * 1024];
    let mut grants = 0;
    loop {
        let count = epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in events.iter().take(count) {
            if event.data() == LISTENER {
                accept(&listener, &epoll, &mut peers)?;
                continue;
            }
            let Some(slot) = usize::try_from(event.data()).ok().and_then(|i| peers.get_mut(i))
            else {
                continue;
            };
            let Some(peer) = slot else { continue };
            if serve_peer(peer, &mut buffer, &mut grants).is_err() {
                *slot = None;
            }
        }
    }
}

fn accept(listener: &TcpListener, epoll: &Epoll, peers: &mut Vec<Option<Peer>>) -> io::Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let place = peers.iter().position(Option::is_none).unwrap_or(peers.len());
        let place_number = u64::try_from(place).unwrap_or(LISTENER);
        epoll.add(stream.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, place_number))?;
        let peer = Peer { stream, dialogue: Dialogue::new() };
        match peers.get_mut(place) {
            Some(slot) => *slot = Some(peer),
            None => peers.push(Some(peer)),
        }
    }
}

fn serve_peer(peer: &mut Peer, buffer: &mut [u8], grants: &mut u64) -> io::Result<()> {
    let count = match peer.stream.read(buffer) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => count,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(e) => return Err(e),
    };
    let dialogue = &mut peer.dialogue;
    converse(dialogue, buffer.get(..count).unwrap_or_default(), grants);
    peer.stream.write_all(&dialogue.outbox)?;
    dialogue.outbox.clear();
    Ok(())
}

fn converse(dialogue: &mut Dialogue, bytes: &[u8], grants: &mut u64) {
    for &byte in bytes {
        if dialogue.at_line_start && dialogue.line == 0 {
            dialogue.command = byte;
        }
        dialogue.at_line_start = byte == b'\n';
        if byte == b'\n' {
            dialogue.line += 1;
        }
        if dialogue.line == LINES_PER_REQUEST {
            dialogue.line = 0;
            answer(dialogue, grants);
        }
    }
}

fn answer(dialogue: &mut Dialogue, grants: &mut u64) {
    if dialogue.command != b'l' {
        dialogue.outbox.extend_from_slice(b"ok\n");
        return;
    }
    *grants += 1;
    dialogue.outbox.extend_from_slice(b"ok ");
    for shift in (0..16).rev() {
        let nibble = u8::try_from(*grants >> (4 * shift) & 15).unwrap_or(0);
        dialogue.outbox.push(nibble + if nibble < 10 { b'0' } else { b'a' - 10 });
    }
    dialogue.outbox.extend_from_slice(b"0123456789abcdef 33\n");
}
