//! No descriptor stays open, whatever became of the attempt. Alone in its program: descriptors are
//! counted over the whole process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use pidlockfile::{Directory, Found, Name, NewFile, OpenFile};

fn judge(directory: &Directory, name: &Name) -> OpenFile {
    match directory.read(name, 64).unwrap() {
        Found::File(opened) => opened,
        other @ (Found::Nothing | Found::Obstacle(_)) => panic!("found {other:?}"),
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn every_way_through_gives_its_descriptors_back() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let name = Name::new("lock").unwrap();
    let mut claim = NewFile::new(b"x", "t");
    claim.mode = 0o644;
    let before = open_descriptors();
    for _ in 0..100 {
        drop(directory.publish(&name, &claim).unwrap());
        drop(directory.publish(&name, &claim).unwrap());
        let late = judge(&directory, &name);
        drop(directory.replace(&name, judge(&directory, &name), &claim).unwrap());
        drop(directory.replace(&name, late, &claim).unwrap());
        let held = judge(&directory, &name);
        directory.try_release(&name, judge(&directory, &name)).unwrap();
        directory.release(&name, held, "t").unwrap();
        directory.publish(&name, &NewFile::new(b"x", "no/prefix")).unwrap_err();
        directory.sweep("t", std::time::SystemTime::now()).unwrap();
    }
    assert_eq!(open_descriptors(), before);
}
