//! Claimers, breakers, releasers and programs that know no rules, in every order of their system
//! calls up to a bound on preemptions, and in orders drawn by lot beyond it.
//!
//! What is checked in each order: never two holders; a holder's lock file stays in its place; the
//! name is never vacant while a stale lock is replaced; everybody comes to an end. What foreign
//! programs can do is not "nothing", but it is exactly what `lib.rs` says.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use nix::fcntl::{Flock, FlockArg};
use rstest::rstest;

use super::faults::{self, Fault, is_dead, under};
use super::schedule::{Beyond, IsPrivate, Orders, Schedule};
use super::{EVERYTHING, NO_RENAME_FLAGS, Unknown, claim, judge, name};
use crate::{Attempt, Directory, Entry, OpenFile, Published, temporary};

/// Orders drawn by lot beside the exhaustive ones.
const LOTS: u64 = 300;

const STALE: &[u8] = b"stale\n";
/// A stale lock whose owner lives, and will release it.
const AGED: &[u8] = b"stale, as it is old\n";
const LIVE: &[u8] = b"live\n";

/// The actors that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Publishes, or breaks what is stale; holds; withdraws.
    Claimer,
    /// The same, but never breaks.
    Waiter,
    /// Publishes, or breaks what is stale, and holds for ever.
    Keeper,
    /// Published the aged lock; releases it, stepping back from breakers.
    Owner,
    /// The same, past any flock at once.
    OwnerByForce,
    /// Holds `flock(2)` on the lock from the start, as anybody may who can read it.
    Stranger,
    /// Holds `flock(2)` on everything that it may read, as soon as it sees it, for a while.
    Flocker,
    /// As a claimer, a keeper or a cleaner, but goes through a gate, past any flock at once.
    GatedClaimer,
    GatedKeeper,
    GatedCleaner,
    /// Removes what is stale, by the rules.
    Cleaner,
    /// Reads, removes what is stale by name, creates exclusively: most programs.
    Blind,
    /// Creates exclusively, and never breaks: a shell with `set -C`.
    Shell,
    /// Takes everybody's temporary files for orphans, as a sweeper of another pid namespace can.
    Sweeper,
    /// Removes what is stale and creates its own, lets that go at once, and creates another,
    /// which it holds for ever: everything that can happen while its first is moved aside.
    Hasty,
}

/// What went wrong, in words for the report; what is a foreign program's own doing is apart.
#[derive(Debug, Default)]
struct Record {
    holders: Vec<(usize, u64)>,
    two_holders: bool,
    /// A holder's file was not in its place at some time.
    displaced: bool,
    /// The name led nowhere at some time.
    vacant: bool,
    /// Both at once.
    vacant_though_held: bool,
    /// A foreign program removed a lock that was not the stale one it had seen.
    removed_blindly: bool,
    /// How many came to hold it.
    taken: usize,
    /// Somebody died on the way.
    dead: bool,
    /// Somebody could not let go, as his lock was moved aside each time he tried.
    gave_up: bool,
    /// An outsider had `flock(2)` on a lock in the making.
    flocked_draft: bool,
    /// When all had finished, a holder's lock was not in its place.
    misplaced: bool,
    /// What the lock said when all had finished.
    left: Option<Vec<u8>>,
    /// Files besides the lock when all had finished.
    litter: usize,
}

struct World {
    lock: PathBuf,
    directory: Directory,
    gate: tempfile::TempDir,
    /// The files that outsiders hold by `flock(2)`, as the kernel lists them.
    outsiders: Mutex<Vec<u64>>,
    record: Mutex<Record>,
}

impl World {
    fn hold(&self, actor: usize, inode: u64) {
        if is_dead() {
            return;
        }
        let mut record = self.record.lock().unwrap();
        record.two_holders |= !record.holders.is_empty();
        record.holders.push((actor, inode));
        record.taken += 1;
    }

    fn leave(&self, actor: usize) {
        self.record.lock().unwrap().holders.retain(|(holder, _)| *holder != actor);
    }

    /// Between any two calls.
    fn look(&self) {
        let there = std::fs::symlink_metadata(&self.lock).ok().map(|data| data.ino());
        let mut record = self.record.lock().unwrap();
        record.vacant |= there.is_none();
        let displaced = record.holders.iter().any(|(_, inode)| Some(*inode) != there);
        record.displaced |= displaced;
        record.vacant_though_held |= displaced && there.is_none();
    }
}

/// A step of a program that is not this crate's.
fn foreign<T>(step: &'static str, work: impl FnOnce() -> T) -> Option<T> {
    faults::call(step, || Ok(work())).ok()
}

/// The way of those who go through the gate.
fn gated(world: &World) -> Directory {
    let directory = Directory::open(world.lock.parent().unwrap()).unwrap().guarding();
    directory.gated(Directory::open(world.gate.path()).unwrap().as_gate())
}

/// What was judged stale, if it is ours to break or remove. The flock of an outsider is gone past; an
/// actor that goes through the gate, or makes a file, is none.
fn hold_stale(world: &World, directory: &Directory, mut opened: OpenFile) -> Option<OpenFile> {
    for _ in 0..3 {
        match directory.hold(&name(), &mut opened).ok()? {
            Attempt::Done(()) => return Some(opened),
            Attempt::Contended if opened.passage.is_some() => {}
            Attempt::Contended | Attempt::Changed => return None,
        }
        let inode = opened.identity().inode;
        if foreign("list locks", || world.outsiders.lock().unwrap().contains(&inode))? {
            opened.ignore_flock();
            return Some(opened);
        }
    }
    None
}

/// The lock file as seen by a program that gives up at an error.
fn seen(directory: &Directory) -> Option<OpenFile> {
    judge(directory).ok().flatten()
}

fn is_stale(content: &[u8]) -> bool {
    content == STALE || content == AGED
}

fn play(role: Role, me: usize, world: &World, owned: Option<Published>) {
    match role {
        Role::Claimer | Role::Waiter => {
            if let Some(published) = take(role, world) {
                hold_and_withdraw(me, world, published);
            }
        }
        Role::Keeper => {
            if let Some(published) = take(role, world) {
                world.hold(me, published.identity.inode);
                let _ = foreign("hold", || ());
            }
        }
        Role::Owner => {
            let Some(published) = owned else { return };
            for _ in 0..3 {
                let removal = world.directory.withdraw(&name(), &published);
                if !matches!(removal, Ok(Attempt::Contended)) {
                    return;
                }
            }
        }
        Role::OwnerByForce => {
            for _ in 0..3 {
                let aged = seen(&world.directory).filter(|opened| opened.content() == AGED);
                let Some(opened) = aged else { return };
                if let Ok(Attempt::Done(())) = world.directory.release(&name(), opened, "t") {
                    return;
                }
            }
            world.record.lock().unwrap().gave_up = true;
        }
        Role::GatedClaimer | Role::GatedKeeper => {
            let directory = gated(world);
            let Some(published) = take_gated(world, &directory) else { return };
            world.hold(me, published.identity.inode);
            let _ = foreign("hold", || ());
            published.let_go();
            let _ = foreign("hold", || ());
            if role == Role::GatedClaimer && !is_dead() {
                world.leave(me);
                let_go_gated(world, &directory, published);
            }
        }
        Role::GatedCleaner => {
            let directory = gated(world);
            let stale = seen(&directory).filter(|opened| is_stale(opened.content()));
            if let Some(opened) = stale.and_then(|opened| hold_stale(world, &directory, opened)) {
                let _ = if opened.ignores_flock() {
                    directory.release(&name(), opened, "t")
                } else {
                    directory.try_release(&name(), opened)
                };
            }
        }
        Role::Flocker => hold_all(world),
        Role::Stranger => {}
        Role::Cleaner => {
            if let Some(opened) = seen(&world.directory).filter(|opened| is_stale(opened.content()))
            {
                let _ = world.directory.try_release(&name(), opened);
            }
        }
        Role::Blind | Role::Shell => take_foreign(role, me, world),
        Role::Hasty => take_hastily(me, world),
        Role::Sweeper => {
            for _ in 0..2 {
                for name in
                    foreign("list", || world.directory.names().unwrap()).into_iter().flatten()
                {
                    if temporary::maker(name.as_str(), "t").is_some() {
                        let path = world.lock.with_file_name(name.as_str());
                        let _ = foreign("sweep", || std::fs::remove_file(path));
                    }
                }
            }
        }
    }
}

fn take(role: Role, world: &World) -> Option<Published> {
    for _ in 0..3 {
        if let Some(published) = world.directory.publish(&name(), &claim(LIVE)).ok()? {
            return Some(published);
        }
        let Some(opened) = seen(&world.directory) else { continue };
        if role == Role::Waiter || !is_stale(opened.content()) {
            return None;
        }
        match world.directory.replace(&name(), opened, &claim(LIVE)).ok()? {
            Attempt::Done(published) => return Some(published),
            Attempt::Changed => {}
            Attempt::Contended => return None,
        }
    }
    None
}

fn take_gated(world: &World, directory: &Directory) -> Option<Published> {
    for _ in 0..3 {
        if let Some(published) = directory.publish(&name(), &claim(LIVE)).ok()? {
            return Some(published);
        }
        let Some(opened) = seen(directory) else { continue };
        if !is_stale(opened.content()) {
            return None;
        }
        match directory
            .replace(&name(), hold_stale(world, directory, opened)?, &claim(LIVE))
            .ok()?
        {
            Attempt::Done(published) => return Some(published),
            Attempt::Changed => {}
            Attempt::Contended => return None,
        }
    }
    None
}

fn let_go_gated(world: &World, directory: &Directory, published: Published) {
    let own = published.identity;
    if let Ok(Attempt::Done(()) | Attempt::Changed) = directory.withdraw(&name(), &published) {
        return;
    }
    for _ in 0..3 {
        let opened = seen(directory).filter(|opened| opened.identity() == own);
        let Some(opened) = opened else { return };
        if let Ok(Attempt::Done(())) = directory.release(&name(), opened, "t") {
            return;
        }
    }
    world.record.lock().unwrap().gave_up |= !is_dead();
}

fn hold_all(world: &World) {
    let mut held = Vec::new();
    for _ in 0..2 {
        for name in foreign("list", || world.directory.names().unwrap()).into_iter().flatten() {
            let path = world.lock.with_file_name(name.as_str());
            let flocked = foreign("flock it", || {
                let file = File::open(path).ok()?;
                let may_read = file.metadata().is_ok_and(|data| data.mode() & 0o004 != 0);
                let inode = file.metadata().ok()?.ino();
                let lock = |file| Flock::lock(file, FlockArg::LockExclusiveNonblock).ok();
                let flock = may_read.then_some(file).and_then(lock)?;
                let is_draft = temporary::maker(name.as_str(), "t").is_some();
                world.record.lock().unwrap().flocked_draft |= is_draft;
                world.outsiders.lock().unwrap().push(inode);
                Some((flock, inode))
            });
            held.extend(flocked.flatten());
        }
    }
    let _ = foreign("let go of all", || {
        world.outsiders.lock().unwrap().retain(|it| held.iter().all(|(_, inode)| inode != it));
        drop(held);
    });
}

fn hold_and_withdraw(me: usize, world: &World, published: Published) {
    world.hold(me, published.identity.inode);
    // Time passes while it holds.
    let _ = foreign("hold", || ());
    if is_dead() {
        return;
    }
    world.leave(me);
    for _ in 0..3 {
        let removal = world.directory.withdraw(&name(), &published);
        if !matches!(removal, Ok(Attempt::Contended)) {
            return;
        }
    }
    world.record.lock().unwrap().gave_up = true;
}

fn take_hastily(me: usize, world: &World) {
    let create = || OpenOptions::new().write(true).create_new(true).open(&world.lock).ok();
    let removed = foreign("break", || {
        // In one step, so that it removes nothing blindly.
        let stale = std::fs::read(&world.lock).is_ok_and(|now| is_stale(&now));
        stale && std::fs::remove_file(&world.lock).is_ok()
    });
    if removed != Some(true) || foreign("create exclusively", create).flatten().is_none() {
        return;
    }
    let _ = foreign("let go", || std::fs::remove_file(&world.lock));
    if let Some(file) = foreign("create exclusively", create).flatten() {
        world.hold(me, file.metadata().unwrap().ino());
        let _ = foreign("hold", || ());
    }
}

fn take_foreign(role: Role, me: usize, world: &World) {
    if role == Role::Blind {
        let Some(Ok(seen)) = foreign("look", || std::fs::read(&world.lock)) else { return };
        if !is_stale(&seen) {
            return;
        }
        let _ = foreign("break", || {
            let stale = std::fs::read(&world.lock).is_ok_and(|now| is_stale(&now));
            if std::fs::remove_file(&world.lock).is_ok() && !stale {
                world.record.lock().unwrap().removed_blindly = true;
            }
        });
    }
    let created = foreign("create exclusively", || {
        OpenOptions::new().write(true).create_new(true).open(&world.lock)
    })
    .map(Result::ok);
    let Some(Some(mut file)) = created else { return };
    // It believes that it holds from the creation on.
    world.hold(me, file.metadata().unwrap().ino());
    let _ = foreign("fill", || file.write_all(LIVE));
    let _ = foreign("hold", || ());
    world.leave(me);
    let _ = foreign("let go", || std::fs::remove_file(&world.lock));
}

/// Whether, everybody being dead, the next one gets it.
fn is_takeable(world: &World) -> bool {
    let (claim, directory) = (claim(b"the next one"), gated(world));
    match seen(&world.directory) {
        None => matches!(directory.publish(&name(), &claim), Ok(Some(_))),
        Some(opened) => hold_stale(world, &directory, opened).is_some_and(|opened| {
            matches!(directory.replace(&name(), opened, &claim), Ok(Attempt::Done(_)))
        }),
    }
}

/// A thread for each actor. To start threads for every run would cost more than many runs.
struct Stage(Vec<Sender<Box<dyn FnOnce() + Send>>>);

impl Stage {
    fn for_actors(number: usize) -> Self {
        let thread = |_| {
            let (sender, parts) = channel::<Box<dyn FnOnce() + Send>>();
            std::thread::spawn(move || parts.into_iter().for_each(|part| part()));
            sender
        };
        Self((0..number).map(thread).collect())
    }

    /// Has an actor play a part. What is returned hears of the end.
    fn begin(&self, actor: usize, part: impl FnOnce() + Send + 'static) -> Receiver<()> {
        let (ends, ended) = channel();
        let part = move || {
            part();
            ends.send(()).unwrap();
        };
        self.0[actor].send(Box::new(part)).unwrap();
        ended
    }
}

/// Nobody sees when these calls are made.
fn is_private(roles: &[Role], before: &str, call: &str) -> bool {
    let has = |some: &[Role]| roles.iter().any(|role| some.contains(role));
    // These look at the drafts of releases that are forced.
    let forces = has(&[Role::OwnerByForce, Role::GatedClaimer, Role::GatedCleaner]);
    match (before, call) {
        (_, "write") | ("write", "fstat") => !forces,
        ("fstat", "fchmod") => !forces && !has(&[Role::Flocker]),
        // Other programs write into a file that has its name.
        ("openat", "fstat") | (_, "pread") => !has(&[Role::Blind, Role::Shell, Role::Hasty]),
        _ => false,
    }
}

/// One run in one order.
fn run(
    stage: &Stage,
    roles: &[Role],
    unknown: Unknown,
    faults: &[Fault],
    script: Vec<usize>,
    beyond: Beyond,
) -> (Record, Arc<Schedule>) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let owned = roles.iter().any(|role| matches!(role, Role::Owner | Role::OwnerByForce));
    let content = if owned { AGED } else { STALE };
    let stale = match directory.publish(&name(), &claim(content)).unwrap() {
        Some(published) => published,
        None => panic!("the name was free"),
    };
    let lock = scratch.path().join("lock");
    let stranger = roles.contains(&Role::Stranger).then(|| File::open(&lock).unwrap());
    if let Some(stranger) = &stranger {
        assert!(crate::sys::try_lock_inode(stranger).unwrap());
    }
    let gate = tempfile::tempdir().unwrap();
    let made = Directory::open(gate.path()).unwrap().as_gate().unwrap();
    assert!(matches!(made.try_enter(), Ok(Entry::Inside(_))));
    let outsiders = stranger.iter().map(|_| stale.identity.inode).collect();
    let outsiders = Mutex::new(outsiders);
    let world = Arc::new(World { lock, directory, gate, outsiders, record: Mutex::default() });
    let watched = Arc::clone(&world);
    let (all, mortals) = (roles.to_vec(), faults.len());
    let is_private: IsPrivate =
        Box::new(move |actor, before, call| actor >= mortals && is_private(&all, before, call));
    let look = Box::new(move || watched.look());
    let schedule = Schedule::new(roles.len(), script, beyond, look, is_private);
    let mut stale = Some(stale);
    let ended: Vec<_> = (roles.iter().copied().enumerate())
        .map(|(me, role)| {
            let (turn, world) = (schedule.turn(me), Arc::clone(&world));
            let owned = if role == Role::Owner { stale.take() } else { None };
            let fault = faults.get(me).copied().unwrap_or(Fault::None);
            stage.begin(me, move || {
                let trace = under(fault, unknown, Some(turn.clone()), || {
                    play(role, me, &world, owned);
                });
                if trace.dead {
                    world.leave(me);
                    world.record.lock().unwrap().dead = true;
                }
                turn.finish();
            })
        })
        .collect();
    assert!(ended.iter().all(|actor| actor.recv().is_ok()), "an actor panicked");
    let mut record = std::mem::take(&mut *world.record.lock().unwrap());
    record.left = std::fs::read(&world.lock).ok();
    let there = std::fs::metadata(&world.lock).ok().map(|data| data.ino());
    record.misplaced = record.holders.iter().any(|(_, inode)| Some(*inode) != there);
    let files = std::fs::read_dir(scratch.path()).unwrap().count();
    record.litter = files - usize::from(record.left.is_some());
    assert!(faults.is_empty() || is_takeable(&world), "{record:?}");
    (record, schedule)
}

/// Runs every order within the bound, then some by lot, and checks each record.
fn in_every_order(
    roles: &[Role],
    unknown: Unknown,
    faults: &[Fault],
    bound: usize,
    lots: u64,
    check: impl Fn(&Record) -> Result<(), &'static str>,
) -> usize {
    let examine = |record: &Record, schedule: &Schedule, how: &dyn std::fmt::Debug| {
        if let Err(wrong) = check(record) {
            let (_, calls) = schedule.story();
            panic!("{wrong}: {roles:?} {faults:?} {how:?}\n{record:?}\n{calls:?}");
        }
    };
    let (stage, mut orders) = (Stage::for_actors(roles.len()), Orders::new(bound));
    let mut runs = 0;
    while let Some(script) = orders.next() {
        let (record, schedule) = run(&stage, roles, unknown, faults, script.clone(), Beyond::Same);
        examine(&record, &schedule, &script);
        orders.learn(&script, &schedule.story().0);
        runs += 1;
    }
    for seed in 0..lots {
        let lot = Beyond::Lot(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (record, schedule) = run(&stage, roles, unknown, faults, Vec::new(), lot.clone());
        examine(&record, &schedule, &lot);
    }
    println!("{roles:?} {faults:?}: {runs} orders of {bound} preemptions, {lots} by lot");
    runs
}

fn right(good: bool, wrong: &'static str) -> Result<(), &'static str> {
    if good { Ok(()) } else { Err(wrong) }
}

/// What holds among those who keep the rules, whatever the order.
fn strict(record: &Record) -> Result<(), &'static str> {
    right(!record.two_holders, "two holders")?;
    right(!record.displaced, "a holder's lock was moved or removed")?;
    right(record.dead || record.litter == 0, "litter")?;
    right(record.dead || record.left.as_deref() != Some(LIVE), "a lock that nobody holds")
}

#[rstest]
#[case::two(&[Role::Claimer, Role::Claimer], 2)]
#[case::three(&[Role::Claimer, Role::Claimer, Role::Claimer], 1)]
#[case::with_a_waiter(&[Role::Claimer, Role::Claimer, Role::Waiter], 1)]
#[case::with_a_cleaner(&[Role::Claimer, Role::Cleaner, Role::Waiter], 1)]
#[case::with_the_aged_owner(&[Role::Claimer, Role::Owner, Role::Waiter], 1)]
#[case::two_with_the_aged_owner(&[Role::Claimer, Role::Claimer, Role::Owner], 1)]
#[case::with_a_shell(&[Role::Claimer, Role::Claimer, Role::Shell], 1)]
#[ignore = "takes minutes: tests/run"]
fn programs_that_keep_the_rules_leave_one_holder_and_its_lock(
    #[case] roles: &[Role],
    #[values(EVERYTHING, NO_RENAME_FLAGS)] unknown: Unknown,
    #[case] bound: usize,
) {
    let runs = in_every_order(roles, unknown, &[], bound, LOTS, strict);
    assert!(runs > 20, "{runs}");
}

#[test]
#[ignore = "takes minutes: tests/run"]
fn two_breakers_in_every_order_of_three_preemptions() {
    in_every_order(&[Role::Claimer, Role::Claimer], EVERYTHING, &[], 3, 0, strict);
}

#[rstest]
#[case::two(&[Role::Keeper, Role::Keeper], 2)]
#[case::three(&[Role::Keeper, Role::Keeper, Role::Keeper], 1)]
#[case::against_a_shell(&[Role::Keeper, Role::Shell], 3)]
fn the_name_is_never_vacant_while_it_is_broken_and_one_breaker_succeeds(
    #[case] roles: &[Role],
    #[case] bound: usize,
) {
    in_every_order(roles, EVERYTHING, &[], bound, LOTS, |record| {
        right(!record.two_holders && !record.displaced, "two holders, or one displaced")?;
        right(!record.vacant, "the name was vacant")?;
        right(record.taken == 1, "one breaker succeeds")
    });
}

/// Dying does not let anybody else in wrongly, and does not keep the next one out.
#[rstest]
#[case::breakers(&[Role::Claimer, Role::Claimer])]
#[case::a_cleaner_first(&[Role::Cleaner, Role::Claimer])]
#[case::an_owner(&[Role::Owner, Role::Claimer])]
fn any_one_dying_at_any_call_in_any_order_leaves_one_holder(
    #[case] roles: &[Role],
    #[values(EVERYTHING, NO_RENAME_FLAGS)] unknown: Unknown,
) {
    killing_the_first_at_every_call(roles, unknown, strict);
}

fn killing_the_first_at_every_call(
    roles: &[Role],
    unknown: Unknown,
    check: impl Fn(&Record) -> Result<(), &'static str>,
) {
    for at in 0..40 {
        let died = Mutex::new(false);
        in_every_order(roles, unknown, &[Fault::Die { at }], 1, 20, |record| {
            *died.lock().unwrap() |= record.dead;
            check(record)
        });
        if !died.into_inner().unwrap() {
            assert!(at >= 3, "nobody died at {at}");
            return;
        }
    }
    panic!("longer than expected");
}

/// What a forced release that dies leaves can be taken, and two hold only if it died while a
/// breaker's lock was aside.
#[rstest]
#[case::one_breaker(&[Role::OwnerByForce, Role::Claimer])]
#[case::two_breakers(&[Role::OwnerByForce, Role::Claimer, Role::Claimer])]
#[ignore = "takes minutes: tests/run"]
fn a_forced_release_that_dies_at_any_call_leaves_a_lock_to_take(#[case] roles: &[Role]) {
    for at in 0..18 {
        let died = Mutex::new(false);
        in_every_order(roles, EVERYTHING, &[Fault::Die { at }], 1, 20, |record| {
            *died.lock().unwrap() |= record.dead;
            right(!record.two_holders || record.displaced, "two holders")?;
            right(!record.vacant_though_held, "vacant though held")
        });
        assert!(died.into_inner().unwrap() || at > 6, "nobody died at {at}");
    }
}

/// A release past a flock that turns out to be a breaker's moves the breaker's lock aside for a
/// moment, but keeps the name occupied, so that nobody else gets in.
#[rstest]
#[case::against_a_breaker(&[Role::OwnerByForce, Role::Claimer], 3)]
#[case::and_a_third(&[Role::OwnerByForce, Role::Claimer, Role::Waiter], 2)]
#[case::two_at_once(&[Role::OwnerByForce, Role::OwnerByForce, Role::Claimer], 1)]
#[ignore = "takes minutes: tests/run"]
fn a_forced_release_lets_nobody_in_beside_a_breaker(#[case] roles: &[Role], #[case] bound: usize) {
    in_every_order(roles, EVERYTHING, &[], bound, LOTS, |record| {
        right(!record.two_holders, "two holders")?;
        right(!record.vacant_though_held, "vacant though held")?;
        right(record.gave_up || record.left.as_deref() != Some(LIVE), "left behind")?;
        right(record.litter == 0, "litter")
    });
}

/// Any number of actors release one lock past a stranger's flock, and others claim what they leave.
#[rstest]
#[case::two(&[Role::OwnerByForce, Role::OwnerByForce, Role::Keeper, Role::Keeper, Role::Stranger], 1)]
#[case::three(&[Role::OwnerByForce, Role::OwnerByForce, Role::OwnerByForce, Role::Keeper, Role::Stranger], 1)]
#[ignore = "takes minutes: tests/run"]
fn any_number_of_forced_releases_lets_one_in(#[case] roles: &[Role], #[case] bound: usize) {
    in_every_order(roles, EVERYTHING, &[], bound, LOTS, |record| {
        right(!record.two_holders, "two holders")?;
        right(!record.displaced && !record.misplaced, "a holder's lock was moved or removed")?;
        right(record.gave_up || record.left.as_deref() != Some(AGED), "left behind")?;
        right(record.litter == 0, "litter")
    });
}

/// Actors that go through the gate exclude each other, whatever others hold by `flock(2)`.
#[rstest]
#[case::two_breakers(&[Role::GatedKeeper, Role::GatedKeeper, Role::Stranger], 2)]
#[case::three_breakers(&[Role::GatedKeeper, Role::GatedKeeper, Role::GatedKeeper, Role::Stranger], 1)]
#[case::claimers(&[Role::GatedClaimer, Role::GatedClaimer, Role::Stranger], 1)]
#[case::a_flocker(&[Role::GatedKeeper, Role::GatedKeeper, Role::Flocker], 1)]
#[case::claimers_and_a_flocker(&[Role::GatedClaimer, Role::GatedClaimer, Role::Flocker], 1)]
#[case::a_cleaner(&[Role::GatedCleaner, Role::GatedClaimer, Role::Stranger], 1)]
#[case::a_cleaner_and_a_flocker(&[Role::GatedCleaner, Role::GatedClaimer, Role::Flocker], 1)]
#[ignore = "takes minutes: tests/run"]
fn in_the_gate_there_is_one_holder_despite_any_flock(
    #[case] roles: &[Role],
    #[values(EVERYTHING, NO_RENAME_FLAGS)] unknown: Unknown,
    #[case] bound: usize,
) {
    in_every_order(roles, unknown, &[], bound, LOTS, |record| {
        right(!record.two_holders, "two holders")?;
        let keeps = roles.contains(&Role::GatedKeeper);
        // An actor that removes it in the gate is in the way of one that would break it.
        let cleaned = roles.contains(&Role::GatedCleaner);
        right(cleaned || record.taken > 0, "a flock kept everybody out")?;
        right(keeps || record.gave_up || record.left.as_deref() != Some(LIVE), "left behind")?;
        right(!record.misplaced && record.litter == 0, "misplaced, or litter")
    });
}

/// A lock in the making is its maker's: an outsider who had `flock(2)` on it would have it on the lock.
#[rstest]
#[case::of_a_lock(&[Role::GatedKeeper, Role::Flocker])]
#[case::of_a_release(&[Role::OwnerByForce, Role::Flocker, Role::Stranger])]
fn no_outsider_has_a_flock_on_a_draft(#[case] roles: &[Role]) {
    in_every_order(roles, EVERYTHING, &[], 2, LOTS, |record| {
        right(!record.flocked_draft, "a draft was held by an outsider")?;
        right(!record.gave_up && record.litter == 0, "an owner could not let go")
    });
}

/// Those who cannot enter the gate have today's rule. What comes out is looked at, so that each order
/// leaves one holder.
#[rstest]
#[case::a_breaker(&[Role::GatedKeeper, Role::Keeper], 3)]
#[case::a_breaker_and_a_flocker(&[Role::GatedKeeper, Role::Keeper, Role::Flocker], 1)]
#[case::two_and_one(&[Role::GatedKeeper, Role::GatedKeeper, Role::Keeper], 1)]
#[case::one_and_two(&[Role::GatedKeeper, Role::Keeper, Role::Keeper], 1)]
#[case::claimers(&[Role::GatedClaimer, Role::Claimer, Role::Waiter], 1)]
#[case::claimers_and_a_flocker(&[Role::GatedClaimer, Role::Claimer, Role::Flocker], 1)]
#[case::a_cleaner_in_the_gate(&[Role::GatedCleaner, Role::Keeper, Role::Flocker], 1)]
#[ignore = "takes minutes: tests/run"]
fn breakers_in_the_gate_and_beside_it_leave_one_holder(
    #[case] roles: &[Role],
    #[case] bound: usize,
) {
    in_every_order(roles, EVERYTHING, &[], bound, LOTS, |record| {
        right(!record.two_holders, "two holders")?;
        right(!record.vacant_though_held, "vacant though held")?;
        right(!record.misplaced && record.litter == 0, "misplaced, or litter")
    });
}

/// Dying in the gate keeps nobody out.
#[rstest]
#[case::breakers(&[Role::GatedKeeper, Role::GatedKeeper, Role::Stranger])]
#[case::a_cleaner(&[Role::GatedCleaner, Role::GatedKeeper, Role::Stranger])]
#[case::a_flocker(&[Role::GatedClaimer, Role::GatedKeeper, Role::Flocker])]
#[ignore = "takes minutes: tests/run"]
fn any_one_dying_in_the_gate_at_any_call_leaves_one_holder(#[case] roles: &[Role]) {
    killing_the_first_at_every_call(roles, EVERYTHING, |record| {
        right(!record.two_holders && !record.vacant_though_held, "two holders")
    });
}

/// A temporary file that is swept too early costs an attempt, not a lock.
#[rstest]
#[case::a_claimer(&[Role::Claimer, Role::Sweeper], 2)]
#[case::two_breakers(&[Role::Keeper, Role::Keeper, Role::Sweeper], 1)]
#[case::a_forced_release(&[Role::OwnerByForce, Role::Sweeper], 2)]
fn a_sweeper_that_takes_the_living_for_dead_breaks_nothing(
    #[case] roles: &[Role],
    #[values(EVERYTHING, NO_RENAME_FLAGS)] unknown: Unknown,
    #[case] bound: usize,
) {
    in_every_order(roles, unknown, &[], bound, LOTS, |record| {
        right(!record.two_holders && !record.displaced && !record.misplaced, "two holders")
    });
}

/// A lock that took the place of one that was moved aside and let go gets that place back too.
#[test]
fn a_lock_made_between_an_exchange_and_its_undoing_keeps_its_place() {
    in_every_order(&[Role::Keeper, Role::Hasty], EVERYTHING, &[], 4, LOTS, |record| {
        right(!record.two_holders, "two holders")?;
        right(!record.misplaced, "a lock was not given back")?;
        right(record.taken <= 1 && record.litter == 0, "litter")
    });
}

/// A program that removes by name what it read a while ago can remove a fresh lock. That is its
/// doing, and there is nothing else: whenever two hold, that is what happened.
#[rstest]
#[case::one(&[Role::Blind, Role::Claimer], 3)]
#[case::and_a_third(&[Role::Blind, Role::Keeper, Role::Shell], 2)]
#[case::two_of_them(&[Role::Blind, Role::Blind, Role::Claimer], 1)]
fn only_a_blind_breaker_that_removes_a_fresh_lock_lets_two_in(
    #[case] roles: &[Role],
    #[case] bound: usize,
) {
    let doubles = Mutex::new(0);
    in_every_order(roles, EVERYTHING, &[], bound, LOTS, |record| {
        *doubles.lock().unwrap() += usize::from(record.two_holders);
        right(!record.two_holders || record.removed_blindly, "two holders by our doing")?;
        right(record.removed_blindly || !record.vacant_though_held, "vacant though held")?;
        let kept = roles.contains(&Role::Keeper) || record.left.as_deref() != Some(LIVE);
        right(record.removed_blindly || kept, "left behind")?;
        right(record.litter == 0, "litter")
    });
    // Were it never so, the documentation would warn of nothing.
    assert!(doubles.into_inner().unwrap() > 0);
}

/// Where files cannot be exchanged there is one more way, and it takes three: a foreign breaker
/// whose fresh lock is moved aside, for as long as it takes to see that it is not the judged one,
/// and somebody who claims the vacant name in that time.
#[rstest]
#[case::two_cannot(&[Role::Blind, Role::Claimer], 3)]
#[case::three_can(&[Role::Blind, Role::Keeper, Role::Shell], 2)]
fn without_exchange_a_displaced_foreign_lock_can_let_two_in(
    #[case] roles: &[Role],
    #[case] bound: usize,
) {
    in_every_order(roles, NO_RENAME_FLAGS, &[], bound, LOTS, |record| {
        let by_three = roles.len() > 2 && record.vacant_though_held;
        let explained = record.removed_blindly || by_three;
        right(!record.two_holders || explained, "two holders without a cause")?;
        right(record.litter == 0, "litter")
    });
}

/// One order, told by the calls before which actors stop.
fn told(roles: &[Role], unknown: Unknown, plan: &[(usize, &'static str)]) -> Record {
    let plan = Beyond::Plan(plan.iter().copied().collect());
    let stage = Stage::for_actors(roles.len());
    let (record, schedule) = run(&stage, roles, unknown, &[], Vec::new(), plan);
    println!("{record:?}\n{:?}", schedule.story().1);
    record
}

const END: &str = "";

/// A process has opened the gate's file, which is removed then, as by a cleaner of `/run`; and another one enters the next
/// gate.
#[test]
fn a_gate_that_is_removed_while_it_is_entered_lets_in_one() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path();
    let gate = || Directory::open(path).unwrap().as_gate().unwrap();
    gate().make_ready();
    let plan = Beyond::Plan([(0, "flock"), (1, END), (0, END)].into());
    let schedule = Schedule::new(2, Vec::new(), plan, Box::new(|| ()), Box::new(|_, _, _| false));
    let play = |removes: bool| {
        let (turn, gate) = (schedule.turn(usize::from(removes)), gate());
        let enter = || {
            if removes {
                foreign("remove", || std::fs::remove_file(path.join("gate")).unwrap());
            }
            gate.try_enter().unwrap()
        };
        let entry = under(Fault::None, EVERYTHING, Some(turn.clone()), enter).result;
        turn.finish();
        entry
    };
    let entries = std::thread::scope(|scope| {
        [false, true]
            .map(|removes| {
                let play = &play;
                scope.spawn(move || play(removes))
            })
            .map(|it| it.join().unwrap())
    });
    assert!(matches!(entries, [Entry::Occupied(_), Entry::Inside(_)]), "{entries:?}");
}

/// The documented exception without exchange is real: three in this order, and two hold.
#[test]
fn without_exchange_one_documented_order_lets_two_in() {
    let roles = [Role::Blind, Role::Keeper, Role::Shell];
    let plan = [(1, "rename"), (0, "fill"), (1, "fstatat"), (2, "fill"), (1, END)];
    let record = told(&roles, NO_RENAME_FLAGS, &plan);
    assert!(record.two_holders && !record.removed_blindly);
}

/// The same order with exchange: the blind breaker's lock is given back, and nobody else gets in.
#[test]
fn with_exchange_the_same_order_lets_only_one_in() {
    let roles = [Role::Blind, Role::Keeper, Role::Shell];
    let plan = [(1, "rename-exchange"), (0, "fill"), (1, "fstatat"), (2, END), (1, END)];
    let record = told(&roles, EVERYTHING, &plan);
    assert!(record.displaced && !record.vacant_though_held);
    assert_eq!((record.two_holders, record.taken, record.litter), (false, 1, 0));
}

/// A breaker that lets go while a forced release has its lock aside is told to try again, and
/// leaves nothing behind.
#[test]
fn a_release_of_a_lock_that_is_aside_is_tried_again() {
    let roles = [Role::OwnerByForce, Role::Claimer];
    let plan = [
        (1, "rename-exchange"),
        (0, "rename-exchange"),
        (1, "hold"),
        (1, "flock"),
        (0, "fstatat"),
        (1, "fstat"),
        (0, END),
        (1, END),
    ];
    let record = told(&roles, EVERYTHING, &plan);
    assert_eq!((record.taken, record.gave_up, record.two_holders), (1, false, false));
    assert_eq!((record.left, record.litter), (None, 0));
}
