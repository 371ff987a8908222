//! The mode of a lock file is the claim's, whatever the umask is. Alone in its program: a umask
//! belongs to the whole process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::MetadataExt;

use nix::sys::stat::{Mode, umask};
use pidlockfile::{Attempt, Directory, Found, Name, NewFile};

#[test]
fn the_mode_is_the_claims_whatever_the_umask() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    for mask in [0o000, 0o022, 0o077, 0o777] {
        umask(Mode::from_bits_retain(mask));
        for mode in [0o444, 0o644, 0o666, 0o600] {
            let name = Name::new(format!("{mask:o}-{mode:o}")).unwrap();
            let mut claim = NewFile::new(b"x", "t");
            claim.mode = mode;
            directory.publish(&name, &claim).unwrap();
            assert_eq!(mode_of(scratch.path(), &name), mode, "umask {mask:o}");
            let Found::File(opened) = directory.read(&name, 64).unwrap() else { panic!("a file") };
            claim.content = b"y";
            let breaking = directory.replace(&name, opened, &claim).unwrap();
            assert!(matches!(breaking, Attempt::Done(_)));
            assert_eq!(mode_of(scratch.path(), &name), mode, "umask {mask:o}");
        }
    }
}

fn mode_of(path: &std::path::Path, name: &Name) -> u32 {
    std::fs::metadata(path.join(name.as_str())).unwrap().mode() & 0o7777
}
