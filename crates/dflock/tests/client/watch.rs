//! Watching a key: by the command and by the libraries, whatever happens to the server.

use crate::ask::another_make;
use crate::library::{KEEPS, client, seconds, settings, turn};
use crate::program::{Restarting, Running, bare, dflock, patient, run, shell, start};
use dflock::{Client, ClientError, Holder};
use nix::sys::signal::Signal;
use rstest::rstest;
use std::process::Stdio;
use std::time::Duration;
use testbed::dflockd::{Daemon, PATIENCE, until};

/// What a line says: the value of the holder, or `free`. The last of the lines, which must be so many at least.
fn told(running: &Running, count: usize) -> Vec<String> {
    running.lines(count).iter().map(|line| value(line)).collect()
}

fn value(line: &str) -> String {
    if line.contains("\"holders\":0,") {
        return "free".to_owned();
    }
    let (_, rest) = line.split_once("\"value\":").expect("a value");
    rest.trim_end_matches('}').trim_matches('"').to_owned()
}

/// A command that holds the lock until its input ends.
fn leader(daemon: &Daemon, value: &str) -> Running {
    let words =
        ["run", "k", "--name", "lead er", "--value", value, "--", "sh", "-c", "echo in; cat"];
    let running = start(dflock(daemon, &words).stdin(Stdio::piped()));
    running.lines(1);
    running
}

#[test]
fn each_leader_is_one_line() {
    let daemon = Daemon::start(&[]);
    let watcher = start(&mut dflock(&daemon, &["watch", "k"]));
    assert_eq!(told(&watcher, 1), ["free"]);
    let mut first = leader(&daemon, "10.0.0.1:80");
    let line = watcher.lines(2).pop().unwrap();
    for part in [
        r#""key":"k""#,
        r#""holder":"lead er""#,
        r#""value":"10.0.0.1:80""#,
        r#""holders":1"#,
        r#""since":"20"#,
        r#""fence":""#,
    ] {
        assert!(line.contains(part), "{line}");
    }
    first.end_input();
    assert_eq!(first.end().code, 0);
    assert_eq!(told(&watcher, 3), ["free", "10.0.0.1:80", "free"]);
    let _second = leader(&daemon, "10.0.0.2:80");
    assert_eq!(told(&watcher, 4), ["free", "10.0.0.1:80", "free", "10.0.0.2:80"]);
    watcher.signal(Signal::SIGTERM);
    let end = patient(watcher.end());
    assert_eq!((end.code, &*end.err), (-(Signal::SIGTERM as i32), ""), "{end:?}");
}

#[test]
fn watch_once_prints_the_present_holder() {
    let daemon = Daemon::start(&[]);
    let script = "dflock run leader --value 10.0.0.1:8080 -- sleep 1000 & leader=$!
        until dflock watch leader --once | grep -o '\"value\":\"[^\"]*\"'; do sleep 0.1; done
        kill $leader; wait $leader
        until dflock watch leader --once | grep -q '\"holders\":0,'; do sleep 0.1; done; echo free";
    let end = run(&mut shell(&daemon, script));
    assert_eq!((end.code, &*end.out), (0, "\"value\":\"10.0.0.1:8080\"\nfree\n"), "{end:?}");
}

/// The recipe of the guide as it stands there, with stand-ins for the service and for what needs its address.
#[test]
fn the_recipe_finds_the_leader() {
    let daemon = Daemon::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let script = |name: &str, body: &str| {
        testbed::script(&place.path().join(name), &format!("#!/bin/sh\n{body}\n"));
    };
    script("my-service", "exec sleep 1000");
    script("reload-proxy", "echo \"$1\" >>\"${0%/*}/said\"");
    let recipe = crate::kitchen::recipe("watch");
    let running =
        start(&mut shell(&daemon, &format!("PATH={}:$PATH\n{recipe}", place.path().display())));
    let said = || std::fs::read_to_string(place.path().join("said")).unwrap_or_default();
    until("it is told", || said().contains("\"value\":\"10.0.0.1:8080\""));
    drop(running);
}

/// A server that is killed and started again: what has not changed is not told again, and what has is.
#[rstest]
#[case::without_a_holder(false)]
#[case::with_a_holder(true)]
fn a_server_comes_back(#[case] is_held: bool) {
    let mut server = Restarting::start(KEEPS);
    let mut holder = is_held.then(|| leader(&server.daemon, "first"));
    let before = if is_held { "first" } else { "free" };
    let watcher = start(&mut dflock(&server.daemon, &["watch", "k"]));
    assert_eq!(told(&watcher, 1), [before]);
    server.end(Signal::SIGKILL);
    server.start_again();
    // It has come back, and so has the holder.
    let connections = if is_held { "\"connections\":3" } else { "\"connections\":2" };
    server.daemon.until_stats(connections);
    let after = match &mut holder {
        Some(holder) => {
            holder.end_input();
            "free"
        }
        None => "second",
    };
    let _second = (!is_held).then(|| leader(&server.daemon, "second"));
    assert_eq!(told(&watcher, 2), [before, after]);
}

#[test]
fn watch_ends_when_nobody_reads_its_output() {
    let daemon = Daemon::start(&[]);
    let end = run(&mut shell(&daemon, "dflock watch k | head -n 1; echo over"));
    assert_eq!(end.code, 0, "{end:?}");
    assert!(end.out.ends_with("\"value\":null}\nover\n"), "{end:?}");
}

#[rstest]
#[case::blank(" x")]
#[case::control("a\u{1b}b")]
#[case::empty("")]
fn a_value_that_does_not_fit(#[case] value: &str) {
    let daemon = Daemon::start(&[]);
    let end = run(&mut dflock(&daemon, &["run", "k", "--value", value, "--", "echo", "it ran"]));
    assert_eq!((end.code, &*end.out), (64, ""), "{end:?}");
    assert!(end.err.starts_with("dflock: a value is 1 to 256 bytes"), "{end:?}");
}

/// A server that knows nothing but the words of the documents says `error`.
#[test]
fn a_server_that_is_too_old_is_told_of() {
    let server = another_make("error");
    let words = "dflock: the server cannot be watched: it does not know the request";
    let run_it = ["--server", &server, "run", "k", "--value", "v", "--", "echo", "it ran"];
    for arguments in [&["--server", &server, "watch", "k"][..], &run_it] {
        let end = run(&mut bare(arguments));
        assert_eq!((end.code, &*end.out), (76, ""), "{end:?}");
        assert!(end.err.starts_with(words), "{end:?}");
    }
    turn(async {
        let settings = settings(&server);
        let blocking = dflock::blocking::Client::new(settings.clone()).unwrap();
        let refused = blocking.watch("k").unwrap().next();
        assert!(matches!(refused, Err(ClientError::NotWatched(_))));
        let mut watch = Client::new(settings).unwrap().watch("k").unwrap();
        assert!(matches!(watch.next().await, Err(ClientError::NotWatched(_))));
    });
}

fn said(holder: Option<Holder>) -> Option<String> {
    holder.map(|holder| holder.value.unwrap_or_default())
}

/// A future of the library that is dropped at any time loses no change, and takes no connection more.
#[test]
fn a_dropped_wait_loses_nothing() {
    let daemon = Daemon::start(&[]);
    let mut settings = settings(daemon.address);
    settings.value = Some("v".to_owned());
    let claim = Client::new(settings).unwrap().lock("k").unwrap();
    turn(async {
        let mut watch = client(&daemon).watch("k").unwrap();
        assert_eq!(said(watch.next().await.unwrap()), None);
        for _ in 0..5 {
            let moment = Duration::from_millis(20);
            assert!(tokio::time::timeout(moment, watch.next()).await.is_err());
        }
        let lease = claim.acquire(seconds(9)).await.unwrap().unwrap();
        let holder = loop {
            let moment = Duration::from_millis(1);
            if let Ok(holder) = tokio::time::timeout(moment, watch.next()).await {
                break holder.unwrap().unwrap();
            }
        };
        assert_eq!((holder.value.as_deref(), Some(holder.fence)), (Some("v"), lease.fence()));
        assert!(holder.age < PATIENCE && holder.holders == 1);
        // Its own connection, that of the holder, and that of the client that asks.
        daemon.until_stats("\"connections\":3");
        lease.release().await.unwrap();
        assert_eq!(said(watch.next().await.unwrap()), None);
    });
}
