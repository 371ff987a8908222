//! A log that nobody reads.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use testbed::dflockd::{PATIENCE, Talker, program, until};

/// The pipe of the log is full and nobody empties it: everybody is served all the same, and when
/// somebody reads again, what was lost is told.
#[test]
fn a_log_that_nobody_reads_stops_nobody() {
    let mut command = program();
    command.args(["--port", "0", "--debug"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut log = child.stderr.take().unwrap();
    let mut seen = String::new();
    until("it listens", || {
        let mut byte = [0; 64];
        let count = log.read(&mut byte).unwrap();
        seen.push_str(std::str::from_utf8(&byte[..count]).unwrap());
        seen.contains("addr=") && seen.ends_with('\n')
    });
    let address = seen.split("addr=").nth(1).unwrap().split_whitespace().next().unwrap();
    let mut talker = Talker::connect(address.parse().unwrap());
    // A megabyte of lines; a pipe takes 64 KiB.
    for _ in 0..10_000 {
        assert!(talker.ask("r", "some-key-with-a-long-name", "x").starts_with("error"));
    }
    let (told, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let is_told = |line: &std::io::Result<String>| {
            line.as_ref().is_ok_and(|line| line.contains("log lines dropped"))
        };
        told.send(BufReader::new(log).lines().any(|line| is_told(&line))).unwrap();
    });
    // One line after the loss.
    assert_eq!(talker.ask("r", "k", "x"), "error");
    let is_told = seen.recv_timeout(PATIENCE);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(is_told, Ok(true));
}
