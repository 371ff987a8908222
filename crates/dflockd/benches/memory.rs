//! What connections and held keys cost the lock server in memory, and how fast keys come and go.
//!
//! Resident memory is what the process owns; the kernel's socket buffers are not in it.

#[path = "server/mod.rs"]
mod server;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use server::Server;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;
use std::{fs, io};

type Outcome<T> = Result<T, Box<dyn Error>>;

const IDLE_CONNECTIONS: [usize; 2] = [1_000, 10_000];
const HELD_KEYS: [usize; 3] = [10_000, 100_000, 1_000_000];
const KEYS_PER_BATCH: usize = 1_000;

fn main() -> Outcome<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(65_536), hard)?;
    connections()?;
    keys()
}

fn connections() -> Outcome<()> {
    let server = Server::dflockd()?;
    let start = resident_bytes(&server)?;
    println!("at start: {:.2} MB [< 4]", start as f64 / 1e6);
    let mut open = Vec::new();
    for count in IDLE_CONNECTIONS {
        while open.len() < count {
            open.push(TcpStream::connect(server.address)?);
        }
        // The server has served all of them once it answers the last one.
        for stream in open.iter_mut().rev().take(1) {
            ping(stream)?;
        }
        let each = resident_bytes(&server)?.saturating_sub(start) / count as u64;
        println!("{count} idle connections: {each} bytes each [< 2048]");
    }
    Ok(())
}

fn keys() -> Outcome<()> {
    let server = Server::dflockd()?;
    let start = resident_bytes(&server)?;
    let mut holder = BufReader::new(TcpStream::connect(server.address)?);
    let mut held = 0;
    for count in HELD_KEYS {
        let began = Instant::now();
        let made = count - held;
        while held < count {
            acquire(&mut holder, held, KEYS_PER_BATCH)?;
            held += KEYS_PER_BATCH;
        }
        let took = began.elapsed();
        let each = resident_bytes(&server)?.saturating_sub(start) / count as u64;
        println!(
            "{count} keys held: {each} bytes each [< 300], taken at {:.0} keys/s",
            made as f64 / took.as_secs_f64(),
        );
    }
    time_to_free(&server, holder)
}

/// Closes the connection that holds everything and waits until its first and its last key are free,
/// in whatever order they are freed.
fn time_to_free(server: &Server, holder: BufReader<TcpStream>) -> Outcome<()> {
    let mut next = BufReader::new(TcpStream::connect(server.address)?);
    let last = HELD_KEYS.iter().max().map_or(0, |count| count - 1);
    let began = Instant::now();
    drop(holder);
    write!(next.get_mut(), "l\nheld/{last}\n60 60\nl\nheld/0\n60 60\n")?;
    expect_line(&mut next, "ok ")?;
    expect_line(&mut next, "ok ")?;
    println!("holder of all keys gone: first and last key are free after {:.0?}", began.elapsed());
    Ok(())
}

fn acquire(holder: &mut BufReader<TcpStream>, first: usize, count: usize) -> Outcome<()> {
    let frame = |n| format!("l\nheld/{n}\n0 3600\n");
    let batch: String = (first..first + count).map(frame).collect();
    holder.get_mut().write_all(batch.as_bytes())?;
    (0..count).try_for_each(|_| expect_line(holder, "ok "))
}

fn expect_line(reader: &mut BufReader<TcpStream>, start: &str) -> Outcome<()> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if line.starts_with(start) { Ok(()) } else { Err(format!("answer {line:?}").into()) }
}

fn ping(stream: &mut TcpStream) -> Outcome<()> {
    stream.write_all(b"ping\n_\n_\n")?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer)?;
    if &answer == b"ok\n" { Ok(()) } else { Err(format!("answer {answer:?}").into()) }
}

/// Resident memory from /proc/PID/status.
fn resident_bytes(server: &Server) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{}/status", server.child.id()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmRSS line"))
}
