//! Programs that use ports and locks where little is allowed: in signal handlers, beside other threads, in
//! the child of vfork(2), without a free descriptor. Each runs for seconds and ends by itself, and leaves
//! the port free. `LFP_TEST_SECONDS=60` lets each run so long.

use std::time::Duration;

use rstest::rstest;
use testbed::{LIMIT, User, comes};

use crate::ground::{Ground, LOCK, OTHER_PORT, PORT, number};

#[rstest]
#[case::in_a_handler_above_malloc("handler")]
#[case::with_another_thread("thread")]
#[case::in_the_child_of_vfork("vfork")]
#[case::at_the_limit_of_descriptors("limit")]
#[ignore = "needs root: tests/run"]
fn the_heap_is_left_alone_and_the_port_is_free(#[case] mode: &str) {
    let time = Duration::from_secs(number("LFP_TEST_SECONDS", 3));
    let seconds = time.as_secs().to_string();
    let ground = Ground::with_program("handlers");
    let _daemon = ground.serve();
    let words = ["/tmp/handlers", mode, PORT, LOCK, &seconds, OTHER_PORT];
    let command = ground.preloaded(&words).user(User::Alice);
    let process = command.env("LFP_PORTS", &format!("1:{PORT}:{OTHER_PORT}")).spawn();
    let end = process.wait(time + LIMIT);
    println!("{end}");
    assert!(end.code() == 0 && end.output().ends_with("done\n"), "{end}");
    assert!(!end.output().contains("no lock for"), "{end}");
    assert!(comes(|| ground.sandbox.read(LOCK).is_none()), "its process is gone");
}
