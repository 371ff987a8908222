//! Files with every kind of damage, and two more restarts after it: a promised lock is never given to another client,
//! and each start says what may be missing until that cannot matter any more.

use super::codec::{
    BootId, CHOICE_AT, Doubt, END_BYTES, HEADER_BYTES, INDEX_BYTES, Read, read_entry, read_header,
    read_index,
};
use super::ledger::{Disk, Health, Ledger};
use super::load::{Damage, Loaded};
use super::memory_tests::{Fault, Files, INDEX, Memory, loaded};
use super::promises::Origin;
use super::promises::{Synced, Times};
use super::{note_changes, resumed};
use crate::sample::{CAPS, Counting, seconds, take};
use leases::{Answer, ConnId, Engine, Key, Moment, Request, Token, Verdict};
use rstest::rstest;
use std::hash::RandomState;

const SECOND: u64 = 1_000_000;
/// The longest lease that a client asked for before.
const USUAL: u64 = 33;
/// A longer lease.
const LEASE: u64 = 60;
/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    InOrder,
    /// Killed, and the machine restarts; nothing that was written is lost.
    OtherBoot,
}

const ENDS: [End; 3] = [End::Killed, End::InOrder, End::OtherBoot];

/// A machine: its clock continues while servers come and go.
#[derive(Clone, Copy)]
struct Machine {
    micros: u64,
    booted: u64,
    boot: u8,
}

impl Machine {
    const fn new() -> Self {
        Self { micros: 100 * SECOND, booted: 0, boot: 7 }
    }

    const fn boot(self) -> BootId {
        [self.boot; 16]
    }

    const fn boot_micros(self) -> u64 {
        self.micros - self.booted
    }

    fn load(self, files: &Files) -> Loaded {
        loaded(files, self.boot(), self.boot_micros())
    }
}

struct Server {
    engine: Engine,
    ledger: Ledger<Memory>,
    disk: Memory,
    conn: ConnId,
    machine: Machine,
    begun: u64,
    /// The doubt that is shown in the log and in /ready.
    said: Option<Doubt>,
}

impl Server {
    fn start(files: Files, machine: Machine, synced: Synced) -> Self {
        Self::start_with(files, machine, synced, Fault::None)
    }

    fn start_with(files: Files, machine: Machine, synced: Synced, fault: Fault) -> Self {
        let found = machine.load(&files);
        let disk = Memory::new(files, fault, u64::MAX);
        let mut engine = Engine::new(CAPS, Counting(found.fence), RandomState::new());
        let times = Times { now: Moment::default(), boot_micros: machine.boot_micros() };
        let origin = Origin { boot: machine.boot(), dir: [3; 16], synced };
        let usual = seconds(USUAL);
        let said = found.wait(usual).map(|(doubt, _)| doubt);
        let ledger = resumed(disk.clone(), origin, found, &mut engine, usual, times);
        let conn = engine.connect(1);
        Self { engine, ledger, disk, conn, machine, begun: machine.micros, said }
    }

    fn times(&self) -> Times {
        let now = Moment::from_micros(self.machine.micros - self.begun);
        Times { now, boot_micros: self.machine.boot_micros() }
    }

    fn ask(&mut self, request: Request<'_>) -> Answer {
        let times = self.times();
        self.engine.advance(times.now);
        while self.engine.take_effect().is_some() {}
        assert!(self.ledger.room(times.now, 1) > 0);
        let verdict = self.engine.ask(times.now, self.conn, request);
        note_changes(&mut self.engine, &mut self.ledger, times);
        assert_eq!(self.ledger.flush(times), Ok(()));
        let Verdict::Now(answer) = verdict else { panic!("{verdict:?}") };
        answer
    }

    fn acquire(&mut self, name: &str, lease: u64) -> Option<Token> {
        let answer = self.ask(take(name.as_bytes(), lease));
        if let Answer::Granted(grant) = answer { Some(grant.token) } else { None }
    }

    /// Runs until this many files have been filled.
    fn fill(&mut self, generation: u64) {
        while self.ledger_generation() < generation {
            let token = self.acquire("short", USUAL).unwrap();
            let key = Key::new(b"short").unwrap();
            assert_eq!(self.ask(Request::Release { key, token: Some(token) }), Answer::Released);
            self.machine.micros += 1;
        }
    }

    fn ledger_generation(&self) -> u64 {
        self.machine.load(&self.files()).generation
    }

    fn files(&self) -> Files {
        self.disk.0.borrow().now.clone()
    }

    /// The content that the kernel has, and the content on the disk.
    fn both(&self) -> (Files, Files) {
        (self.files(), self.disk.0.borrow().durable.clone())
    }

    /// The files it leaves, and the machine a second later.
    fn end(mut self, end: End) -> (Files, Machine) {
        if end == End::InOrder {
            self.ledger.close(self.times()).unwrap();
        }
        let mut machine = self.machine;
        machine.micros += SECOND;
        if end == End::OtherBoot {
            machine.booted = machine.micros - 5;
            machine.boot += 1;
        }
        (self.files(), machine)
    }
}

/// A server whose last action was to promise a long lease, recorded only in its newest file.
struct Promised {
    server: Server,
    /// Its files at the time when one file less had been filled, and two less.
    older: [Files; 2],
    /// When the lease ends.
    over: u64,
}

fn promised() -> Promised {
    let mut server = Server::start(Files::default(), Machine::new(), Synced::No);
    assert_eq!(server.said, None);
    server.fill(2);
    let oldest = server.files();
    server.fill(3);
    let older = [server.files(), oldest];
    server.fill(4);
    server.acquire("long", LEASE).unwrap();
    let over = server.machine.micros + LEASE * SECOND;
    Promised { server, older, over }
}

/// The file that counts and the other one.
fn newest(files: &Files) -> (usize, usize) {
    let newest = 1 - Machine::new().load(files).next_slot;
    (newest, 1 - newest)
}

/// No other client gets the lock before the end of its lease.
fn is_kept(server: &mut Server, over: u64) {
    assert_eq!(server.acquire("long", 1), None);
    server.machine.micros = over - 1;
    assert_eq!(server.acquire("long", 1), None, "granted while it may be held");
}

/// Two more restarts, each in every way, after the one that meets the damage.
fn survives(files: &Files, machine: Machine, over: u64, expected: Option<Doubt>) {
    for first in ENDS {
        for second in ENDS {
            let server = Server::start(files.clone(), machine, Synced::No);
            if expected.is_some() {
                assert_eq!(server.said, expected);
            }
            let must = server.said.is_some();
            let (files, machine) = server.end(first);
            let server = Server::start(files, machine, Synced::No);
            assert_eq!(server.said.is_some(), must || first == End::OtherBoot, "{first:?}");
            let (files, machine) = server.end(second);
            let mut server = Server::start(files, machine, Synced::No);
            let is_unsure = must || first == End::OtherBoot || second == End::OtherBoot;
            assert_eq!(server.said.is_some(), is_unsure, "{first:?}, {second:?}");
            is_kept(&mut server, over);
        }
    }
}

#[test]
fn without_damage_nothing_is_doubted() {
    for end in [End::Killed, End::InOrder] {
        let Promised { server, over, .. } = promised();
        let (files, machine) = server.end(end);
        assert_eq!(machine.load(&files).doubt, None);
        survives(&files, machine, over, None);
        let mut server = Server::start(files, machine, Synced::No);
        assert!(server.acquire("other", 1).is_some());
        server.machine.micros = over;
        assert!(server.acquire("long", 1).is_some());
    }
}

/// Where the used part of a file ends; behind it is nothing, or old content.
fn used(file: &[u8]) -> usize {
    let Some((_, mut chain)) = read_header(file) else { return file.len() };
    let mut at = HEADER_BYTES;
    loop {
        (at, chain) = match read_entry(&file[at..], chain) {
            Read::Entry(_, length, next) => (at + length, next),
            Read::More(next) => (at + END_BYTES, next),
            Read::End | Read::Torn => return at + END_BYTES,
        };
    }
}

/// The bytes that mean something: of the index, one of its two places and the byte that says which.
fn counts(file: &[u8], at: usize) -> bool {
    match read_index(file) {
        Some((_, place)) => at == CHOICE_AT || at / INDEX_BYTES == place,
        None => at < used(file),
    }
}

#[test]
fn every_bit_counts() {
    let Promised { server, over, .. } = promised();
    let (files, machine) = server.end(End::Killed);
    let clean = machine.load(&files);
    let mut said = 0;
    let mut bent = files.clone();
    for file in 0..files.len() {
        let end = used(&files[file]);
        // Bytes behind the end of the entries mean nothing.
        for bit in 0..(end * 8 + 64).min(files[file].len() * 8) {
            bent[file][bit / 8] ^= 1 << (bit % 8);
            let loaded = machine.load(&bent);
            let is_seen = counts(&files[file], bit / 8);
            if is_seen {
                assert_eq!(loaded.doubt, Some(Doubt::Damaged), "file {file}, bit {bit}");
                said += 1;
            } else {
                assert_eq!(loaded, clean, "file {file}, bit {bit}");
            }
            if bit % 499 == 0 && is_seen {
                survives(&bent, machine, over, Some(Doubt::Damaged));
            }
            bent[file][bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(said > 30_000, "{said}");
}

#[test]
fn every_cut_is_seen() {
    let Promised { server, over, .. } = promised();
    let (files, machine) = server.end(End::Killed);
    let clean = machine.load(&files);
    for file in 0..files.len() {
        let end = used(&files[file]);
        for length in 0..files[file].len() {
            let mut cut = files.clone();
            cut[file].truncate(length);
            let loaded = machine.load(&cut);
            if length < end {
                assert_eq!(loaded.doubt, Some(Doubt::Damaged), "file {file}, {length} bytes");
            } else {
                assert_eq!(loaded, clean, "file {file}, {length} bytes");
            }
            if length % 61 == 0 && length < end {
                survives(&cut, machine, over, Some(Doubt::Damaged));
            }
        }
    }
}

/// The damage done to a file.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Missing,
    Zeroed,
    Noise,
    Older,
    OfAnother,
}

#[rstest]
#[case::newest(|files: &Files| newest(files).0, Damage::Newest)]
#[case::other(|files: &Files| newest(files).1, Damage::Other)]
#[case::index(|_: &Files| INDEX, Damage::Index)]
fn every_file_is_missed(
    #[case] which: fn(&Files) -> usize,
    #[case] damage: Damage,
    #[values(Fate::Missing, Fate::Zeroed, Fate::Noise, Fate::Older, Fate::OfAnother)] fate: Fate,
    #[values(End::Killed, End::InOrder)] end: End,
) {
    let Promised { server, older, over } = promised();
    let (mut files, machine) = server.end(end);
    let file = which(&files);
    let mut another = promised().server.files();
    // The same content, of another directory.
    another[file] = promised_elsewhere()[file].clone();
    match fate {
        Fate::Missing => files[file].clear(),
        Fate::Zeroed => files[file].fill(0),
        Fate::Noise => files[file].fill(0x5a),
        Fate::Older => {
            let is_other = usize::from(damage == Damage::Other);
            files[file].clone_from(&older[is_other][file]);
        }
        Fate::OfAnother => files[file].clone_from(&another[file]),
    }
    let is_index = damage == Damage::Index;
    let found = machine.load(&files);
    let expected = match fate {
        // A valid index, but of other files.
        Fate::Older | Fate::OfAnother if is_index => Damage::Newest,
        Fate::Missing | Fate::Zeroed | Fate::Noise | Fate::Older | Fate::OfAnother => damage,
    };
    assert_eq!(found.damage, Some(expected));
    survives(&files, machine, over, Some(Doubt::Damaged));
}

fn promised_elsewhere() -> Files {
    let mut machine = Machine::new();
    machine.boot = 9;
    let mut server = Server::start(Files::default(), machine, Synced::No);
    server.ledger = {
        let found = machine.load(&Files::default());
        let origin = Origin { boot: machine.boot(), dir: [4; 16], synced: Synced::No };
        let times = server.times();
        resumed(server.disk.clone(), origin, found, &mut server.engine, seconds(USUAL), times)
    };
    server.fill(4);
    server.files()
}

#[rstest]
#[case(0, 1)]
#[case(0, INDEX)]
#[case(1, INDEX)]
fn exchanged_files_are_seen(#[case] one: usize, #[case] two: usize) {
    let Promised { server, over, .. } = promised();
    let (mut files, machine) = server.end(End::Killed);
    files.swap(one, two);
    survives(&files, machine, over, Some(Doubt::Damaged));
}

/// A power cut: of each file, the disk has the synced content, or the content that was written last.
#[test]
fn a_power_cut_at_the_longest_lease() {
    let Promised { server, over, .. } = promised();
    let (now, durable) = server.both();
    let (_, machine) = server.end(End::OtherBoot);
    for mask in 0..8 {
        let pick = |file: usize| if mask >> file & 1 == 0 { &now } else { &durable }[file].clone();
        let files = [pick(0), pick(1), pick(INDEX)];
        let loaded = machine.load(&files);
        assert!(loaded.doubt.is_some(), "{mask}");
        assert!(loaded.longest >= LEASE, "{mask}: {}", loaded.longest);
        survives(&files, machine, over, None);
    }
}

/// A power cut after a long lease was given back: only leases that can be missing are waited for.
#[test]
fn a_power_cut_after_the_longest_lease() {
    let ages = 1 << 33;
    let mut server = Server::start(Files::default(), Machine::new(), Synced::No);
    server.acquire("long", LEASE).unwrap();
    let longest = |server: &Server| server.machine.load(&server.disk.0.borrow().durable).longest;
    let take_ages = |server: &mut Server| {
        let (key, token) = (Key::new(b"ages").unwrap(), server.acquire("ages", ages));
        assert_eq!(longest(server), ages, "it is on the disk before the client is told");
        server.acquire("short", 1);
        assert_eq!(longest(server), ages, "it is present");
        assert_eq!(server.ask(Request::Release { key, token }), Answer::Released);
    };
    take_ages(&mut server);
    for mask in 0..8 {
        let (now, durable) = server.both();
        let pick = |file: usize| if mask >> file & 1 == 0 { &now } else { &durable }[file].clone();
        let files = [pick(0), pick(1), pick(INDEX)];
        let mut machine = server.machine;
        machine.boot += 1;
        let loaded = machine.load(&files);
        assert_eq!((loaded.doubt, loaded.longest), (Some(Doubt::OtherBoot), LEASE), "{mask}");
    }
    // The next one is noted as well, but not each one at once: the disk is slow.
    take_ages(&mut server);
    server.acquire("short", 1);
    assert_eq!(longest(&server), ages);
    server.machine.micros += 60 * SECOND;
    server.acquire("short", 1);
    assert_eq!(longest(&server), USUAL, "the other lease is over, too");
}

/// The start that meets the damage dies at each of its writes: the next start still knows of the damage.
#[rstest]
#[case::newest(|files: &mut Files| files[newest(files).0].clear())]
#[case::both(|files: &mut Files| (files[0].clear(), files[1].clear()).1)]
#[case::index(|files: &mut Files| files[INDEX].clear())]
#[case::end(|files: &mut Files| {
    let newest = newest(files).0;
    let end = used(&files[newest]);
    files[newest].truncate(end - 1);
})]
fn a_start_that_dies_forgets_no_damage(#[case] damage: fn(&mut Files)) {
    let Promised { server, over, .. } = promised();
    let (mut files, machine) = server.end(End::Killed);
    damage(&mut files);
    let mut deaths = 0;
    for writes in 0.. {
        let server = Server::start_with(files.clone(), machine, Synced::No, Fault::Death(writes));
        assert_eq!(server.said, Some(Doubt::Damaged));
        if server.ledger.health() == Health::Good {
            break;
        }
        deaths += 1;
        let (files, machine) = server.end(End::Killed);
        survives(&files, machine, over, Some(Doubt::Damaged));
    }
    assert!(deaths > 3, "{deaths}");
}

/// A wait ends once: later starts do not begin it again, and do not mention it.
#[test]
fn a_wait_ends() {
    let Promised { server, over, .. } = promised();
    let (mut files, mut machine) = server.end(End::Killed);
    let newest = newest(&files).0;
    files[newest].clear();
    let begun = machine.micros;
    for _ in 0..20 {
        let server = Server::start(files, machine, Synced::No);
        assert_eq!(server.said, Some(Doubt::Damaged));
        (files, machine) = server.end(End::Killed);
    }
    machine.micros = begun + LEASE * SECOND;
    assert!(machine.micros >= over);
    let mut server = Server::start(files, machine, Synced::No);
    assert_eq!(server.said, None);
    assert!(server.acquire("long", 1).is_some());
    // Only present leases count: an earlier long lease costs nothing.
    let (files, machine) = server.end(End::OtherBoot);
    assert_eq!(machine.load(&files).longest, USUAL);
}

/// With synced answers, another boot alone is no reason for doubt, but damage is.
#[test]
fn synced_files_are_believed_after_a_power_cut() {
    let mut server = Server::start(Files::default(), Machine::new(), Synced::Yes);
    server.fill(3);
    let token = server.acquire("long", LEASE).unwrap();
    let over = server.machine.micros + LEASE * SECOND;
    let slot = server.ledger.slot();
    server.disk.sync(slot).unwrap();
    let durable = server.disk.0.borrow().durable.clone();
    let (_, machine) = server.end(End::OtherBoot);
    let found = machine.load(&durable);
    assert_eq!((found.doubt, found.damage), (None, None));
    assert_eq!(found.holds.iter().map(|hold| hold.token).collect::<Vec<_>>(), [token]);
    let mut files = durable;
    files[slot].clear();
    survives(&files, machine, over, Some(Doubt::Damaged));
}

/// Few requests for longer leases cost a write to the disk, however many there are.
#[test]
fn few_leases_are_noted() {
    let mut server = Server::start(Files::default(), Machine::new(), Synced::No);
    let mut notes = 0;
    for lease in 1..5000 {
        let before = server.disk.0.borrow().durable[INDEX].clone();
        server.acquire(&format!("k{}", lease % 7), lease);
        server.machine.micros += 10_000 * SECOND;
        notes += usize::from(before != server.disk.0.borrow().durable[INDEX]);
    }
    assert!((40..80).contains(&notes), "{notes}");
}
