//! Every row of both protocol documents and of the list of their disagreements.

use crate::transcript::play;
use rstest::rstest;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, until};

#[rstest]
// --- the first document, command by command
#[case::acquire_default_lease("a> l|my-job|10 \n a< ok $t 33")]
#[case::acquire_own_lease("a> l|my-job|10 60 \n a< ok $t 60")]
#[case::acquire_timeout("a> l|k|0 \n a< ok $t 33 \n b> l|k|1 \n b< timeout")]
#[case::try_lock_does_not_wait("a> l|k|0 \n a< ok $t 33 \n b> l|k|0 \n b< timeout")]
#[case::enqueue_free("a> e|my-job| \n a< acquired $t 33")]
#[case::enqueue_own_lease("a> e|k|60 \n a< acquired $t 60")]
#[case::enqueue_behind_another(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n a> r|k|$t \n a< ok \n
     b> w|k|10 \n b< ok $u 33"
)]
#[case::enqueue_acquired_then_wait("a> e|k|40 \n a< acquired $t 40 \n a> w|k|10 \n a< ok $t 40")]
#[case::wait_timeout(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n b> w|k|1 \n b< timeout \n
     stats \"waiters\":0"
)]
#[case::release("a> l|k|0 \n a< ok $t 33 \n a> r|k|$t \n a< ok \n a> r|k|$t \n a< error")]
#[case::release_unknown_key("a> r|nokey|0123456789abcdef0123456789abcdef \n a< error")]
#[case::release_foreign_token("a> l|k|0 \n a< ok $t 33 \n a> r|k|nonsense \n a< error")]
#[case::release_token_with_blank_inside("a> l|k|0 \n a< ok $t 33 \n a> r|k|$t x \n a< error")]
#[case::release_blanks_around("a> l|k|0 \n a< ok $t 33 \n a> r|k| \t$t\t \n a< ok")]
#[case::renew_default("a> l|k|0 60 \n a< ok $t 60 \n a> n|k|$t \n a< ok 33")]
#[case::renew_own("a> l|k|0 \n a< ok $t 33 \n a> n|k|$t 60 \n a< ok 60")]
#[case::renew_unknown_key("a> n|nokey|0123456789abcdef0123456789abcdef \n a< error")]
#[case::renew_foreign_token("a> l|k|0 \n a< ok $t 33 \n a> n|k|nonsense 5 \n a< error")]
// --- semaphores
#[case::slots(
    "a> sl|p|10 2 \n a< ok $t 33 \n b> sl|p|0 2 60 \n b< ok $u 60 \n c> sl|p|0 2 \n c< timeout"
)]
#[case::slot_comes_free(
    "a> sl|p|0 2 \n a< ok $t 33 \n a> sl|p|0 2 \n a< ok $u 33 \n b> sl|p|10 2 \n
     stats \"waiters\":1 \n a> sr|p|$t \n a< ok \n b< ok $v 33"
)]
#[case::slot_enqueue(
    "a> se|p|1 \n a< acquired $t 33 \n b> se|p|1 7 \n b< queued \n a> sr|p|$t \n a< ok \n
     b> sw|p|10 \n b< ok $u 7"
)]
#[case::slot_renew(
    "a> sl|p|0 3 \n a< ok $t 33 \n a> sn|p|$t 50 \n a< ok 50 \n a> sn|p|$t \n a< ok 33"
)]
#[case::slot_release("a> sl|p|0 3 \n a< ok $t 33 \n a> sr|p|$t \n a< ok \n a> sr|p|$t \n a< error")]
#[case::slot_wait_not_enqueued("a> sw|p|0 \n a< error_not_enqueued")]
#[case::limit_mismatch(
    "a> sl|p|0 3 \n a< ok $t 33 \n a> sl|p|0 2 \n a< error_limit_mismatch \n
     a> se|p|4 \n a< error_limit_mismatch"
)]
// --- the second document's statuses
#[case::ping("a> ping|_|_ \n a< ok \n a> ping|| \n a< ok")]
#[case::hello("a> ping|hello|_ \n a< ok fences lost")]
#[case::hello_of_one_who_asks_for_slots("a> ping|hello|lost slots \n a< ok fences lost slots")]
#[case::the_slot_is_told_to_those_who_ask(
    "a> ping|hello|slots \n a< ok fences lost slots \n a> sl|p|0 4 \n a< ok $t 33 0 \n
     b> sl|p|0 4 \n b< ok $u 33 \n a> se|p|4 7 \n a< acquired $v 7 2 \n a> sw|p|0 \n a< ok $v 7 2 \n
     b> se|p|4 \n b< acquired $w 33 \n b> sw|p|0 \n b< ok $w 33 \n
     a> sl|p|10 4 \n stats \"waiters\":1 \n b> sr|p|$u \n b< ok \n a< ok $x 33 1 \n
     a> sn|p|$t \n a< ok 33"
)]
#[case::a_lock_has_no_slot(
    "a> ping|hello|slots \n a< ok fences lost slots \n a> l|k|0 \n a< ok $t 33 \n a> e|e| \n a< acquired $u 33 \n
     a> rl|r|0 \n a< ok $v 33 \n a> sl|one|0 1 \n a< ok $w 33 \n a> al|x y| \n a< ok $x 33 $y 33"
)]
#[case::slots_are_asked_for_anew(
    "a> ping|hello|slots \n a< ok fences lost slots \n a> ping|hello|lost \n a< ok fences lost \n
     a> sl|p|0 2 \n a< ok $t 33"
)]
#[case::already_enqueued(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n b> e|k| \n b< error_already_enqueued"
)]
#[case::not_enqueued("a> w|k|0 \n a< error_not_enqueued")]
#[case::wait_once(
    "a> e|k| \n a< acquired $t 33 \n a> w|k|0 \n a< ok $t 33 \n
     a> w|k|0 \n a< error_not_enqueued"
)]
#[case::wait_on_another_connection(
    "a> e|k| \n a< acquired $t 33 \n b> w|k|0 \n b< error_not_enqueued"
)]
#[case::wait_pops_its_place(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n b> w|k|0 \n b< timeout \n
     b> w|k|0 \n b< error_not_enqueued \n b> e|k| \n b< queued"
)]
#[case::lease_expired_before_wait(
    "a> e|k|1 \n a< acquired $t 1 \n log lease \n a> w|k|5 \n a< error_lease_expired \n
     a> w|k|5 \n a< error_not_enqueued"
)]
#[case::stats_empty(
    "a> stats|_|_ \n
     a< ok {\"connections\":1,\"locks\":[],\"semaphores\":[],\"idle_locks\":[],\"idle_semaphores\":[]}")]
#[case::stats_locks(
    "a> l|k|0 \n a< ok $t 33 \n
     stats \"locks\":[{\"key\":\"k\",\"owner_conn_id\":1,\"lease_expires_in_s\":3"
)]
#[case::stats_waiters(
    "a> l|k|0 \n a< ok $t 33 \n b> l|k|9 \n c> e|k| \n c< queued \n stats \"waiters\":2}]"
)]
#[case::stats_semaphores(
    "a> sl|p|0 3 \n a< ok $t 33 \n
     stats \"semaphores\":[{\"key\":\"p\",\"limit\":3,\"holders\":1,\"waiters\":0}]"
)]
#[case::stats_limit_one_is_a_lock("a> sl|p|0 1 \n a< ok $t 33 \n stats \"semaphores\":[]")]
#[case::stats_idle(
    "a> l|k|0 \n a< ok $t 33 \n a> r|k|$t \n a< ok \n a> sl|p|0 2 \n a< ok $u 33 \n
     a> sr|p|$u \n a< ok \n stats \"idle_locks\":[{\"key\":\"k\",\"idle_s\": \n
     stats \"idle_semaphores\":[{\"key\":\"p\",\"idle_s\":"
)]
#[case::stats_quotes_keys(
    "a> l|a\"b<\\xff|0 \n a< ok $t 33 \n stats \"key\":\"a\\\"b\\u003c\\ufffd\""
)]
// --- the list of disagreements, row by row
#[case::row_1_faults_keep_the_connection(
    "a> x|k|1 \n a< error \n a> l|k|x \n a< error \n a> l||1 \n a< error \n a> l|k|-1 \n a< error \n
     a> r|k| \n a< error \n a> l|k| \n a< error \n a> l|k|1 0 \n a< error \n a> sl|k|1 0 \n a< error \n
     a> l|k|0 \n a< ok $t 33")]
#[case::row_4_one_key_space(
    "a> sl|k|0 1 \n a< ok $t 33 \n b> l|k|0 \n b< timeout \n a> r|k|$t \n a< ok \n
     b> l|k|0 \n b< ok $u 33 \n b> sn|k|$u \n b< ok 33 \n
     a> sl|k|0 2 \n a< error_limit_mismatch \n b> sr|k|$u \n b< ok"
)]
#[case::row_4_lock_on_a_semaphore(
    "a> sl|k|0 3 \n a< ok $t 33 \n a> l|k|0 \n
     a< error_limit_mismatch \n a> e|k| \n a< error_limit_mismatch"
)]
#[case::row_4_a_remembered_limit_can_be_changed(
    "a> sl|k|0 3 \n a< ok $t 33 \n a> l|k|0 \n a< error_limit_mismatch \n
     a> sr|k|$t \n a< ok \n a> l|k|0 \n a< ok $u 33 \n b> sl|k|0 3 \n b< error_limit_mismatch"
)]
#[case::row_9_gone_while_waiting(
    "a> l|k|0 \n a< ok $t 33 \n b> l|k|1000 \n stats \"waiters\":1 \n b- \n stats \"waiters\":0"
)]
#[case::row_10_the_lost_token_is_not_handed_out(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k|1 \n b< queued \n a> r|k|$t \n a< ok \n
     log lease \n c> l|k|0 \n c< ok $u 33 \n b> w|k|5 \n b< error_lease_expired"
)]
#[case::row_16_auth_without_a_token("a> auth|_|secret \n a< error \n a> ping|_|_ \n a< ok")]
#[case::row_17_blank_in_key(
    "a> l|a b|0 \n a< error \n a> l|a\\tb|0 \n a< error \n a> l|a\\rb|0 \n a< error"
)]
#[case::row_19_release_of_an_ended_lease(
    "a> l|k|0 1 \n a< ok $t 1 \n log lease \n a> r|k|$t \n a< error \n a> n|k|$t \n a< error"
)]
// --- queues
#[case::first_come_first_served(
    "a> l|k|0 \n a< ok $t 33 \n b> l|k|20 \n stats \"waiters\":1 \n c> l|k|20 \n stats \"waiters\":2 \n
     d> l|k|20 \n stats \"waiters\":3 \n a> r|k|$t \n a< ok \n b< ok $u 33 \n b> r|k|$u \n b< ok \n
     c< ok $v 33 \n c> r|k|$v \n c< ok \n d< ok $w 33")]
#[case::no_barging(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n a> r|k|$t \n a< ok \n a> l|k|0 \n a< timeout"
)]
#[case::not_reentrant("a> l|k|0 \n a< ok $t 33 \n a> l|k|1 \n a< timeout")]
#[case::enqueue_then_acquire_queue_like_strangers(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n b> l|k|1 \n b< timeout"
)]
#[case::several_keys_enqueued(
    "a> e|k| \n a< acquired $t 33 \n a> e|m| \n a< acquired $u 33 \n a> w|m|0 \n a< ok $u 33 \n
     a> w|k|0 \n a< ok $t 33"
)]
#[case::bad_wait_keeps_the_place(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n b> w|k| \n b< error \n b> w|k|x \n b< error \n
     a> r|k|$t \n a< ok \n b> w|k|9 \n b< ok $u 33")]
#[case::release_deletes_the_record(
    "a> e|k| \n a< acquired $t 33 \n a> r|k|$t \n a< ok \n a> w|k|0 \n a< error_not_enqueued \n
     a> e|k| \n a< acquired $u 33"
)]
#[case::tokens_work_on_any_connection(
    "a> l|k|0 \n a< ok $t 33 \n b> n|k|$t 50 \n b< ok 50 \n b> r|k|$t \n b< ok"
)]
#[case::bogus_token_makes_no_key(
    "a> r|k|x \n a< error \n a> n|k|x \n a< error \n stats \"idle_locks\":[]"
)]
// --- leaving
#[case::close_releases(
    "a> l|k|0 \n a< ok $t 33 \n b> l|k|20 \n stats \"waiters\":1 \n a- \n b< ok $u 33"
)]
#[case::close_frees_all_slots(
    "a> sl|p|0 2 \n a< ok $t 33 \n a> sl|p|0 2 \n a< ok $u 33 \n b> sl|p|20 2 \n c> sl|p|20 2 \n
     stats \"waiters\":2 \n a- \n b< ok $v 33 \n c< ok $w 33"
)]
#[case::close_drops_the_place(
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n c> l|k|20 \n stats \"waiters\":2 \n b- \n
     stats \"waiters\":1 \n a> r|k|$t \n a< ok \n c< ok $u 33"
)]
#[case::half_close_is_answered("a> l|k|0 \n a~ \n a< ok $t 33 \n a.")]
#[case::half_close_of_a_client_that_leaves_so(
    "a> l|k|0 \n a< ok $t 33 \n b> ping|hello|leaves \n b< ok fences lost \n b> l|k|20 \n
     stats \"waiters\":1 \n b~ \n b. \n stats \"waiters\":0"
)]
#[case::half_close_with_requests_behind(
    "a> l|k|0 \n a< ok $t 33 \n b> l|k|20 \n b> ping|_|_ \n b~ \n stats \"waiters\":1 \n
     a> r|k|$t \n a< ok \n b< ok $u 33 \n b< ok \n b."
)]
#[case::a_request_that_comes_while_another_waits(
    "a> l|k|0 \n a< ok $t 33 \n b> l|k|20 \n stats \"waiters\":1 \n b> ping|_|_ \n stats \"waiters\":1 \n
     a> r|k|$t \n a< ok \n b< ok $u 33 \n b< ok"
)]
#[case::a_request_and_a_half_close_that_come_while_another_waits(
    "a> l|k|0 \n a< ok $t 33 \n b> l|k|20 \n stats \"waiters\":1 \n b> ping|_|_ \n b~ \n stats \"waiters\":1 \n
     a> r|k|$t \n a< ok \n b< ok $u 33 \n b< ok \n b."
)]
#[case::pipelined_requests_are_served_in_order(
    "a> l|k|0 \n a> ping|_|_ \n a> x|| \n a> w|k|0 \n a< ok $t 33 \n a< ok \n a< error \n
     a< error_not_enqueued"
)]
fn conversation(#[case] script: &str) {
    play(&Daemon::start(&[]), script);
}

#[rstest]
#[case::max_locks(
    &["--max-locks", "2"],
    "a> l|k1|0 \n a< ok $t 33 \n a> sl|k2|0 2 \n a< ok $u 33 \n a> l|k3|0 \n a< error_max_locks \n
     a> e|k3| \n a< error_max_locks \n a> se|k3|2 \n a< error_max_locks \n a> l|k1|0 \n a< timeout")]
#[case::idle_keys_make_room(
    &["--max-locks", "1"],
    "a> l|k1|0 \n a< ok $t 33 \n b> l|k2|0 \n b< error_max_locks \n
     a> r|k1|$t \n a< ok \n b> l|k2|0 \n b< ok $u 33")]
#[case::max_waiters(
    &["--max-waiters", "1"],
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n c> l|k|9 \n c< error_max_waiters \n
     c> l|k|0 \n c< error_max_waiters \n c> e|k| \n c< error_max_waiters")]
#[case::already_enqueued_comes_before_max_waiters(
    &["--max-waiters", "1"],
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n b> e|k| \n b< error_already_enqueued")]
#[case::default_lease(&["--default-lease-ttl", "7"], "a> l|k|0 \n a< ok $t 7 \n a> n|k|$t \n a< ok 7")]
#[case::idle_keys_are_forgotten(
    &["--gc-interval", "1", "--gc-max-idle", "1"],
    "a> sl|k|0 3 \n a< ok $t 33 \n a> sr|k|$t \n a< ok \n
     stats \"idle_locks\":[],\"idle_semaphores\":[]} \n a> l|k|0 \n a< ok $u 33")]
#[case::row_6_silence(&["--read-timeout", "5"], "a> ping|_|_ \n a< ok \n a< error \n a. \n log code=10")]
#[case::row_8_holds_stay(
    &["--auto-release-on-disconnect=false"],
    "a> l|k|0 50 \n a< ok $t 50 \n a- \n stats \"connections\":1 \n b> l|k|0 \n b< timeout \n
     b> n|k|$t \n b< ok 33 \n b> r|k|$t \n b< ok \n b> l|k|0 \n b< ok $u 33")]
#[case::row_8_waiters_go(
    &["--auto-release-on-disconnect=false"],
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n c> l|k|99 \n stats \"waiters\":2 \n b- \n c- \n
     stats \"waiters\":0 \n a> r|k|$t \n a< ok \n a> l|k|0 \n a< ok $u 33")]
#[case::row_8_a_grant_nobody_saw_goes(
    &["--auto-release-on-disconnect=false"],
    "a> l|k|0 \n a< ok $t 33 \n b> e|k| \n b< queued \n a> r|k|$t \n a< ok \n b- \n
     stats \"idle_locks\":[{\"key\":\"k\" ")]
#[case::row_8_what_enqueue_told_stays(
    &["--auto-release-on-disconnect=false"],
    "a> e|k| \n a< acquired $t 33 \n a- \n stats \"connections\":1 \n b> r|k|$t \n b< ok")]
fn conversation_with_options(#[case] options: &[&str], #[case] script: &str) {
    play(&Daemon::start(options), script);
}

#[test]
fn the_code_of_a_fault_is_in_the_log() {
    let script = "a> l|k|1 2 3 \n a< error \n log code=8\n a> ping|_|_ \n a< ok";
    play(&Daemon::start(&[]), script);
}

/// Idle since the last hold was given back, not since somebody looked.
#[test]
fn idle_time_begins_with_the_release() {
    let daemon = Daemon::start(&[]);
    let mut talker = daemon.talk();
    for (take, key, arg) in [("l", "k", "0"), ("sl", "p", "0 2")] {
        let token = talker.token(take, key, arg);
        assert_eq!(talker.ask("r", key, &token), "ok");
    }
    let begun = Instant::now();
    until("a second goes by", || begun.elapsed() > Duration::from_millis(1100));
    let stats = daemon.stats();
    for kind in ["idle_locks", "idle_semaphores"] {
        let idle = stats.split(&format!("\"{kind}\":[")).nth(1).expect(kind);
        let seconds = idle.split("\"idle_s\":").nth(1).and_then(|rest| rest.chars().next());
        assert!(seconds.is_some_and(|digit| digit != '0'), "{stats}");
    }
}
