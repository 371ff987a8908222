//! What connections and held keys cost the lock server: memory, and the rate of short visits.
//!
//! Resident memory is what the process owns; the kernel's socket buffers are not in it. A short
//! visit is connect, one request, close. Its rate must not depend on how many keys are held.

#[path = "server/mod.rs"]
mod server;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use server::Server;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use std::{fs, io};

type Outcome<T> = Result<T, Box<dyn Error>>;

const IDLE_CONNECTIONS: [usize; 2] = [1_000, 10_000];
const HELD_KEYS: [usize; 4] = [0, 10_000, 100_000, 1_000_000];
const KEYS_PER_BATCH: usize = 1_000;
const VISITS: u32 = 3_000;

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
    let mut base = 0.0;
    let mut held = 0;
    for count in HELD_KEYS {
        let began = Instant::now();
        let made = count - held;
        while held < count {
            acquire(&mut holder, held, KEYS_PER_BATCH)?;
            held += KEYS_PER_BATCH;
        }
        let took = began.elapsed();
        let rate = visits_per_second(server.address)?;
        if count == 0 {
            base = rate;
            println!("no key held: {rate:.0} visits/s");
            continue;
        }
        let each = resident_bytes(&server)?.saturating_sub(start) / count as u64;
        println!(
            "{count} keys held: {each} bytes each [< 300], {rate:.0} visits/s, {:.2} of those with \
             no key [~1]; taken at {:.0} keys/s",
            rate / base,
            made as f64 / took.as_secs_f64(),
        );
    }
    time_to_free(&server, holder)
}

/// Closes the connection that holds everything and waits until its last key is free.
fn time_to_free(server: &Server, holder: BufReader<TcpStream>) -> Outcome<()> {
    let mut next = BufReader::new(TcpStream::connect(server.address)?);
    let last = HELD_KEYS.iter().max().map_or(0, |count| count - 1);
    let began = Instant::now();
    drop(holder);
    write!(next.get_mut(), "l\nheld/{last}\n60 60\n")?;
    expect_line(&mut next, "ok ")?;
    println!("holder of all keys gone: its last key is free after {:.0?}", began.elapsed());
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

fn visits_per_second(address: SocketAddr) -> Outcome<f64> {
    let began = Instant::now();
    for _ in 0..VISITS {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        ping(&mut stream)?;
    }
    Ok(f64::from(VISITS) / began.elapsed().as_secs_f64())
}

fn ping(stream: &mut TcpStream) -> Outcome<()> {
    stream.write_all(b"ping\n_\n_\n")?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer)?;
    if &answer == b"ok\n" { Ok(()) } else { Err(format!("answer {answer:?}").into()) }
}

/// Resident memory from /proc/PID/status.
fn resident_bytes(server: &Server) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmRSS line"))
}
