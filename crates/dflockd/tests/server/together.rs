//! Several keys in one request, over several servers on one etcd: all of them or none, whatever fails.

use rstest::rstest;
use testbed::dflockd::etcd::Cluster;
use testbed::dflockd::{Daemon, program_on, until};

/// etcd stands still while several keys are asked for, and comes back: what was answered is true, and what was not
/// leaves nothing behind.
#[rstest]
#[case::no_quorum(&[1, 2])]
#[case::all(&[1, 2, 3])]
#[ignore = "needs programs: tests/run"]
fn an_answer_that_is_lost_leaves_no_hold(#[case] stopped: &[u8]) {
    let mut cluster = Cluster::start(&[]);
    let store = cluster.store();
    let fronts = [(); 2].map(|()| Daemon::run(program_on(&store).args(["--port", "0"])));
    let mut talker = fronts[0].talk();
    assert!(talker.ask("al", "x y", "60").starts_with("ok "));
    stopped.iter().for_each(|member| cluster.stop(*member));
    talker.say(b"al\na b c\n600\n");
    // Longer than a server waits for etcd.
    assert_eq!(talker.line(), "error_draining");
    stopped.iter().for_each(|member| cluster.go_on(*member));
    let mut reply = String::new();
    until("the others have them", || {
        reply = when_it_is_back(&fronts[1], "c b a");
        reply != "timeout"
    });
    assert_eq!(reply.split(' ').count(), 7, "{reply}");
    assert_eq!(when_it_is_back(&fronts[0], "a"), "timeout");
}

/// The answer of a server that may not have heard of etcd for a while. What it takes stays.
fn when_it_is_back(front: &Daemon, keys: &str) -> String {
    let mut reply = String::new();
    until("it is back", || {
        let mut talker = front.talk();
        reply = talker.ask("al", keys, "60");
        // The end of the connection would release it.
        std::mem::forget(talker);
        reply != "error_draining"
    });
    reply
}
