//! What connections, HTTP sessions and held keys cost the lock server in memory, and how fast keys come and go.
//!
//! Resident memory is what the process owns; the kernel's socket buffers are not in it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::Instant;
use testbed::dflockd::{Daemon, HttpTalker, Talker, free_port, roomy};

const IDLE_CONNECTIONS: [usize; 2] = [1_000, 10_000];
const HELD_KEYS: [usize; 3] = [10_000, 100_000, 1_000_000];

fn main() -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(65_536), hard)?;
    connections();
    sessions();
    keys();
    Ok(())
}

fn dflockd() -> Daemon {
    roomy(env!("CARGO_BIN_EXE_dflockd"), &[])
}

fn connections() {
    let server = dflockd();
    let start = resident_bytes(&server);
    println!("at start: {:.2} MB [< 4]", start as f64 / 1e6);
    let mut open: Vec<Talker> = Vec::new();
    for count in IDLE_CONNECTIONS {
        open.resize_with(count, || server.talk());
        // The server has served all of them once it answers the last one.
        assert_eq!(open.last_mut().map(|last| last.ask("ping", "_", "_")).as_deref(), Some("ok"));
        let each = resident_bytes(&server).saturating_sub(start) / count as u64;
        println!("{count} idle connections: {each} bytes each [<= 1500]");
    }
}

fn sessions() {
    let port = free_port().to_string();
    let settings = [("DFLOCKD_HTTP_PORT", port.as_str()), ("DFLOCKD_HTTP_SESSION_IDLE_S", "3600")];
    let server = roomy(env!("CARGO_BIN_EXE_dflockd"), &settings);
    let http = server.http_address();
    let _first = HttpTalker::connect(http);
    let (start, mut open) = (resident_bytes(&server), Vec::new());
    for count in IDLE_CONNECTIONS {
        open.resize_with(count, || HttpTalker::connect(http));
        let each = resident_bytes(&server).saturating_sub(start) / count as u64;
        println!("{count} idle sessions: {each} bytes each [<= 1000]");
    }
}

fn keys() {
    let server = dflockd();
    let start = resident_bytes(&server);
    let (mut holder, mut next) = (server.talk(), server.talk());
    let mut held = 0;
    for count in HELD_KEYS {
        let began = Instant::now();
        holder.take_many((held..count).map(|number| format!("held/{number}")), 3600);
        let took = began.elapsed();
        let each = resident_bytes(&server).saturating_sub(start) / count as u64;
        println!(
            "{count} keys held: {each} bytes each, taken at {:.0} keys/s",
            (count - held) as f64 / took.as_secs_f64(),
        );
        held = count;
    }
    // The keys may be freed in any order.
    let began = Instant::now();
    drop(holder);
    next.take(&format!("held/{}", held - 1), "60 60");
    next.take("held/0", "60 60");
    println!("holder of all keys gone: first and last key are free after {:.0?}", began.elapsed());
}

fn resident_bytes(server: &Daemon) -> u64 {
    testbed::status_kib(server.pid(), "VmRSS") * 1024
}
