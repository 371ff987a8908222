//! What the existing Go and TypeScript clients send in each of their calls, byte for byte, and the
//! replies they accept: exactly three fields with one blank between them in a grant, two in a
//! renewal, the bare word in everything else. The Python clients are run themselves, see `client`.

use crate::transcript::play;
use rstest::rstest;
use testbed::dflockd::{Daemon, fence};

/// A whole life in each way of holding, as the two libraries play it: a connection for each object,
/// the secret first, renewals in between, a release, and a close. They round up to whole seconds.
#[rstest]
// Lock.Acquire with its ten seconds, renewals with and without a lease of its own, Release.
#[case::go_lock(
    "a> auth|_|sesame \n a< ok \n a> l|k|10 \n a< ok $t 33 \n a> n|k|$t \n a< ok 33 \n
     a> r|k|$t \n a< ok \n a-"
)]
#[case::go_lock_with_lease(
    "a> auth|_|sesame \n a< ok \n a> l|k|10 60 \n a< ok $t 60 \n a> n|k|$t 60 \n a< ok 60 \n
     a> r|k|$t \n a< ok \n a-"
)]
// Lock.Enqueue with an empty argument, Lock.Wait.
#[case::go_two_phases(
    "a> auth|_|sesame \n a< ok \n a> e|k| \n a< acquired $t 33 \n
     b> auth|_|sesame \n b< ok \n b> e|k|60 \n b< queued \n a> n|k|$t \n a< ok 33 \n
     a> r|k|$t \n a< ok \n a- \n b> w|k|10 \n b< ok $u 60 \n b> r|k|$u \n b< ok \n b-"
)]
// A context that is cancelled closes the connection in the middle of the wait.
#[case::go_cancelled(
    "a> auth|_|sesame \n a< ok \n a> l|k|10 \n a< ok $t 33 \n
     b> auth|_|sesame \n b< ok \n b> l|k|10 \n b- \n
     c> auth|_|sesame \n c< ok \n c> l|k|10 \n a> r|k|$t \n a< ok \n c< ok $u 33"
)]
#[case::go_semaphore(
    "a> auth|_|sesame \n a< ok \n a> sl|p|10 2 \n a< ok $t 33 \n a> sn|p|$t \n a< ok 33 \n
     b> auth|_|sesame \n b< ok \n b> sl|p|10 2 60 \n b< ok $u 60 \n b> sn|p|$u 60 \n b< ok 60 \n
     c> auth|_|sesame \n c< ok \n c> se|p|2 \n c< queued \n b> sr|p|$u \n b< ok \n b- \n
     c> sw|p|10 \n c< ok $v 33 \n c> sr|p|$v \n c< ok \n a> sr|p|$t \n a< ok"
)]
// A key with blanks is let through by this client; the refusal must not break the connection.
#[case::typescript_key_with_blanks(
    "a> auth|_|sesame \n a< ok \n a> l|two words|10 \n a< error \n a> l|words|10 \n a< ok $t 33"
)]
// The heartbeat of newer versions, with an empty third line, between everything else.
#[case::typescript_heartbeat(
    "a> auth|_|sesame \n a< ok \n a> e|k|20 \n a< acquired $t 20 \n a> ping|_| \n a< ok \n
     a> n|k|$t 20 \n a< ok 20 \n a> ping|_| \n a< ok \n a> r|k|$t \n a< ok"
)]
// A fraction of a second is no number of seconds, here as there.
#[case::typescript_fraction(
    "a> auth|_|sesame \n a< ok \n a> l|k|0.5 \n a< error \n a> l|k|1 \n a< ok $t 33"
)]
// What went with version 2 is a word like any other that nobody knows.
#[case::typescript_signals(
    "a> auth|_|sesame \n a< ok \n a> listen|events.>| \n a< error \n a> signal|events.x|hello \n
     a< error \n a> unlisten|events.>| \n a< error \n a> ping|_|_ \n a< ok"
)]
fn a_life(#[case] script: &str) {
    play(&Daemon::start(&["--auth-token", "sesame"]), script);
}

/// Whether the table in the guide has this row.
fn is_in_the_guide(row: &str, there: &str, here: &str) {
    let guide = include_str!("../../../../docs/lock-server.md");
    assert!(guide.contains(&format!("| {row} | {there} | {here} |\n")), "{row}");
}

/// What the Go program has, and this one. The first conversation was recorded from its version 1.10 with the tokens of
/// 2.1, whose commands of locks are the same; the answer to `ping` is that of the documents of version 2. The other one is
/// what is said here, if that is not the same.
#[rstest]
#[case::locks(
    "locks (`l`, `r`, `n`)",
    "yes",
    "yes",
    "a> l|k|0 60 \n a< ok $t 60 \n a> n|k|$t 60 \n a< ok 60 \n a> r|k|$t \n a< ok",
    None
)]
#[case::semaphores(
    "semaphores (`sl`, `sr`, `sn`)",
    "yes",
    "yes",
    "a> sl|p|0 3 \n a< ok $t 33 \n a> sl|p|0 2 \n a< error_limit_mismatch \n
     a> sn|p|$t \n a< ok 33 \n a> sr|p|$t \n a< ok",
    None
)]
#[case::two_phases(
    "two phases (`e`, `w`)",
    "yes",
    "yes",
    "a> e|k| \n a< acquired $t 33 \n a> w|k|1 \n a< ok $t 33 \n a> w|k|1 \n a< error_not_enqueued",
    None
)]
#[case::fences_said(
    "a server that says whether its tokens have fences (`ping`, `hello`)",
    "no",
    "yes",
    "a> ping|hello|lost \n a< ok",
    Some("a> ping|hello|lost \n a< ok fences lost")
)]
#[case::shared(
    "locks that readers share (`rl`)",
    "no",
    "yes",
    "a> rl|k|0 \n a< error",
    Some("a> rl|k|0 \n a< ok $t 33 \n b> rl|k|0 \n b< ok $u 33")
)]
#[case::several(
    "several locks or none (`al`)",
    "no",
    "yes",
    "a> al|a b| \n a< error",
    Some("a> al|a b| \n a< ok $t 33 $u 33")
)]
#[case::changes(
    "changes of a lock (`watch`)",
    "no",
    "yes",
    "a> watch|k|0 \n a< error",
    Some("a> watch|k|0 \n a< free cbf29ce484222325")
)]
#[case::names(
    "names of holders (`name`)",
    "no",
    "yes",
    "a> name|_|me \n a< error",
    Some("a> name|_|me \n a< ok \n a> l|k|0 \n a< ok $t 33")
)]
#[case::a_time(
    "a time to reconnect that each client sets (`grace`)",
    "no",
    "yes",
    "a> grace|_|5 \n a< error",
    Some("a> grace|_|5 \n a< ok 0")
)]
#[case::messages(
    "messages (`publish`, `listen`)",
    "no",
    "no",
    "a> publish|c|x \n a< error \n a> listen|c| \n a< error",
    None
)]
fn what_the_reference_has(
    #[case] row: &str,
    #[case] there: &str,
    #[case] here: &str,
    #[case] recorded: &str,
    #[case] ours: Option<&str>,
) {
    is_in_the_guide(row, there, here);
    // Where the Go program has nothing, its last word is an error or as if nothing had been asked for.
    let has_it = !recorded.ends_with("< error") && !recorded.ends_with("hello|lost \n a< ok");
    assert_eq!(has_it, there == "yes");
    play(&Daemon::start(&[]), ours.unwrap_or(recorded));
}

/// Two tokens of one lock, one after the other: their first halves were recorded from the Go program.
#[test]
fn tokens_have_fences_as_in_the_reference() {
    is_in_the_guide("fences in tokens", "yes", "yes");
    let recorded = ["18ec81cc0a0ad13c814850e2de8e1d1d", "18ec81cc0a0ad13d74ab373aedc646f4"];
    let daemon = Daemon::start(&[]);
    let mut client = daemon.talk();
    let ours = [(); 2].map(|()| {
        let token = client.take("k", "0");
        assert_eq!(client.ask("r", "k", &token), "ok");
        token
    });
    for [first, second] in [recorded, ours.each_ref().map(String::as_str)] {
        assert_eq!(fence(second), fence(first) + 1, "{first} {second}");
    }
}

/// The Go program ignores the second line, and says what it says of all keys.
#[test]
fn one_key_has_statistics_of_its_own() {
    is_in_the_guide("the holders and waiters of one key (`stats key`)", "no", "yes");
    let recorded = r#"{"connections":2,"locks":[],"semaphores":[],"idle_locks":[{"key":"k1","idle_s":0.003}],"idle_semaphores":[]}"#;
    let recorded: serde_json::Value = serde_json::from_str(recorded).unwrap();
    assert!(recorded["locks"].is_array() && recorded["holders"].is_null());
    let daemon = Daemon::start(&[]);
    let mut client = daemon.talk();
    client.take("k1", "0");
    let reply = client.ask("stats", "key", "k1");
    assert!(
        reply.starts_with(r#"ok {"key":"k1","limit":1,"held":1,"waiters":0,"holders":[{"#),
        "{reply}"
    );
}

/// Both read `stats` as `ok ` and JSON; one sends `_`, the other nothing as the third line. The Go
/// client takes a line of 64 KiB, so 500 locks with names of ordinary length must fit into one.
#[test]
fn stats_of_five_hundred_locks_fit_the_clients() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.talk();
    for number in 0..500 {
        client.take(&format!("orders/customer-{number:06}"), "0 3600");
    }
    for argument in ["_", ""] {
        let reply = client.ask("stats", "_", argument);
        let body = reply.strip_prefix("ok ").unwrap();
        let stats: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(stats["locks"].as_array().unwrap().len(), 500);
        assert!(reply.len() < 65_536, "{} bytes", reply.len());
    }
}
