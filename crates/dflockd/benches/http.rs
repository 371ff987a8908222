//! Locks over HTTP beside the lock protocol, over as many connections that stay, in turns: pairs per second, and the
//! server's processor time for a pair. Then a thousand requests that wait over HTTP: what they take in memory, and how long
//! a client of the lock protocol waits for a pair beside them, and without them.
//!
//! One thread sends the same request on all connections, and then reads all answers. Arguments: `rounds=N` (5),
//! `seconds=S` of load per row and round (1).

#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made ends")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, free_port, roomy};

const CONNECTIONS: [usize; 4] = [1, 10, 100, 1000];
const WAITS: usize = 1000;
/// Pairs of the client beside them, in a round.
const PAIRS: usize = 2000;

/// A connection by which a client takes and releases a lock of its own.
struct Line {
    stream: BufReader<TcpStream>,
    key: String,
    /// The header of its session; `None` for the lock protocol.
    session: Option<String>,
}

impl Line {
    fn connect(address: SocketAddr, key: usize) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), key: format!("key-{key}"), session: None }
    }

    fn with_session(address: SocketAddr, key: usize) -> Self {
        let mut line = Self::connect(address, key);
        line.session = Some(String::new());
        line.post("/v1/sessions", "");
        let answer = line.answer();
        line.session = Some(format!("X-Dflockd-Session: {}\r\n", word(&answer, 3)));
        line
    }

    fn post(&mut self, path: &str, body: &str) {
        let (session, length) = (self.session.as_deref().unwrap_or_default(), body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{session}\r\n"
        );
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes()).unwrap();
    }

    fn acquire(&mut self) {
        let path = format!("/v1/locks/{}", self.key);
        if self.session.is_some() {
            return self.post(&path, "{\"acquire_timeout_s\":0}");
        }
        let frame = format!("l\n{}\n0\n", self.key);
        self.stream.get_mut().write_all(frame.as_bytes()).unwrap();
    }

    fn release(&mut self, granted: &str) {
        let path = format!("/v1/locks/{}/release", self.key);
        if self.session.is_some() {
            return self.post(&path, &format!("{{\"token\":\"{}\"}}", word(granted, 7)));
        }
        let token = granted.split(' ').nth(1).unwrap();
        let frame = format!("r\n{}\n{token}\n", self.key);
        self.stream.get_mut().write_all(frame.as_bytes()).unwrap();
    }

    /// A line of the lock protocol, or the body of an answer.
    fn answer(&mut self) -> String {
        let mut text = String::new();
        self.stream.read_line(&mut text).unwrap();
        if self.session.is_none() {
            return text;
        }
        assert!(text.starts_with("HTTP/1.1 20"), "{text}");
        let mut length = 0;
        while text != "\r\n" {
            text.clear();
            self.stream.read_line(&mut text).unwrap();
            if let Some(value) = text.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

/// The part of a JSON object between these quotes.
fn word(object: &str, place: usize) -> &str {
    object.split('"').nth(place).unwrap()
}

/// All lines take and release their locks once.
fn pairs(lines: &mut [Line]) {
    lines.iter_mut().for_each(Line::acquire);
    let granted: Vec<String> = lines.iter_mut().map(Line::answer).collect();
    lines.iter_mut().zip(&granted).for_each(|(line, granted)| line.release(granted));
    lines.iter_mut().for_each(|line| drop(line.answer()));
}

/// Pairs per second, and microseconds of the server's processor for one.
fn load(server: &Daemon, lines: &mut [Line], length: Duration) -> [f64; 2] {
    pairs(lines);
    let (begun, ticks, mut count) = (Instant::now(), server.cpu_ticks(), 0);
    while begun.elapsed() < length {
        pairs(lines);
        count += lines.len();
    }
    let (ticks, count) = (server.cpu_ticks() - ticks, count as f64);
    // A tick is a hundredth of a second on Linux.
    [count / begun.elapsed().as_secs_f64(), ticks as f64 * 10_000.0 / count]
}

/// The median and the 99th of 100 waits for a pair, in microseconds.
fn bystander(server: &Daemon) -> [f64; 2] {
    let mut lines = [Line::connect(server.address, 0)];
    let mut waits: Vec<f64> = (0..PAIRS)
        .map(|_| {
            let begun = Instant::now();
            pairs(&mut lines);
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    waits.sort_by(f64::total_cmp);
    [50, 99].map(|percent| waits.get(PAIRS * percent / 100).copied().unwrap())
}

fn start() -> Daemon {
    let port = free_port().to_string();
    let settings = [("DFLOCKD_HTTP_PORT", port.as_str()), ("DFLOCKD_HTTP_SESSION_IDLE_S", "3600")];
    roomy(env!("CARGO_BIN_EXE_dflockd"), &settings)
}

fn main() {
    let argument =
        |name: &str| std::env::args().find_map(|word| word.strip_prefix(name)?.parse().ok());
    let rounds = argument("rounds=").unwrap_or(5);
    let length = Duration::from_secs(argument("seconds=").unwrap_or(1));
    let server = start();
    let http = server.http_address();
    println!(
        "medians of {rounds} rounds of {length:?}; CPU in microseconds of the server for a pair"
    );
    println!(
        "{:>6} {:>9} {:>9} {:>6} {:>8} {:>8} {:>6}",
        "conns", "TCP/s", "HTTP/s", "rate", "TCP", "HTTP", "CPU"
    );
    for connections in CONNECTIONS {
        let mut tcp: Vec<_> =
            (0..connections).map(|key| Line::connect(server.address, key)).collect();
        let mut sessions: Vec<_> =
            (0..connections).map(|key| Line::with_session(http, key)).collect();
        let [rate, web_rate, cpu, web_cpu] = medians(rounds, || {
            let [[rate, cpu], [web_rate, web_cpu]] =
                [&mut tcp, &mut sessions].map(|lines| load(&server, lines, length));
            [rate, web_rate, cpu, web_cpu]
        });
        println!(
            "{connections:>6} {rate:>9.0} {web_rate:>9.0} {:>6.2} {cpu:>8.1} {web_cpu:>8.1} {:>6.2}",
            web_rate / rate,
            web_cpu / cpu
        );
    }
    waits(rounds);
}

fn waits(rounds: u64) {
    let [empty, laden] = [start(), start()];
    let mut holder = laden.talk();
    holder.take("held", "0 3600");
    let http = laden.http_address();
    let before = testbed::status_kib(laden.pid(), "VmRSS");
    // Connections that have not asked yet are few: each asks at once.
    let wait = |key: usize| {
        let mut line = Line::connect(http, key);
        line.post("/v1/locks/held?session=none", "{\"acquire_timeout_s\":3000}");
        line
    };
    let _waiting: Vec<_> = (0..WAITS).map(wait).collect();
    laden.until_stats(&format!("\"waiters\":{WAITS}"));
    let growth = testbed::status_kib(laden.pid(), "VmRSS").saturating_sub(before);
    println!("\n{WAITS} waits over HTTP: {:.1} KiB each", growth as f64 / WAITS as f64);
    let [p50, p99, beside_p50, beside_p99] = medians(rounds, || {
        let [[p50, p99], [beside_p50, beside_p99]] = [&empty, &laden].map(bystander);
        [p50, p99, beside_p50, beside_p99]
    });
    println!("microseconds of another client's pair, without them and beside them:");
    println!("p50 {p50:.0} {beside_p50:.0}, p99 {p99:.0} {beside_p99:.0}");
}

fn medians<const N: usize>(rounds: u64, mut round: impl FnMut() -> [f64; N]) -> [f64; N] {
    let mut columns = [const { Vec::new() }; N];
    for _ in 0..rounds {
        columns.iter_mut().zip(round()).for_each(|(column, figure)| column.push(figure));
    }
    columns.map(|mut column| {
        column.sort_by(f64::total_cmp);
        column.get(column.len() / 2).copied().unwrap()
    })
}
