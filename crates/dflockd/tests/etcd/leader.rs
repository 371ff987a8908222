//! Servers of which one leads: it serves from its engine, and etcd has the record. Whatever happens to it, the next
//! leader continues with the same holds, and one that was succeeded answers nothing that could be wrong.

use crate::cluster;
use crate::daemon::{Daemon, Store, Talker, program_on, until};
use nix::sys::signal::Signal;
use rstest::rstest;

/// Two servers; the first one leads.
fn two() -> [Daemon; 2] {
    let Store { mut environment } = cluster::shared();
    environment.push(("DFLOCKD_STORE", "etcd-leader".to_owned()));
    let store = Store { environment };
    let start = || Daemon::run(program_on(&store).args(["--port", "0"]));
    let first = start();
    first.logged("this server leads");
    let second = start();
    second.logged("another server leads");
    [first, second]
}

/// A client of the server, as soon as that leads.
fn talk_to_leader(daemon: &Daemon) -> Talker {
    daemon.logged("this server leads");
    let mut talker = None;
    until("it serves", || {
        let mut client = daemon.talk();
        let serves = client.ask("ping", "_", "_") == "ok";
        talker = Some(client);
        serves
    });
    talker.unwrap()
}

#[rstest]
#[case::ends(Signal::SIGTERM)]
#[case::is_killed(Signal::SIGKILL)]
#[case::stands_still(Signal::SIGSTOP)]
fn holds_stay_when_the_leader(#[case] signal: Signal) {
    let [mut first, second] = two();
    let mut holder = first.talk();
    let token = holder.take("k", "0 30");
    let readers: Vec<(Talker, String)> = (0..3)
        .map(|_| {
            let mut reader = first.talk();
            let reply = reader.ask("rl", "shared", "0 30");
            let token = reply.split(' ').nth(1).expect(&reply).to_owned();
            (reader, token)
        })
        .collect();
    let both = holder.ask("al", "a b", "30");
    assert!(both.starts_with("ok "), "{both}");
    let mut waiter = first.talk();
    waiter.say(b"l\nk\n30\n");
    first.until_stats("\"key\":\"k\",\"owner_conn_id\":1");
    assert_eq!(second.talk().ask("l", "other", "0"), "error_draining");

    first.signal(signal);
    let mut client = talk_to_leader(&second);
    if signal != Signal::SIGSTOP {
        let word = if signal == Signal::SIGTERM { "error_draining" } else { "" };
        assert_eq!((holder.line(), waiter.line()), (word.to_owned(), word.to_owned()));
        first.ended();
    }
    // Nobody else gets what is held.
    for key in ["k", "shared", "a", "b"] {
        assert_eq!(client.ask("l", key, "0"), "timeout", "{key}");
    }
    assert_eq!(client.ask("n", "k", &format!("{token} 40")), "ok 40");
    assert_eq!(client.ask("r", "k", &token), "ok");
    let next = client.take("k", "0 30");
    assert!(next[..16] > token[..16], "fences grow");
    for (_, token) in &readers {
        assert_eq!(client.ask("r", "shared", token), "ok");
    }
    client.take("shared", "0");

    if signal == Signal::SIGSTOP {
        first.signal(Signal::SIGCONT);
        // It was succeeded, and does not know that yet.
        for request in
            [format!("n\nk\n{token}\n"), "l\nfree\n0\n".to_owned(), "stats\n_\n_\n".to_owned()]
        {
            let mut old = first.talk();
            old.say(request.as_bytes());
            assert_eq!(old.line(), "error_draining", "{request}");
        }
        assert_eq!(holder.line(), "error_draining");
        first.logged("another server leads");
    }
}

/// A waiter gets the lock when it is released, and the last change of a leader that ends is not lost.
#[test]
fn a_hand_over_and_the_end_of_the_leader() {
    let [mut first, second] = two();
    let (mut one, mut two) = (first.talk(), first.talk());
    let token = one.take("k", "0 30");
    two.say(b"l\nk\n30 30\n");
    first.until_stats("\"waiters\":1");
    one.say(format!("r\nk\n{token}\n").as_bytes());
    first.signal(Signal::SIGTERM);
    let (released, granted) = (one.line(), two.line());
    let mut client = talk_to_leader(&second);
    first.ended();
    // Both answers are true, or there was none.
    match (released.as_str(), granted.strip_prefix("ok ")) {
        ("ok", Some(grant)) => {
            let token = grant.split(' ').next().unwrap();
            assert_eq!(client.ask("r", "k", token), "ok");
        }
        ("ok" | "error_draining", None) => assert_eq!(granted, "error_draining"),
        other => panic!("{other:?}"),
    }
}

/// The holds of a connection that ends are released, and others get them.
#[test]
fn a_client_that_goes_releases_its_holds() {
    let [first, _second] = two();
    let mut gone = first.talk();
    gone.take("k", "0 30");
    drop(gone);
    assert!(first.talk().ask("l", "k", "10").starts_with("ok "));
}
