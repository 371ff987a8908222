//! Servers of which one leads: it serves from its engine, and etcd has the record. Whatever happens to it, the next
//! leader continues with the same holds, and one that was succeeded answers nothing that could be wrong.

use crate::relay::{Answers, Relay};
use nix::sys::signal::Signal;
use rstest::rstest;
use testbed::dflockd::etcd as cluster;
use testbed::dflockd::{Daemon, Store, Talker, pem, program_on, slot_of, until};

/// Two servers; the first one leads.
fn two() -> [Daemon; 2] {
    let store = cluster::shared();
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
    let mut readers = [(); 3].map(|()| first.talk());
    let shared = readers.each_mut().map(|reader| reader.token("rl", "shared", "0 30"));
    let both = holder.ask("al", "a b", "30");
    assert!(both.starts_with("ok "), "{both}");
    holder.token("sl", "pool", "0 4 30");
    let middle = holder.token("sl", "pool", "0 4 30");
    holder.token("sl", "pool", "0 4 30");
    assert_eq!(holder.ask("sr", "pool", &middle), "ok");
    let mut waiter = first.talk();
    waiter.say(b"l\nk\n30\n");
    first.until_stats("\"waiters\":1");
    // The other server serves the same locks.
    let mut passed = second.talk();
    assert_eq!(passed.ask("l", "k", "0"), "timeout");
    let far = passed.take("far", "0 30");

    first.signal(signal);
    let mut client = talk_to_leader(&second);
    if signal != Signal::SIGSTOP {
        let word = if signal == Signal::SIGTERM { "error_draining" } else { "" };
        assert_eq!((holder.line(), waiter.line()), (word.to_owned(), word.to_owned()));
        first.ended();
    }
    // Nobody else gets what is held.
    for key in ["k", "shared", "a", "b", "far"] {
        assert_eq!(client.ask("l", key, "0"), "timeout", "{key}");
    }
    assert_eq!((passed.line().as_str(), passed.is_closed()), ("error_draining", true));
    assert_eq!(client.ask("r", "far", &far), "ok");
    assert_eq!(client.ask("n", "k", &format!("{token} 40")), "ok 40");
    assert_eq!(client.ask("r", "k", &token), "ok");
    let next = client.take("k", "0 30");
    assert!(next[..16] > token[..16], "fences grow");
    for token in shared {
        assert_eq!(client.ask("r", "shared", &token), "ok");
    }
    // Two slots are taken as before, and the lowest that is free is the second one.
    assert_eq!(client.ask("ping", "hello", "slots"), "ok fences lost slots");
    let slots = [(); 2].map(|()| slot_of(&client.ask("sl", "pool", "0 4 30")));
    assert_eq!(slots, [Some(1), Some(3)]);
    client.take("shared", "0");

    if signal == Signal::SIGSTOP {
        first.signal(Signal::SIGCONT);
        // It was succeeded, and does not know that yet; or it has a link to the next one, and passes on what that says.
        for (request, truth) in [
            (format!("n\nk\n{token}\n"), "error"),
            ("l\nk\n0\n".to_owned(), "timeout"),
            (format!("r\nk\n{token}\n"), "error"),
        ] {
            let mut old = first.talk();
            old.say(request.as_bytes());
            let reply = old.line();
            assert!(reply == "error_draining" || reply == truth, "{request}: {reply}");
        }
        assert_eq!(holder.line(), "error_draining");
        first.logged("another server has taken the lead");
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

/// A leader behind a relay has recorded a hand-over, and its answer from etcd is not passed.
struct HandOver {
    etcd: cluster::Cluster,
    store: Store,
    relay: Relay,
    first: Daemon,
    holder: Talker,
    waiter: Talker,
    token: String,
}

impl HandOver {
    fn new() -> Self {
        let etcd = cluster::Cluster::start(&[]);
        let store = etcd.store();
        let relay = Relay::to(store.environment[1].1.split(',').next().unwrap());
        let mut environment = store.environment.clone();
        environment[1].1.clone_from(&relay.address);
        let first = start_on(&Store { environment });
        first.logged("this server leads");
        let (mut holder, mut waiter) = (first.talk(), first.talk());
        let token = holder.take("k", "0 600");
        waiter.say(b"l\nk\n600 600\n");
        first.until_stats("\"waiters\":1");
        Self { etcd, store, relay, first, holder, waiter, token }
    }

    fn record(&mut self, answers: Answers) {
        let holds = format!("get --prefix --keys-only {}h/", self.store.environment[2].1);
        let before = self.etcd.control(&holds);
        self.relay.set(answers);
        self.holder.say(format!("r\nk\n{}\n", self.token).as_bytes());
        until("it is recorded", || self.etcd.control(&holds) != before);
    }
}

fn start_on(store: &Store) -> Daemon {
    Daemon::run(program_on(store).args(["--port", "0"]))
}

/// The record of a hand-over is in etcd, and the leader stands still until another one leads. What it finds when it
/// continues is too old: the next client must not wait for a hold that nobody was told of.
#[test]
fn a_hand_over_that_a_silent_leader_recorded_is_given_back() {
    let mut it = HandOver::new();
    let second = start_on(&it.store);
    second.logged("linked to the leader");
    it.record(Answers::Kept);
    it.first.signal(Signal::SIGSTOP);
    it.relay.set(Answers::Passed);
    second.logged("this server leads");
    it.first.signal(Signal::SIGCONT);
    assert_eq!(it.waiter.line(), "error_draining");
    let mut next = second.talk();
    assert!(next.ask("l", "k", "30").starts_with("ok "));
}

/// The same with one server, which leads again itself. Its clients keep the holds that they were told of, in etcd too.
#[test]
fn a_hand_over_whose_answer_was_lost_is_given_back() {
    let mut it = HandOver::new();
    let kept = it.holder.take("kept", "0 600");
    it.record(Answers::Lost);
    assert_eq!(it.waiter.line(), "error_draining");
    it.first.logged("etcd has not answered in time");
    it.relay.set(Answers::Passed);
    let mut next = talk_to_leader(&it.first);
    assert!(next.ask("l", "k", "30").starts_with("ok "));
    assert_eq!(next.ask("l", "kept", "0"), "timeout");
    it.first.signal(Signal::SIGKILL);
    let second = start_on(&it.store);
    let mut next = talk_to_leader(&second);
    assert_eq!(next.ask("l", "kept", "0"), "timeout");
    assert_eq!(next.ask("r", "kept", &kept), "ok");
}

/// Nobody without the leader's secret, which is in etcd, gets a link; under TLS the secret itself is not enough.
#[test]
fn a_client_cannot_speak_the_link() {
    let [first, _second] = two();
    first.logged("a standby is linked");
    let links = || first.log().iter().filter(|line| line.contains("a standby is linked")).count();
    let before = links();
    for shown in ["_", "0", &"0".repeat(32), &"0".repeat(64)] {
        let mut client = first.talk();
        client.say(format!("link\n{shown}\n_\nping\n_\n_\n").as_bytes());
        assert_eq!(
            (client.line(), client.line()),
            ("error".to_owned(), "ok".to_owned()),
            "{shown}"
        );
    }
    assert_eq!(links(), before);
}

/// The link is under TLS where the service is, and whatever the certificate says.
#[test]
fn the_link_is_under_tls() {
    let Store { mut environment } = cluster::shared();
    environment.push(("DFLOCKD_TLS_CERT", pem("cert.pem")));
    environment.push(("DFLOCKD_TLS_KEY", pem("key.pem")));
    let store = Store { environment };
    let start = || Daemon::run(program_on(&store).args(["--port", "0"]));
    let (mut first, second) = (start(), start());
    first.logged("a standby is linked");
    second.logged("linked to the leader");
    first.signal(Signal::SIGTERM);
    second.logged("this server leads");
    first.ended();
}

/// Its clients might stay for long, and a server that has no link could not serve while they do.
#[test]
fn a_leader_that_shuts_down_alone_does_not_wait_for_its_clients() {
    let store = cluster::shared();
    let start = || {
        let arguments = ["--port", "0", "--shutdown-timeout", "0"];
        Daemon::run(program_on(&store).args(arguments))
    };
    let mut first = start();
    let mut holder = first.talk();
    let token = holder.take("k", "0 30");
    first.signal(Signal::SIGTERM);
    assert_eq!((holder.line().as_str(), holder.is_closed()), ("error_draining", true));
    assert_eq!(first.ended().code(), Some(0));
    let second = start();
    let mut next = talk_to_leader(&second);
    assert_eq!(next.ask("l", "k", "0"), "timeout");
    assert_eq!(next.ask("n", "k", &format!("{token} 30")), "ok 30");
}

/// The clients of a standby count where it passes them on; its link is none of them.
#[rstest]
#[case("--max-connections")]
#[case("--max-connections-per-ip")]
fn a_full_leader_has_room_for_links(#[case] limit: &str) {
    let store = cluster::shared();
    let first = Daemon::run(program_on(&store).args(["--port", "0", limit, "1"]));
    let mut inside = first.talk();
    assert_eq!(inside.ask("ping", "_", "_"), "ok");
    let second = Daemon::run(program_on(&store).args(["--port", "0"]));
    second.logged("linked to the leader");
    for frame in ["ping\n_\n_\n", "link\n_\n_\n"] {
        let mut outside = first.talk();
        outside.say(frame.as_bytes());
        assert!(outside.is_closed(), "{frame}");
    }
    drop(inside);
    until("its clients are served", || {
        let mut client = second.talk();
        client.ask("ping", "_", "_") == "ok"
    });
}

/// A standby that dies has not said that its clients are gone.
#[test]
fn holds_stay_when_a_standby_dies() {
    let [first, second] = two();
    second.logged("linked to the leader");
    let mut holder = second.talk();
    let token = holder.take("k", "0 30");
    let mut waiter = second.talk();
    waiter.say(b"l\nk\n30\n");
    first.until_stats("\"waiters\":1");
    second.signal(Signal::SIGKILL);
    first.until_stats("\"waiters\":0");
    let mut client = first.talk();
    assert_eq!(client.ask("l", "k", "0"), "timeout");
    assert_eq!(client.ask("n", "k", &format!("{token} 30")), "ok 30");
}
