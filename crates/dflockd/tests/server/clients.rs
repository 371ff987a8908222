//! What the existing Go and TypeScript clients send in each of their calls, byte for byte, and the
//! replies they accept: exactly three fields with one blank between them in a grant, two in a
//! renewal, the bare word in everything else. The Python clients are run themselves, see `client`.

use crate::transcript::play;
use rstest::rstest;
use testbed::dflockd::Daemon;

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
