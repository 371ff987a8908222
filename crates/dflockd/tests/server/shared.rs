//! Locks that readers share: the requests `rl` and `re`, and how they stand in line with `l` and `e`.

use crate::transcript::play;
use rstest::rstest;
use testbed::dflockd::Daemon;

#[rstest]
#[case::readers_share_and_a_writer_is_alone(
    "a> rl|k|0 \n a< ok $t 33 \n b> rl|k|0 60 \n b< ok $u 60 \n c> l|k|0 \n c< timeout \n
     a> r|k|$t \n a< ok \n c> l|k|0 \n c< timeout \n b> r|k|$u \n b< ok \n
     c> l|k|0 \n c< ok $v 33 \n a> rl|k|0 \n a< timeout \n c> r|k|$v \n c< ok \n a> rl|k|0 \n a< ok $w 33"
)]
#[case::no_reader_overtakes_a_waiting_writer(
    "a> rl|k|0 \n a< ok $t 33 \n b> l|k|20 \n stats \"waiters\":1 \n c> rl|k|0 \n c< timeout \n
     c> re|k| \n c< queued \n a> r|k|$t \n a< ok \n b< ok $u 33 \n b> r|k|$u \n b< ok \n c> w|k|9 \n c< ok $v 33"
)]
#[case::two_phases(
    "a> re|k|40 \n a< acquired $t 40 \n b> re|k| \n b< acquired $u 33 \n b> re|k| \n b< error_already_enqueued \n
     a> w|k|0 \n a< ok $t 40 \n b> w|k|0 \n b< ok $u 33 \n b> w|k|0 \n b< error_not_enqueued"
)]
#[case::a_lock_is_shared_and_not_a_semaphore(
    "a> sl|p|0 2 \n a< ok $t 33 \n b> rl|p|0 \n b< error_limit_mismatch \n b> re|p| \n b< error_limit_mismatch \n
     b> rl|k|0 \n b< ok $u 33 \n a> sl|k|0 2 \n a< error_limit_mismatch \n a> sl|k|0 1 \n a< timeout \n
     stats \"locks\":[{\"key\":\"k\""
)]
fn conversation(#[case] script: &str) {
    play(&Daemon::start(&[]), script);
}

/// A client that does not ask for more reads the reply of the reference, and nothing else.
#[test]
fn stats_tell_readers_to_who_asks() {
    let daemon = Daemon::start(&[]);
    let mut talker = daemon.talk();
    for number in 1..=3 {
        assert!(talker.ask("rl", "k", "0").starts_with("ok "));
        let long = talker.ask("stats", "long", "_");
        let readers = format!(",\"readers\":{number},\"owner_conn_id\":1,");
        assert!(long.contains(&readers), "{long}");
        assert!(!daemon.stats().contains("readers"));
    }
    assert!(talker.ask("l", "alone", "0").starts_with("ok "));
    assert_eq!(talker.ask("stats", "long", "_").matches("readers").count(), 1);
}

#[rstest]
#[case::max_waiters(
    &["--max-waiters", "1"],
    "a> rl|k|0 \n a< ok $t 33 \n b> rl|k|0 \n b< ok $u 33 \n c> e|k| \n c< queued \n
     d> rl|k|9 \n d< error_max_waiters \n d> rl|k|0 \n d< error_max_waiters \n d> re|k| \n d< error_max_waiters \n
     d> l|k|9 \n d< error_max_waiters \n c- \n stats \"waiters\":0 \n d> rl|k|0 \n d< ok $v 33")]
#[case::holds_stay(
    &["--auto-release-on-disconnect=false"],
    "a> rl|k|0 50 \n a< ok $t 50 \n b> rl|k|0 50 \n b< ok $u 50 \n a- \n b- \n stats \"connections\":1 \n
     c> l|k|0 \n c< timeout \n c> rl|k|0 \n c< ok $v 33 \n c> r|k|$t \n c< ok \n c> r|k|$u \n c< ok \n
     c> r|k|$v \n c< ok \n c> l|k|0 \n c< ok $w 33")]
fn conversation_with_options(#[case] options: &[&str], #[case] script: &str) {
    play(&Daemon::start(options), script);
}
