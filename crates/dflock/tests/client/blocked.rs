//! A client of the library that blocks its runtime.

use crate::daemon::Daemon;
use crate::library::{client, turn};
use crate::program::assert_free;

/// A holder that blocks its thread renews nothing; it finds out as soon as it looks again.
#[test]
fn who_blocks_the_runtime_loses() {
    let daemon = Daemon::start(&[]);
    turn(async {
        let mut lease =
            client(&daemon).lock("k").unwrap().ttl_s(1).unwrap().acquire(0).await.unwrap().unwrap();
        assert_free(&daemon);
        lease.lost().await;
        assert!(lease.held_until().is_none());
    });
}
