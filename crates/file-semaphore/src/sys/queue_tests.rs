//! The line as waiters come, leave and die in every order.

use rstest::rstest;

use super::*;

struct Place {
    scratch: tempfile::TempDir,
    directory: Directory,
    lock: Name,
}

impl Place {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Directory::open(scratch.path()).unwrap();
        Self { scratch, directory, lock: Name::new("a").unwrap() }
    }

    fn queue(&self) -> Queue<'_> {
        Queue { directory: &self.directory, lock: &self.lock, mode: 0o644 }
    }

    fn join(&self) -> Ticket<'_> {
        self.queue().join().unwrap()
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.scratch.path()).unwrap().count()
    }
}

/// As kill -9 would have it: the descriptors are closed, and nothing is tidied.
fn die(ticket: Ticket<'_>) {
    release_flock(&ticket.0.file);
    std::mem::forget(ticket);
}

/// Three in a line of four leave, in every order; the one that stays becomes the first when all
/// before it are gone, and not earlier.
#[rstest]
fn waiters_may_leave_a_line_in_any_order(
    #[values(0, 1, 2, 3)] stays: usize,
    #[values([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])] order: [usize; 3],
    #[values([false; 3], [true; 3], [true, false, true], [false, true, false])] killed: [bool; 3],
) {
    let place = Place::new();
    let mut line: Vec<Option<Ticket<'_>>> = (0..4).map(|_| Some(place.join())).collect();
    let others: Vec<usize> = (0..4).filter(|index| *index != stays).collect();
    for (step, which) in order.into_iter().enumerate() {
        let leaver = line[others[which]].take().unwrap();
        if killed[step] {
            die(leaver)
        } else {
            drop(leaver)
        }
        let first = line[..stays].iter().all(Option::is_none);
        assert_eq!(line[stays].as_mut().unwrap().is_first(), first, "step {step}");
    }
    let mut newcomer = place.join();
    assert!(!newcomer.is_first() && place.queue().exists(), "somebody is before");
    line.clear();
    assert!(newcomer.is_first());
    drop(newcomer);
    let dead = killed.iter().filter(|it| **it).count();
    assert!(place.files() <= dead, "no more than the dead have left");
    assert!(!place.queue().exists());
}

#[test]
fn tickets_of_the_dead_are_swept_and_those_of_the_living_stay() {
    let place = Place::new();
    assert!(!place.queue().sweep());
    let ticket = place.join();
    assert!(!place.queue().sweep(), "somebody waits");
    die(ticket);
    assert!(place.queue().sweep());
    assert_eq!(place.files(), 0);
}

#[rstest]
#[case::not_a_ticket("b", b"no name of ours")]
#[case::another_file("b", b"../etc/passwd")]
#[case::itself("a.queue", b"a.queue")]
#[case::no_text("b", b"\xff\xfe")]
fn a_queue_file_with_foreign_content_is_no_obstacle(#[case] other: &str, #[case] content: &[u8]) {
    let place = Place::new();
    std::fs::write(place.scratch.path().join(other), "x").unwrap();
    std::fs::write(place.scratch.path().join("a.queue"), content).unwrap();
    assert!(place.join().is_first());
    assert_eq!(place.scratch.path().join(other).exists(), other != "a.queue");
}

#[test]
fn a_directory_or_a_link_in_the_place_of_the_line_is_no_obstacle() {
    let place = Place::new();
    let queue = place.scratch.path().join("a.queue");
    std::fs::create_dir(&queue).unwrap();
    assert!(place.queue().join().is_none_or(|mut ticket| ticket.is_first()));
    let place = Place::new();
    std::os::unix::fs::symlink("/etc/passwd", place.scratch.path().join("a.queue")).unwrap();
    assert!(place.queue().join().is_none_or(|mut ticket| ticket.is_first()));
}

/// A waiter that is passed over once is not passed over by others: its name says where those before it are.
#[test]
fn a_waiter_that_passed_another_and_died_hides_none() {
    let place = Place::new();
    let mut line: Vec<_> = (0..4).map(|_| place.join()).collect();
    let mut last = line.pop().unwrap();
    let mut third = line.pop().unwrap();
    drop(line.pop());
    assert!(!third.is_first());
    die(third);
    assert!(!last.is_first(), "the first still waits");
    drop(line);
    assert!(last.is_first());
    drop(last);
    assert_eq!(place.files(), 0);
}

/// The only waiter leaves. A second one comes between its look and its step; then the second is put back,
/// unless a third has begun another line.
#[rstest]
fn a_waiter_that_comes_while_the_only_one_leaves_is_put_back(
    #[values(false, true)] third_comes: bool,
    #[values(false, true)] second_leaves_first: bool,
) {
    let place = Place::new();
    let last = last_name(&place.lock).unwrap();
    let leaving = place.join();
    let mut second = Some(place.join());
    let aside = place.queue().fresh().unwrap();
    place.queue().rename(&last, &aside, Rename::NoReplace).unwrap();
    let third = third_comes.then(|| place.join());
    if second_leaves_first {
        second = None;
    }
    leaving.0.put_back_or_remove(&last, aside);
    if let Some(second) = &mut second {
        assert!(!second.is_first(), "the ticket before it is held");
    }
    drop(leaving);
    assert!(second.is_none_or(|mut second| second.is_first()));
    drop(third);
    assert_eq!(place.files(), 0);
}

/// The last ones give up while the first stays. They leave a ticket between them, which is no waiter's.
#[test]
fn the_last_ones_leave_one_ticket_to_the_first() {
    let place = Place::new();
    let mut first = place.join();
    for _ in 0..20 {
        let mut all: Vec<_> = (0..3).map(|_| place.join()).collect();
        assert!(all.iter_mut().all(|ticket| !ticket.is_first()));
        all.into_iter().rev().for_each(drop);
    }
    assert!(first.is_first());
    assert!(place.queue().has_waiters(), "the first waits");
    assert!(place.files() <= 2, "a last ticket, and the one before it");
    assert!(!place.queue().sweep());
    drop(first);
    assert_eq!(place.files(), 0);
}

#[test]
fn a_ticket_is_its_content() {
    let place = Place::new();
    assert!(place.queue().is_ticket(b"a.12.0123456789abcdef.tmp"));
    assert!(!place.queue().is_ticket(b"b.12.0123456789abcdef.tmp"));
    assert!(!place.queue().is_ticket(b"pid=12\ntimestamp=1\n"));
    assert!(!place.queue().is_ticket(b""));
}
