//! Names that change between the look and the opening: whatever is planted there at whatever
//! moment, reading ends, follows nothing, and tells of what was there at one time.

use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use rstest::rstest;

use super::faults::{Fault, call, under};
use super::schedule::{Beyond, Orders, Schedule};
use crate::{Directory, Found, Name, Obstacle};

#[derive(Clone, Copy, Debug)]
enum Planted {
    Nothing,
    Link,
    DanglingLink,
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
        Planted::Directory => std::fs::create_dir(at).unwrap(),
        Planted::Fifo => mkfifo(at, Mode::S_IRWXU).unwrap(),
        Planted::Socket => drop(UnixListener::bind(at).unwrap()),
        Planted::Device => mknod(at, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3)).unwrap(),
        Planted::File => std::fs::write(at, "new").unwrap(),
    }
}

#[rstest]
#[case(Planted::Nothing, None)]
#[case(Planted::Link, Some(Obstacle::Link))]
#[case(Planted::DanglingLink, Some(Obstacle::Link))]
#[case(Planted::Directory, Some(Obstacle::Directory))]
#[case(Planted::Fifo, Some(Obstacle::Special))]
#[case(Planted::Socket, Some(Obstacle::Special))]
#[case(Planted::File, None)]
#[ignore = "needs root: tests/run"]
fn a_name_swapped_at_any_moment_is_read_as_one_or_the_other(
    #[case] planted: Planted,
    #[case] obstacle: Option<Obstacle>,
) {
    swap(planted, obstacle);
}

/// Only root may make one.
#[test]
#[ignore = "needs root: tests/run"]
fn a_device_swapped_in_at_any_moment_is_no_lock() {
    swap(Planted::Device, Some(Obstacle::Special));
}

fn swap(planted: Planted, obstacle: Option<Obstacle>) {
    let mut orders = Orders::new(3);
    let mut answers = [0, 0];
    while let Some(script) = orders.next() {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path().join("lock");
        std::fs::write(&at, "old").unwrap();
        let directory = Directory::open(scratch.path()).unwrap();
        let schedule = Schedule::new(2, script.clone(), Beyond::Same, Box::new(|| {}));
        let found = std::thread::scope(|scope| {
            let turn = schedule.turn(1);
            let reader = scope.spawn(move || {
                let name = Name::new("lock").unwrap();
                let trace = under(Fault::None, &[], Some(turn.clone()), || {
                    directory.read(&name, 64).unwrap()
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
            Found::File(judged) if judged.content() == b"old" => answers[0] += 1,
            Found::File(judged) => {
                assert!(matches!(planted, Planted::File), "{planted:?} was read");
                assert_eq!(judged.content(), b"new");
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
