//! `dflock run` on a terminal, under a shell with job control: which processes get Ctrl-C, which may read, and that
//! the shell gets its terminal back.

use crate::program::{LONG, PATH, assert_free};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, PATIENCE};

/// A program on a terminal of its own, and somebody who types.
struct Typist {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    read: usize,
}

impl Typist {
    /// In front of a shell.
    fn shell(daemon: &Daemon) -> Self {
        let mut typist = Self::program(daemon, &["bash", "--norc", "--noprofile", "--noediting"]);
        // Unlike the echo of what is typed, the answer has no quotes in it.
        typist.line("stty -echo; PS1=; PS2=; echo 're''ady'");
        typist.expect("ready");
        typist
    }

    /// In front of any program, without a shell behind it.
    fn program(daemon: &Daemon, words: &[&str]) -> Self {
        let terminal = testbed::pseudo_terminal();
        let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
        let own = Path::new(env!("CARGO_BIN_EXE_dflock")).parent().unwrap();
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(words).env_clear();
        command.env("PATH", format!("{}:{PATH}", own.display()));
        command.env("DFLOCK_SERVERS", daemon.address.to_string());
        command.stdin(copy(&terminal.slave)).stdout(copy(&terminal.slave)).stderr(terminal.slave);
        let child = command.spawn().expect("setsid (package util-linux)");
        drop(command);
        let screen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (sink, mut source) = (Arc::clone(&screen), File::from(copy(&terminal.master)));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = source.read(&mut piece) {
                sink.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        });
        Self { child, keyboard: terminal.master.into(), screen, read: 0 }
    }

    fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\n"));
    }

    /// Waits until this is shown, behind what was expected before.
    fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.screen.lock().unwrap().clone();
            let new = String::from_utf8_lossy(&shown[self.read..]).into_owned();
            if let Some(at) = new.find(text) {
                self.read += at + text.len();
                return;
            }
            assert!(Instant::now() < deadline, "{text:?} is never shown: {new:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }
}

impl Drop for Typist {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_command_may_read_and_hears_ctrl_c_once() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    let script = format!(
        "sleep {LONG} & trap \"echo heard; kill -KILL $!; exit 7\" INT; read x; echo got $x; wait $!"
    );
    typist.line(&format!("dflock run k -- sh -c '{script}'; echo code $?"));
    typist.line("hello");
    typist.expect("got hello");
    typist.keys("\x03");
    typist.expect("heard");
    typist.expect("code 7");
    assert_eq!(typist.shown().matches("heard").count(), 1);
    assert_free(&daemon);
}

/// `a_user_without_the_lock_learns_who_holds_it` shows the message to a user who does not get the lock.
#[test]
fn people_learn_for_whom_they_wait() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    typist.line("dflock run k --name 'alice at work' -- sh -c 'echo begun; read x' &");
    typist.expect("begun");
    for keys in ["k", "--key j --key k"] {
        typist.line(&format!("dflock run {keys} -- true"));
        typist.expect("dflock: waiting for k: held for ");
        typist.expect("s by alice at work");
        typist.keys("\x03");
        typist.line("echo code $?");
        typist.expect("code 130");
    }
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_mind() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    typist.line(&format!("dflock run k -- sh -c 'echo begun; exec sleep {LONG}'; echo code $?"));
    typist.expect("begun");
    typist.keys("\x03");
    typist.expect("code 130");
    assert_free(&daemon);
}

/// Ctrl-Z stops both, and the shell has its terminal; `fg` continues both, still under the lease.
#[test]
fn ctrl_z_and_fg() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    typist.line("dflock run k -- sh -c 'echo begun; read x; echo got $x; exit 5'; echo code $?");
    typist.expect("begun");
    typist.keys("\x1a");
    typist.expect("Stopped");
    typist.line("echo still here");
    typist.expect("still here");
    daemon.until_stats("\"key\":\"k\"");
    typist.line("fg; echo code $?");
    typist.line("hello");
    typist.expect("got hello");
    typist.expect("code 5");
    assert_free(&daemon);
}

/// The lease ends while everything is stopped: the command must not go on.
#[test]
fn ctrl_z_for_longer_than_the_lease() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    typist.line("dflock run k --ttl 9 -- sh -c 'echo begun; read x; echo went\"\" on'");
    typist.expect("begun");
    typist.keys("\x1a");
    typist.expect("Stopped");
    assert_free(&daemon);
    typist.line("fg; echo code $?");
    typist.expect("lease lost");
    typist.expect("code 74");
    assert!(!typist.shown().contains("went on"));
}

/// When it ends in the background, the terminal belongs to the shell already.
#[test]
fn bg_leaves_the_terminal_to_the_shell() {
    let daemon = Daemon::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = fifo.to_str().unwrap();
    let mut typist = Typist::shell(&daemon);
    typist.line(&format!("dflock run k -- sh -c 'echo begun; read x <{fifo}; echo over'"));
    typist.expect("begun");
    typist.keys("\x1a");
    typist.expect("Stopped");
    typist.line("bg; echo in the background");
    typist.expect("in the background");
    typist.line(&format!("echo go >{fifo}; wait; echo still here"));
    typist.expect("over");
    typist.expect("still here");
    typist.line("echo and still");
    typist.expect("and still");
    assert_free(&daemon);
}

/// Started in the background, it stops when it wants to read, as any job, and goes on with `fg`.
#[test]
fn from_the_background_to_the_front() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    typist.line("set -b; dflock run k -- sh -c 'echo begun; read x; echo got $x' &");
    typist.expect("begun");
    typist.expect("Stopped");
    typist.line("fg; echo code $?");
    typist.line("hello");
    typist.expect("got hello");
    typist.expect("code 0");
}

/// A pager behind us reads keys from the terminal; it must not be in the background for our sake.
#[test]
fn the_neighbour_in_a_pipeline_keeps_the_terminal() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    let pager = "read line; echo first $line; read key </dev/tty; echo key $key; cat";
    typist.line(&format!("dflock run k -- sh -c 'echo a; exec cat' </dev/null | sh -c '{pager}'"));
    typist.expect("first a");
    typist.line("q");
    typist.expect("key q");
    // And somebody who types before us.
    typist.line("sh -c 'read x </dev/tty; echo $x' | dflock run k -- sed s/^/through-/");
    typist.line("typed");
    typist.expect("through-typed");
    assert_free(&daemon);
}

/// In a pipeline the command gets the terminal when it asks for it: `ssh` that wants a password.
#[test]
fn the_command_in_a_pipeline_may_ask() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    let script = "echo begun >&2; read x </dev/tty; echo got $x";
    typist.line(&format!("dflock run k -- sh -c '{script}' | sed s/got/have/; echo over"));
    typist.expect("begun");
    typist.line("hello");
    typist.expect("have hello");
    typist.expect("over");
    typist.line("echo still here");
    typist.expect("still here");
}

#[test]
fn ctrl_c_and_ctrl_z_in_a_pipeline() {
    let daemon = Daemon::start(&[]);
    let mut typist = Typist::shell(&daemon);
    let script = format!(
        "sleep {LONG} & trap \"echo goes on >&2\" CONT; trap \"echo heard >&2; kill -KILL $!\" INT; \
         echo begun >&2; wait $!; wait $!; wait $!"
    );
    typist.line(&format!("dflock run k -- sh -c '{script}' | cat"));
    typist.expect("begun");
    typist.keys("\x1a");
    typist.expect("Stopped");
    typist.line("echo now; fg; echo codes ${PIPESTATUS[@]}");
    typist.expect("now");
    typist.expect("goes on");
    typist.keys("\x03");
    typist.expect("heard");
    typist.line("echo over");
    typist.expect("over");
    assert_free(&daemon);
}

/// Where no shell could continue us, Ctrl-Z has no effect, as for any program.
#[test]
fn without_a_shell_nobody_stays_stopped() {
    let daemon = Daemon::start(&[]);
    let script = "stty -echo; echo begun; read x; echo got $x";
    let mut typist = Typist::program(&daemon, &["dflock", "run", "k", "--", "sh", "-c", script]);
    typist.expect("begun");
    typist.keys("\x1a");
    typist.line("hello");
    typist.expect("got hello");
    assert_free(&daemon);
}
