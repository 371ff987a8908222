//! The record under every failure: at each write, once an error, and once half a write and the end of the process.

use super::*;
use crate::sample::{CAPS, Counting, seconds, take};
use crate::server::state::codec::{BootId, DirId, Doubt};
use crate::server::state::load::Damage;
use crate::server::state::memory_tests::{Fault, Memory, Write, loaded};
use crate::server::state::promises::Origin;
use crate::server::state::{note_changes, resumed};
use leases::{
    Answer, AutoRelease, ConnId, Effect, Engine, Key, Label, Request, Token, Ttl, Verdict,
};
use rstest::rstest;
use std::collections::BTreeMap;
use std::hash::RandomState;
use testbed::Lots;

const BOOT: BootId = [7; 16];
const DIR: DirId = [3; 16];

/// An engine, its record, and what clients were told.
struct World {
    engine: Engine,
    ledger: Ledger<Memory>,
    conn: ConnId,
    /// Token → key and end, as clients were told.
    told: BTreeMap<u64, (u8, Moment)>,
    /// The same after the next write has worked.
    next: BTreeMap<u64, (u8, Moment)>,
    now: u64,
    lots: Lots,
}

const fn boot_micros_at(now: u64) -> u64 {
    5_000_000 + now
}

impl World {
    fn new(fault: Fault, size: u64) -> Self {
        let mut engine = Engine::new(CAPS, Counting(0), RandomState::new());
        let conn = engine.connect(1);
        let disk = Memory::new(Default::default(), fault, size);
        let (now, boot) = (0, BOOT);
        let times = Times { now: Moment::from_micros(now), boot_micros: boot_micros_at(now) };
        let found = disk.load(boot, times.boot_micros);
        let origin = Origin { boot, dir: DIR, synced: Synced::No };
        let ledger = resumed(disk, origin, found, &mut engine, seconds(33), times);
        let (told, next) = (BTreeMap::new(), BTreeMap::new());
        Self { engine, ledger, conn, told, next, now, lots: Lots(9) }
    }

    fn moment(&self) -> Moment {
        Moment::from_micros(self.now)
    }

    fn times(&self) -> Times {
        Times { now: self.moment(), boot_micros: self.boot_micros() }
    }

    fn boot_micros(&self) -> u64 {
        boot_micros_at(self.now)
    }

    fn step(&mut self) {
        self.now += 1 + self.lots.below(300_000);
        self.engine.advance(self.moment());
        while let Some(Effect::Expired { .. }) = self.engine.take_effect() {}
        let now = self.moment();
        self.next.retain(|_, (_, end)| *end > now);
        let name = u8::try_from(self.lots.below(20)).unwrap();
        let bytes = [b'k', b'a' + name];
        let key = Key::new(&bytes).unwrap();
        let ttl = Ttl::new(1 + self.lots.below(30));
        let known = self.next.iter().find(|(_, (of, _))| *of == name).map(|(token, _)| *token);
        let token = known.map(|number| Token::new(number, number));
        let request = match self.lots.below(3) {
            0 => Request::Release { key, token },
            1 => Request::Renew { key, token, ttl },
            _ => take(&bytes, 1 + self.lots.below(30)),
        };
        self.engine.set_room(self.ledger.room(now, 1));
        let Verdict::Now(answer) = self.engine.ask(now, self.conn, request) else { panic!() };
        match answer {
            Answer::Granted(grant) => {
                self.next.insert(grant.token.fence(), (name, grant.expires));
            }
            Answer::Renewed(ttl) => {
                self.next.insert(known.unwrap(), (name, now.after(ttl.span())));
            }
            Answer::Released => drop(self.next.remove(&known.unwrap())),
            Answer::All(_)
            | Answer::Acquired(_)
            | Answer::Queued
            | Answer::TimedOut
            | Answer::Refused(_) => {}
            _ => panic!("an answer that this test does not know"),
        }
        let times = self.times();
        note_changes(&mut self.engine, &mut self.ledger, times);
    }

    /// One turn of the server; returns whether clients may be told of its changes.
    fn turn(&mut self) -> bool {
        for _ in 0..=self.lots.below(3) {
            self.step();
        }
        let times = self.times();
        let saved = self.ledger.flush(times).is_ok();
        if saved {
            self.told.clone_from(&self.next);
        }
        saved
    }

    fn load(&self) -> Loaded {
        self.ledger.disk().load(BOOT, self.boot_micros())
    }

    /// Every hold that a client was told of is there, with its end; no hold is there whose end a client was told of.
    fn check(&self, loaded: &Loaded, all_saved: bool) {
        let now = self.moment();
        for (token, (name, end)) in self.told.iter().filter(|(_, (_, end))| *end > now) {
            // A hold that the failed turn changed may be on disk as it was before the turn or after it.
            if self.next.get(token) != Some(&(*name, *end)) {
                continue;
            }
            let found = loaded.holds.iter().find(|hold| hold.token.fence() == *token);
            let hold = found.unwrap_or_else(|| panic!("{token} is forgotten"));
            assert_eq!(*hold.key, [b'k', b'a' + name]);
            assert_eq!(hold.left_micros, end.micros_since(now));
        }
        for hold in &loaded.holds {
            let token = hold.token.fence();
            let known = self.told.contains_key(&token) || self.next.contains_key(&token);
            assert!(known || !all_saved, "{token} was given back");
            assert!(loaded.fence >= token);
        }
    }
}

const TURNS: usize = 400;
const ROOMY: u64 = 1 << 30;

fn run(fault: Fault) -> (World, usize) {
    let mut world = World::new(fault, ROOMY);
    let mut lost = 0;
    for _ in 0..TURNS {
        if !world.turn() {
            lost += 1;
        }
        if world.ledger.disk().is_dead() {
            break;
        }
    }
    (world, lost)
}

fn writes() -> usize {
    run(Fault::None).0.ledger.disk().0.borrow().writes
}

#[test]
fn everything_is_there_again_and_files_take_turns() {
    let (world, lost) = run(Fault::None);
    assert_eq!(lost, 0);
    assert!(world.ledger.last_generation > 3, "{}", world.ledger.last_generation);
    let loaded = world.load();
    world.check(&loaded, true);
    assert!(world.told.len() > 5, "too few holds to prove anything");
    assert_eq!(loaded.holds.len(), world.told.len());
    assert_eq!(loaded.doubt, None);
    assert_eq!(loaded.generation, world.ledger.last_generation);
}

/// The process dies in the middle of each write in turn: every hold that it had reported is there.
#[test]
fn death_at_every_write_forgets_nothing() {
    for at in 0..writes() {
        let (world, _) = run(Fault::Death(at));
        let loaded = world.load();
        assert_eq!((loaded.damage, loaded.doubt), (None, None), "{at}");
        world.check(&loaded, false);
    }
}

/// At each of these bytes the process is killed in each write: what a start finds is what it found before the write,
/// or what it finds after it. Nothing looks damaged.
fn ends_well_at(world: &World, files: &mut [Vec<u8>; 3], stops: fn(&Write) -> Vec<usize>) {
    let writes = world.ledger.disk().0.borrow_mut().log.take().unwrap();
    for write in writes {
        let load = |files: &_| loaded(files, BOOT, world.boot_micros());
        let (before, length) = (files.clone(), write.at + write.bytes.len());
        let present = before[write.file].len();
        files[write.file].resize(present.max(length), 0);
        files[write.file][write.at..length].copy_from_slice(&write.bytes);
        let (first, last) = (load(&before), load(files));
        let place = format!("file {}, {}", write.file, write.at);
        assert_eq!((first.damage, last.damage), (None, None), "{place}");
        for count in stops(&write) {
            let mut cut = before.clone();
            cut[write.file].resize(present.max(write.at + count), 0);
            cut[write.file][write.at..write.at + count].copy_from_slice(&write.bytes[..count]);
            let found = load(&cut);
            assert!(found == first || found == last, "{place}, {count}: {found:?}");
        }
    }
}

fn logged_world() -> (World, [Vec<u8>; 3]) {
    let world = World::new(Fault::None, ROOMY);
    let files = world.ledger.disk().0.borrow().now.clone();
    world.ledger.disk().0.borrow_mut().log = Some(Vec::new());
    (world, files)
}

#[test]
fn a_write_may_end_at_every_byte() {
    let (mut world, mut files) = logged_world();
    while world.ledger.last_generation < 4 {
        assert!(world.turn());
    }
    ends_well_at(&world, &mut files, |write| (0..write.bytes.len()).collect());
}

/// The first writes of a start in a new directory.
#[test]
fn a_start_may_end_at_every_byte() {
    let (before, _) = run(Fault::None);
    let mut files = <[Vec<u8>; 3]>::default();
    let mut engine = Engine::new(CAPS, Counting(0), RandomState::new());
    let disk = Memory::new(files.clone(), Fault::None, ROOMY);
    disk.0.borrow_mut().log = Some(Vec::new());
    let times = before.times();
    let found = disk.load(BOOT, times.boot_micros);
    assert_eq!((found.damage, found.doubt), (None, None));
    let origin = Origin { boot: BOOT, dir: DIR, synced: Synced::No };
    let mut world = World { now: before.now, ..World::new(Fault::None, ROOMY) };
    world.ledger = resumed(disk, origin, found.clone(), &mut engine, seconds(33), times);
    assert_eq!(world.load().holds, found.holds);
    files[0].resize(world.ledger.disk().0.borrow().now[0].len(), 0);
    files[1].resize(files[0].len(), 0);
    ends_well_at(&world, &mut files, |write| (0..write.bytes.len()).collect());
}

/// A commit of a thousand holds, and its copy: a kill ends a write between two pages of the file.
#[test]
fn a_large_commit_may_end_at_every_page() {
    const PAGE: usize = 4096;
    let (mut world, mut files) = logged_world();
    world.ledger.room(world.moment(), 1000);
    for round in 0..2 {
        for number in 0..500 {
            let name = format!("{round}-{number}-{}", "k".repeat(200));
            let verdict = world.engine.ask(world.moment(), world.conn, take(name.as_bytes(), 3600));
            assert!(matches!(verdict, Verdict::Now(Answer::Granted(_))), "{verdict:?}");
        }
        note_and_flush(&mut world);
    }
    files[0].resize(world.ledger.disk().0.borrow().now[0].len(), 0);
    files[1].resize(files[0].len(), 0);
    let longest = |log: &Vec<Write>| log.iter().map(|write| write.bytes.len()).max();
    let longest = world.ledger.disk().0.borrow().log.as_ref().and_then(longest).unwrap();
    assert!(longest > 20 * PAGE, "{longest}");
    ends_well_at(&world, &mut files, |write| {
        let is_page = |count: &usize| (write.at + count) % PAGE == 0;
        (0..write.bytes.len()).filter(is_page).chain([1, write.bytes.len() - 1]).collect()
    });
}

/// One write fails: every hold that was reported is there, and the record continues.
#[test]
fn an_error_at_every_write_forgets_nothing_and_passes() {
    for at in 0..writes() {
        let (mut world, lost) = run(Fault::Error(at));
        assert!(lost < 20, "write {at}: {lost} turns lost");
        while !world.turn() {}
        assert_eq!(world.ledger.health(), Health::Good, "write {at}");
        let loaded = world.load();
        world.check(&loaded, true);
        assert_eq!(loaded.holds.len(), world.told.len(), "write {at}");
        assert_eq!(loaded.doubt, None, "write {at}");
    }
}

/// There is no room for further holds: renewals and hand-overs continue, new holds are refused, nothing is forgotten,
/// and room that becomes free is used.
#[test]
fn a_full_disk_refuses_new_holds_only() {
    let mut world = World::new(Fault::None, FIRST_BYTES);
    let mut tokens = Vec::new();
    for number in 0..1000_u32 {
        let name = format!("key-{number}");
        let request = take(name.as_bytes(), 1_000_000);
        let now = world.moment();
        world.engine.set_room(world.ledger.room(now, 1));
        match world.engine.ask(now, world.conn, request) {
            Verdict::Now(Answer::Granted(grant)) => tokens.push((name, grant.token)),
            Verdict::Now(Answer::Refused(leases::Refusal::NoSpace)) => break,
            other @ (Verdict::Now(_) | Verdict::Later) => panic!("{other:?}"),
        }
        note_and_flush(&mut world);
    }
    assert_eq!(world.ledger.health(), Health::Full);
    assert!((10..200).contains(&tokens.len()), "{}", tokens.len());
    for round in 0..200 {
        for (name, token) in &tokens {
            let key = Key::new(name.as_bytes()).unwrap();
            let renew = Request::Renew { key, token: Some(*token), ttl: Ttl::new(1_000_000) };
            world.now += 1;
            let verdict = world.engine.ask(world.moment(), world.conn, renew);
            assert!(matches!(verdict, Verdict::Now(Answer::Renewed(_))), "round {round}");
        }
        note_and_flush(&mut world);
    }
    assert_eq!(world.load().holds.len(), tokens.len());
    world.ledger.disk().0.borrow_mut().size = ROOMY;
    world.now += 2_000_000;
    assert!(world.ledger.room(world.moment(), 1) > 0);
    assert_eq!(world.ledger.health(), Health::Good);
}

/// However many clients ask before the next commit, a full disk has room for what is granted, and the record goes on.
#[rstest]
#[case::locks(1)]
#[case::many_together(leases::MAX_KEYS)]
fn a_full_disk_has_room_for_a_whole_batch(#[case] together: usize) {
    let mut world = World::new(Fault::None, FIRST_BYTES);
    let now = world.moment();
    world.engine.set_room(world.ledger.room(now, 1000));
    let mut granted = 0;
    for number in 0..1000 {
        let names: Vec<String> =
            (0..together).map(|nth| format!("{number}-{nth}-{}", "k".repeat(200))).collect();
        let line = names.join(" ");
        let keys = leases::Keys::new(line.as_bytes()).unwrap();
        match world.engine.ask(now, world.conn, Request::AcquireAll { keys, ttl: None }) {
            Verdict::Now(Answer::All(grants)) => granted += grants.len(),
            other @ (Verdict::Now(_) | Verdict::Later) => {
                assert_eq!(other, Verdict::Now(Answer::Refused(leases::Refusal::NoSpace)))
            }
        }
    }
    note_and_flush(&mut world);
    assert_eq!((world.load().holds.len(), world.ledger.health()), (granted, Health::Good));
    assert!(together > 1 || granted > 1);
}

fn note_and_flush(world: &mut World) {
    let times = world.times();
    note_changes(&mut world.engine, &mut world.ledger, times);
    assert_eq!(world.ledger.flush(times), Ok(()));
}

/// Labels are restored, also after many rewrites. On a disk with room for the holds alone, they are left out, and no
/// hold is refused because of them.
#[rstest]
#[case::roomy(ROOMY, true)]
#[case::full(FIRST_BYTES, false)]
fn labels_take_no_room_from_holds(#[case] size: u64, #[case] are_kept: bool) {
    let mut world = World::new(Fault::None, size);
    let label = Label::new("n".repeat(200), "v".repeat(256));
    world.engine.introduce(world.conn, &std::sync::Arc::new(label.clone()));
    for number in 0..10_u32 {
        assert!(world.ledger.room(world.moment(), 1) > 0);
        let name = format!("key-{number}");
        let now = world.moment();
        let verdict = world.engine.ask(now, world.conn, take(name.as_bytes(), 1_000_000));
        assert!(matches!(verdict, Verdict::Now(Answer::Granted(_))), "{verdict:?}");
        for _ in 0..20 {
            note_and_flush(&mut world);
        }
    }
    let holds = world.load().holds;
    assert_eq!(holds.len(), 10);
    assert_eq!(holds.iter().all(|hold| hold.label.as_ref() == Some(&label)), are_kept);
}

/// A thousand holds, changed while they are copied: the next file is right when it counts.
#[test]
fn a_long_copy_and_changes_beside_it() {
    let mut world = World::new(Fault::None, ROOMY);
    for number in 0..2000_u32 {
        let name = format!("key-{number}");
        let acquire = take(name.as_bytes(), 1_000_000);
        assert!(world.ledger.room(world.moment(), 1) > 0);
        let Verdict::Now(Answer::Granted(grant)) =
            world.engine.ask(world.moment(), world.conn, acquire)
        else {
            // More keys than the table may have.
            break;
        };
        let (key, token) = (Key::new(name.as_bytes()).unwrap(), Some(grant.token));
        for _ in 0..3 {
            note_and_flush(&mut world);
            let renew = Request::Renew { key, token, ttl: Ttl::new(1_000_000) };
            let _ = world.engine.ask(world.moment(), world.conn, renew);
        }
        if number % 3 == 0 {
            let _ = world.engine.ask(world.moment(), world.conn, Request::Release { key, token });
        }
        note_and_flush(&mut world);
    }
    let census = world.engine.census();
    let held = census.locks.holders + census.semaphores.holders;
    assert!(held > 500 && world.ledger.last_generation > 3);
    assert_eq!(world.load().holds.len(), held);
    // All of them go.
    world.engine.disconnect(world.moment(), world.conn, AutoRelease::On);
    note_and_flush(&mut world);
    assert_eq!(world.load().holds.len(), 0);
    assert_eq!(world.ledger.live, 0);
}

/// The file is cut or changed behind the last write that was reported: only later entries are lost, and the start
/// says so.
#[test]
fn a_damaged_tail_is_said() {
    let (world, _) = run(Fault::None);
    let slot = world.ledger.slot();
    let at = usize::try_from(world.ledger.at).unwrap();
    world.ledger.disk().0.borrow_mut().now[slot][at] = 3;
    let loaded = world.load();
    assert_eq!((loaded.doubt, loaded.damage), (Some(Doubt::Damaged), Some(Damage::End)));
    assert_eq!(loaded.holds.len(), world.told.len());
    assert!(loaded.longest >= 20);
    world.ledger.disk().0.borrow_mut().now[slot][0] ^= 1;
    let loaded = world.load();
    assert_eq!((loaded.doubt, loaded.damage), (Some(Doubt::Damaged), Some(Damage::Newest)));
}

/// Under another boot it is unknown how long the machine was off, and only what was synced or ended in order is
/// believed to be all.
#[rstest]
#[case::at_the_start(1)]
#[case::after_what_would_have_been_the_end(1 << 50)]
fn after_a_reboot_each_lease_begins_again(#[case] now_micros: u64) {
    let mut world = World::new(Fault::None, ROOMY);
    let _ = world.engine.ask(world.moment(), world.conn, take(b"k", 20));
    note_and_flush(&mut world);
    let load = |world: &World| world.ledger.disk().load([8; 16], now_micros);
    let loaded = load(&world);
    assert_eq!(loaded.doubt, Some(Doubt::OtherBoot));
    assert_eq!((loaded.longest, loaded.holds[0].left_micros), (33, 20_000_000));
    let times = world.times();
    world.ledger.close(times).unwrap();
    let loaded = load(&world);
    assert_eq!((loaded.doubt, loaded.holds[0].left_micros), (None, 20_000_000));
}
