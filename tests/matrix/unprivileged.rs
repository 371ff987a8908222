//! A lock directory that only root may write (as newer systemd makes it), a service that is
//! not root, and ordinary users: nothing but the access that `etc/tmpfiles.d/lfpd.conf` grants.
//! What programs do there by themselves: `unmodified`. By LFP their users can lock.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rstest::rstest;
use testbed::{Sandbox, Session, User};

use crate::bench::PORT;

#[test]
#[ignore = "needs root: tests/run"]
fn the_grant_is_all_that_the_service_needs() {
    let sandbox = Sandbox::layout().port("ttyW0").installed().enter();
    let mut lfpd = Session::start(&sandbox, User::Lfpd, &[], User::Root);
    let (alice, bob) = (sandbox.sleeper(User::Alice), sandbox.sleeper(User::Bob));

    assert_eq!(lfpd.lock(PORT, alice.pid()), 200);
    let lock = std::fs::symlink_metadata(sandbox.path("/run/lock/LCK..ttyW0")).unwrap();
    assert_eq!((lock.uid(), lock.permissions().mode() & 0o7777), (User::Lfpd.uid(), 0o444));
    assert_eq!(lfpd.lock(PORT, bob.pid()), 450);
    assert_eq!(lfpd.unlock(PORT, bob.pid()), 450);
    assert_eq!(lfpd.unlock(PORT, alice.pid()), 200);
    assert_eq!(sandbox.locks(), [""; 0]);

    assert_eq!(lfpd.lock(PORT, bob.pid()), 200);
    bob.kill();
    assert_eq!(lfpd.lock(PORT, alice.pid()), 200, "bob's process is gone");
}

#[rstest]
#[case::none("0755", "root:root", User::Lfpd, 550)]
#[case::of_a_group("0775", "root:uucp", User::Uucp, 200)]
#[case::of_its_own("0755", "lfpd:lfpd", User::Lfpd, 200)]
#[ignore = "needs root: tests/run"]
fn other_ways_into_the_directory_do_as_well(
    #[case] mode: &str,
    #[case] owner: &str,
    #[case] user: User,
    #[case] code: u32,
) {
    let sandbox = Sandbox::with_lfpd().port("ttyW0").lock_dir(mode, owner).enter();
    let holder = sandbox.sleeper(User::Root);
    let mut lfpd = Session::start(&sandbox, user, &[], User::Root);
    assert_eq!(lfpd.lock(PORT, holder.pid()), code);
    assert_eq!(sandbox.locks().is_empty(), code == 550);
}
