//! Links, directories, special files and other things that a stranger may plant under a name: the name is busy, and
//! they are neither followed nor removed. If they are planted while the name is read, reading ends, and its result is
//! what was there at one moment.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use rstest::rstest;
use rustix::fs::{FlockOperation, flock};

use super::faults::{Fault, call, under};
use super::schedule::{Beyond, Orders, Schedule};
use super::{EVERYTHING, NO_RENAME_FLAGS, Unknown, claim, judge, name};
use crate::{Attempt, Directory, Found, Obstacle};

#[derive(Clone, Copy, Debug)]
enum Planted {
    Nothing,
    Link,
    DanglingLink,
    LinkToItself,
    Directory,
    Fifo,
    Socket,
    Device,
    File,
}

fn plant(planted: Planted, at: &Path) {
    let target = at.with_file_name("target");
    match planted {
        Planted::Nothing => {}
        Planted::Link => {
            std::fs::write(&target, "secret").unwrap();
            std::os::unix::fs::symlink(&target, at).unwrap();
        }
        Planted::DanglingLink => std::os::unix::fs::symlink(&target, at).unwrap(),
        Planted::LinkToItself => std::os::unix::fs::symlink(at, at).unwrap(),
        Planted::Directory => std::fs::create_dir(at).unwrap(),
        Planted::Fifo => mkfifo(at, Mode::S_IRWXU).unwrap(),
        Planted::Socket => drop(UnixListener::bind(at).unwrap()),
        // Needs root.
        Planted::Device => mknod(at, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3)).unwrap(),
        Planted::File => std::fs::write(at, "new").unwrap(),
    }
}

#[rstest]
#[case(Planted::Link, Obstacle::Link)]
#[case(Planted::DanglingLink, Obstacle::Link)]
#[case(Planted::LinkToItself, Obstacle::Link)]
#[case(Planted::Directory, Obstacle::Directory)]
#[case(Planted::Fifo, Obstacle::Special)]
#[case(Planted::Socket, Obstacle::Special)]
#[case(Planted::Device, Obstacle::Special)]
#[ignore = "needs root: tests/run"]
fn an_entry_that_is_no_regular_file_is_busy_and_stays(
    #[case] planted: Planted,
    #[case] obstacle: Obstacle,
) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    // A stale lock was judged before, so that there is something to break and release with.
    directory.publish(&name(), &claim(b"old")).unwrap();
    let [to_break, to_release] = [(), ()].map(|()| judge(&directory).unwrap().unwrap());
    std::fs::remove_file(scratch.path().join("lock")).unwrap();
    // The second name is that of a draft of a process that is gone: no process has the largest number.
    let draft = format!("t.{}.0123456789abcdef.tmp", i32::MAX);
    let places = ["lock", &draft].map(|name| scratch.path().join(name));
    places.iter().for_each(|at| plant(planted, at));
    let state = || {
        let inode = |at: &PathBuf| std::fs::symlink_metadata(at).map(|it| (it.ino(), it.mode()));
        let secret = std::fs::read(scratch.path().join("target")).ok();
        (places.each_ref().map(|at| inode(at).unwrap()), secret)
    };
    let (before, files) = (state(), directory.names().unwrap().len());

    assert!(matches!(directory.read(&name(), 64).unwrap(), Found::Obstacle(o) if o == obstacle));
    assert!(directory.publish(&name(), &claim(b"new")).unwrap().is_none());
    let breaking = directory.replace(&name(), to_break, &claim(b"new")).unwrap();
    assert!(matches!(breaking, Attempt::Changed));
    assert_eq!(directory.release(&name(), to_release, "t").unwrap(), Attempt::Changed);
    let later = SystemTime::now() + Duration::from_secs(3600);
    assert_eq!(directory.sweep("t", later).unwrap(), 0);
    assert_eq!((state(), directory.names().unwrap().len()), (before, files));
}

#[rstest]
#[case(Planted::Nothing, None)]
#[case(Planted::Link, Some(Obstacle::Link))]
#[case(Planted::DanglingLink, Some(Obstacle::Link))]
#[case(Planted::Directory, Some(Obstacle::Directory))]
#[case(Planted::Fifo, Some(Obstacle::Special))]
#[case(Planted::Socket, Some(Obstacle::Special))]
#[case(Planted::Device, Some(Obstacle::Special))]
#[case(Planted::File, None)]
#[ignore = "needs root: tests/run"]
fn a_name_swapped_at_any_moment_is_read_as_one_or_the_other(
    #[case] planted: Planted,
    #[case] obstacle: Option<Obstacle>,
) {
    let mut orders = Orders::new(3);
    let mut answers = [0, 0];
    while let Some(script) = orders.next() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path().join("lock");
        std::fs::write(&at, "old").unwrap();
        let directory = Directory::open(scratch.path()).unwrap();
        let (look, is_private) = (Box::new(|| {}), Box::new(|_, _: &str, _: &str| false));
        let schedule = Schedule::new(2, script.clone(), Beyond::Same, look, is_private);
        let found = std::thread::scope(|scope| {
            let turn = schedule.turn(1);
            let reader = scope.spawn(move || {
                let trace = under(Fault::None, &[], Some(turn.clone()), || {
                    directory.read(&name(), 64).unwrap()
                });
                turn.finish();
                trace.result
            });
            let turn = schedule.turn(0);
            let at = &at;
            scope.spawn(move || {
                under(Fault::None, &[], Some(turn.clone()), || {
                    let step = |work: &dyn Fn()| {
                        call("foreign", || {
                            work();
                            Ok(())
                        })
                    };
                    step(&|| std::fs::remove_file(at).unwrap()).unwrap();
                    step(&|| plant(planted, at)).unwrap();
                });
                turn.finish();
            });
            reader.join().unwrap()
        });
        match found {
            Found::File(opened) if opened.content() == b"old" => answers[0] += 1,
            Found::File(opened) => {
                assert!(matches!(planted, Planted::File), "{planted:?} was read");
                assert_eq!(opened.content(), b"new");
                answers[1] += 1;
            }
            Found::Obstacle(seen) => {
                assert_eq!(Some(seen), obstacle);
                answers[1] += 1;
            }
            Found::Nothing => {}
        }
        orders.learn(&script, &schedule.story().0);
    }
    let both = answers[0] > 0 && (answers[1] > 0 || matches!(planted, Planted::Nothing));
    assert!(both, "{planted:?}: {answers:?}");
}

/// A program that keeps no rules writes its own number into a stale lock, as UUCP does, at any moment of its removal. If it
/// finds one under the name, the lock is its own from then on. The other process may stand still there for as long as it
/// takes this program to be sure.
#[rstest]
fn a_stale_lock_that_is_taken_over_in_place_stays(
    #[values(EVERYTHING, NO_RENAME_FLAGS)] unknown: Unknown,
    #[values(false, true)] is_held: bool,
) {
    let mut orders = Orders::new(1);
    let mut answers = [0, 0];
    while let Some(script) = orders.next() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path().join("lock");
        std::fs::write(&at, "old").unwrap();
        let stranger = std::fs::File::open(&at).unwrap();
        if is_held {
            flock(&stranger, FlockOperation::NonBlockingLockExclusive).unwrap();
        }
        let directory = Directory::open(scratch.path()).unwrap();
        let mut opened = judge(&directory).unwrap().unwrap();
        let (look, is_private) = (Box::new(|| {}), Box::new(|_, _: &str, _: &str| false));
        let schedule = Schedule::new(2, script.clone(), Beyond::Same, look, is_private);
        let has_written = std::thread::scope(|scope| {
            let turn = schedule.turn(1);
            let remove = || match is_held {
                true => directory.release(&name(), opened, "t").map(|_| ()),
                false => {
                    let prefix = Some("t".as_ref());
                    directory.try_release_each(&[name()], &mut opened, prefix).map(|_| ())
                }
            };
            scope.spawn(move || {
                under(Fault::None, unknown, Some(turn.clone()), remove).result.unwrap();
                turn.finish();
            });
            let turn = schedule.turn(0);
            let at = &at;
            let writer = scope.spawn(move || {
                let write = || {
                    let file = std::fs::OpenOptions::new().write(true).open(at);
                    Ok(file.is_ok_and(|mut file| file.write_all(b"new").is_ok()))
                };
                let written =
                    under(Fault::None, &[], Some(turn.clone()), || call("foreign", write));
                turn.finish();
                written.result.unwrap()
            });
            writer.join().unwrap()
        });
        let expected = has_written.then(|| "new".to_owned());
        assert_eq!(std::fs::read_to_string(&at).ok(), expected, "{:?}", schedule.story().1);
        answers[usize::from(has_written)] += 1;
        orders.learn(&script, &schedule.story().0);
    }
    assert!(answers[0] > 0 && answers[1] > 3, "{answers:?}");
}
