//! A log that nobody reads, and one with nothing to write.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use testbed::dflockd::{PATIENCE, Talker, program, roomy, until};

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

/// With a second thread, each call of the kernel costs more, so the writer of the log lives only while it writes.
#[test]
fn a_server_with_nothing_to_log_has_one_thread() {
    let server = roomy(env!("CARGO_BIN_EXE_dflockd"), &[]);
    let threads = || std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().count();
    let mut talker = Talker::connect(server.address);
    for (command, argument, fault) in [("x", "", "invalid command"), ("l", "x", "invalid integer")]
    {
        until("one thread", || threads() == 1);
        assert_eq!(talker.ask(command, "k", argument), "error");
        server.logged(fault);
    }
    until("one thread", || threads() == 1);
}
