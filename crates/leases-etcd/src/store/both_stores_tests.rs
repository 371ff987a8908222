//! The owner of a hold, and its end: the store in memory and several front-ends of the one in etcd
//! are told the same and answer the same, in virtual time.

use super::keys::Front;
use super::stand_in::Etcd;
use super::txn::Session;
use super::{Engine, Inner, Settings};
use crate::sample::{CAPS, Counting, take};
use leases::{
    Answer, AutoRelease, Caps, Claim, ConnId, Effect, Key, Keys, Moment, Progress, Refusal,
    Request, Seconds, Token, Ttl, Verdict,
};
use leases::{Host, Inlet};
use proptest::prelude::*;
use rstest::rstest;
use std::collections::HashSet;
use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const FRONTS: usize = 3;
/// Connections of each front-end.
const SEATS: usize = 2;
const KEYS: usize = 2;
/// Time goes in these steps; so does what happens.
const TICK_MILLIS: u64 = 100;
/// More turns of the loop than anything takes.
const TURNS: usize = 200;

/// The clock of all, in milliseconds.
#[derive(Default)]
pub(super) struct Clock(pub(super) AtomicU64);

impl Host for Clock {
    fn stirred(&self) {}

    fn now(&self) -> Moment {
        Moment::from_micros(self.0.load(Ordering::Relaxed) * 1000)
    }
}

/// One thing that happens, at one seat or at none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Take {
        seat: usize,
        key: usize,
        ttl: u64,
        claim: Claim,
    },
    /// All keys or none.
    TakeAll {
        seat: usize,
        ttl: u64,
    },
    Renew {
        seat: usize,
        key: usize,
        ttl: u64,
    },
    Release {
        seat: usize,
        key: usize,
    },
    /// The connection ends; another one is there at once.
    Leave {
        seat: usize,
        auto: AutoRelease,
    },
    Pass {
        tenths: u64,
    },
    /// Time goes on, and one front-end does not get to look at it before it is asked next.
    Stall {
        front: usize,
        tenths: u64,
    },
    /// The same, and a renewal comes.
    Late {
        seat: usize,
        key: usize,
        ttl: u64,
        tenths: u64,
    },
}

/// The answers, without tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Granted,
    Busy,
    Ok,
    NotHeld,
}

fn word(answer: &Answer) -> Word {
    match answer {
        Answer::Granted(_) | Answer::All(_) => Word::Granted,
        Answer::TimedOut => Word::Busy,
        Answer::Released | Answer::Renewed(_) => Word::Ok,
        Answer::Refused(Refusal::NotHeld) => Word::NotHeld,
        other @ (Answer::Acquired(_) | Answer::Queued | Answer::Refused(_)) => panic!("{other:?}"),
    }
}

/// One client in both worlds.
struct Seat {
    memory: ConnId,
    etcd: ConnId,
}

struct World {
    clock: Arc<Clock>,
    memory: leases::Engine,
    fronts: Vec<Engine>,
    seats: Vec<Seat>,
    serial: u64,
    /// The token granted last for each key, as each store names it.
    tokens: [Option<(Token, Token)>; KEYS],
}

impl World {
    fn new(grace: u64) -> Self {
        let caps = Caps { disconnect_grace: Seconds::new(grace).unwrap(), ..CAPS };
        let (clock, etcd) = (Arc::new(Clock::default()), Etcd::default());
        let mut fronts: Vec<Engine> = (0..FRONTS).map(|_| front(caps, &clock, &etcd)).collect();
        let all: HashSet<Front> = fronts.iter().map(|front| front.inner.front).collect();
        fronts.iter_mut().for_each(|front| front.inner.state().fronts.clone_from(&all));
        let memory = leases::Engine::new(caps, Counting(0), RandomState::new());
        let tokens = [None; KEYS];
        let mut world = Self { clock, memory, fronts, seats: Vec::new(), serial: 0, tokens };
        world.seats = (0..FRONTS * SEATS).map(|seat| world.connect(seat)).collect();
        world
    }

    fn connect(&mut self, seat: usize) -> Seat {
        self.serial += 1;
        let etcd = self.fronts[seat % FRONTS].connect(self.serial);
        Seat { memory: self.memory.connect(self.serial), etcd }
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Lets all that is under way come to its end. Nothing here takes time.
    async fn settle(&self) {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Everybody does what is due, but for a front-end that does not get to it.
    async fn turn(&mut self, stalled: Option<usize>) {
        let now = self.now();
        self.memory.advance(now);
        while self.memory.take_effect().is_some() {}
        for (number, front) in self.fronts.iter_mut().enumerate() {
            if stalled != Some(number) {
                front.advance(now);
            }
        }
        self.settle().await;
    }

    async fn pass(&mut self, tenths: u64, stalled: Option<usize>) {
        for _ in 0..tenths {
            self.clock.0.fetch_add(TICK_MILLIS, Ordering::Relaxed);
            self.turn(stalled).await;
        }
    }

    async fn ask(&mut self, seat: usize, memory: Request<'_>, etcd: Request<'_>) -> Word {
        let (now, Seat { memory: memory_id, etcd: etcd_id }) = (self.now(), &self.seats[seat]);
        let Verdict::Now(expected) = self.memory.ask(now, *memory_id, memory) else {
            panic!("nobody waits")
        };
        let front = &mut self.fronts[seat % FRONTS];
        assert_eq!(front.ask(now, *etcd_id, etcd), Verdict::Later);
        let mut found = None;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
            while let Some(effect) = front.take_effect() {
                match effect {
                    Effect::Answer(id, answer) if id == *etcd_id => found = Some(answer),
                    Effect::Answer(..) => panic!("nobody else asked"),
                    Effect::Wake(_)
                    | Effect::Expired { .. }
                    | Effect::Taken(..)
                    | Effect::Moved(_) => {}
                }
            }
        }
        let found = found.expect("an answer");
        assert_eq!(found.grants().len(), expected.grants().len(), "{etcd:?}");
        let grants = expected.grants().iter().zip(found.grants());
        for (key, (one, other)) in memory.keys().iter().zip(grants) {
            let key = usize::from(key.bytes()[0] - b'0');
            self.tokens[key] = Some((one.token, other.token));
        }
        let word = word(&found);
        assert_eq!(word, self::word(&expected), "{etcd:?}");
        word
    }

    /// Nothing where there is nobody to do it.
    async fn apply(&mut self, event: Event) -> Option<Word> {
        const NAMES: [&[u8]; KEYS] = [b"0", b"1"];
        let key = |key: usize| Key::new(NAMES[key]).unwrap();
        match event {
            Event::Pass { tenths } => {
                self.pass(tenths, None).await;
                None
            }
            Event::Stall { front, tenths } => {
                self.pass(tenths, Some(front)).await;
                None
            }
            Event::Late { seat, key, ttl, tenths } => {
                self.pass(tenths, Some(seat % FRONTS)).await;
                let word = Box::pin(self.apply(Event::Renew { seat, key, ttl })).await;
                self.turn(None).await;
                word
            }
            Event::Leave { seat, auto } => {
                self.leave(seat, auto).await;
                None
            }
            Event::Take { seat, key: k, ttl, claim } => {
                let (timeout, ttl) = (Seconds::ZERO, Ttl::new(ttl));
                let request = Request::Acquire { key: key(k), claim, timeout, ttl };
                Some(self.ask(seat, request, request).await)
            }
            Event::TakeAll { seat, ttl } => {
                let (keys, ttl) = (Keys::new(b"1 0").unwrap(), Ttl::new(ttl));
                let request = Request::AcquireAll { keys, ttl };
                Some(self.ask(seat, request, request).await)
            }
            Event::Renew { seat, key: k, ttl } => {
                let (one, other) = self.tokens[k]?;
                let request =
                    |token| Request::Renew { key: key(k), token: Some(token), ttl: Ttl::new(ttl) };
                Some(self.ask(seat, request(one), request(other)).await)
            }
            Event::Release { seat, key: k } => {
                let (one, other) = self.tokens[k]?;
                let request = |token| Request::Release { key: key(k), token: Some(token) };
                Some(self.ask(seat, request(one), request(other)).await)
            }
        }
    }

    async fn leave(&mut self, seat: usize, auto: AutoRelease) {
        let now = self.now();
        let next = self.connect(seat);
        let old = std::mem::replace(&mut self.seats[seat], next);
        self.memory.disconnect(now, old.memory, auto);
        for _ in 0..TURNS {
            if self.fronts[seat % FRONTS].disconnect(now, old.etcd, auto) == Progress::Done {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.settle().await;
    }
}

pub(super) fn front(caps: Caps, clock: &Arc<Clock>, etcd: &Etcd) -> Engine {
    let settings = Settings { members: Vec::new(), prefix: String::new(), user: None };
    let engine = Engine::new(settings, caps);
    let clock: Weak<dyn Host> = Arc::downgrade(&(Arc::clone(clock) as Arc<dyn Host>));
    assert!(engine.inner.inlet.set(Inlet::new(clock)).is_ok());
    assert!(engine.inner.client.stand_in.set(etcd.clone()).is_ok());
    register(&engine.inner, etcd, 1);
    engine
}

fn register(inner: &Inner, etcd: &Etcd, lease: i64) {
    let answer = etcd.txn(&super::txn::register(&inner.names.front(inner.front), lease));
    let mut state = inner.state();
    state.session = Some(Session { lease, revision: answer.header.unwrap().revision });
    state.begun = true;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// `t1` take at seat 1, `b1` take both keys, `s1` share, `n1` renew the last one, `r1` release, `x1` its connection ends (`o1`: with auto-release
/// off), `.5` half a second, `!5` the same and the first front-end does not see it yet. Seats 0 and 3 are at
/// the first one, 1 and 4, 2 and 5. What follows `=` is the answer.
fn play(grace: u64, lease: u64, script: &str) {
    runtime().block_on(async {
        let mut world = World::new(grace);
        for step in script.split(' ') {
            let (text, want) = step.split_once('=').map_or((step, None), |(t, w)| (t, Some(w)));
            let number: u64 = text[1..].parse().unwrap();
            let seat = usize::try_from(number).unwrap();
            let event = match &text[..1] {
                "t" => Event::Take { seat, key: 0, ttl: lease, claim: Claim::LOCK },
                "b" => Event::TakeAll { seat, ttl: lease },
                "s" => Event::Take { seat, key: 0, ttl: lease, claim: Claim::Shared },
                "n" => Event::Renew { seat, key: 0, ttl: lease },
                "r" => Event::Release { seat, key: 0 },
                "x" => Event::Leave { seat, auto: AutoRelease::On },
                "o" => Event::Leave { seat, auto: AutoRelease::Off },
                "." => Event::Pass { tenths: number },
                "!" => Event::Stall { front: 0, tenths: number },
                other => panic!("{other}"),
            };
            let found = world.apply(event).await.map(|word| match word {
                Word::Granted => "yes",
                Word::Busy => "busy",
                Word::Ok => "ok",
                Word::NotHeld => "gone",
            });
            assert_eq!(found, want, "{step} of {script}");
        }
    });
}

#[rstest]
#[case::the_owner_alone(0, 60, "t0=yes x0 n1=gone t1=yes")]
#[case::came_back_before(0, 60, "t0=yes n1=ok x0 t2=busy x1 t2=yes")]
#[case::passed_by(0, 60, "t0=yes n1=ok x1 t2=busy x0 t2=yes")]
#[case::the_last_one_counts(0, 60, "t0=yes n1=ok n2=ok x1 x0 t4=busy x2 t4=yes")]
#[case::the_grace(2, 60, "t0=yes x0 .19 t1=busy .2 t1=yes")]
#[case::renewed_in_the_grace(2, 60, "t0=yes x0 .10 n0=ok .30 t1=busy x0 .19 t1=busy .2 t1=yes")]
#[case::renewed_elsewhere_in_the_grace(2, 60, "t0=yes x0 .10 n1=ok .30 t2=busy n1=ok")]
#[case::an_old_grace(5, 60, "t0=yes x0 .10 n1=ok .20 x1 .30 t2=busy .19 t2=busy .2 t2=yes")]
#[case::an_old_grace_after_a_new_one(2, 60, "t0=yes x0 .10 n1=ok x1 .12 n2=ok .30 t0=busy")]
#[case::two_graces(3, 60, "t0=yes x0 .20 n1=ok x1 .20 n0=ok x0 .29 t5=busy .2 t5=yes")]
#[case::the_renewer_gets_the_grace(2, 60, "t0=yes n1=ok x0 .50 t2=busy x1 .19 t2=busy .2 t2=yes")]
#[case::the_lease_ends_first(9, 1, "t0=yes x0 .9 t1=busy .2 t1=yes")]
#[case::the_lease_goes_on_elsewhere(0, 2, "t0=yes n1=ok .15 n0=ok .15 n1=ok .19 t2=busy .2 t2=yes")]
#[case::off(0, 3, "t0=yes o0 .29 t1=busy .2 t1=yes")]
#[case::off_and_passed_by(0, 3, "t0=yes o0 n1=ok x1 .29 t2=busy .2 t2=yes")]
#[case::off_and_came_back(0, 60, "t0=yes o0 n1=ok n1=ok x1 t2=yes")]
#[case::released_elsewhere(2, 60, "t0=yes x0 r1=ok r0=gone n0=gone t0=yes .30 n1=ok x0 .10 r2=ok")]
#[case::renewed_elsewhere_in_a_stall(0, 2, "t0=yes .10 n1=ok !12 n0=ok .18 t2=busy")]
#[case::released_here_after_a_stall(0, 2, "t0=yes .10 n1=ok !12 r0=ok t2=yes")]
#[case::over_in_a_stall(0, 1, "t0=yes !11 n0=gone t1=yes")]
#[case::released_too_late(0, 1, "t0=yes !11 r0=gone t1=yes")]
#[case::a_grace_over_in_a_stall(2, 60, "t0=yes x0 !21 n0=gone t1=yes")]
#[case::over(0, 1, "t0=yes n1=ok .11 n0=gone r0=gone n1=gone t2=yes")]
#[case::readers(0, 60, "s0=yes s1=yes t2=busy x0 t2=busy x1 t2=yes s0=busy x2 s0=yes s1=yes")]
#[case::a_reader_came_back(0, 60, "s0=yes s1=yes n2=ok x1 t4=busy x0 t4=busy x2 t4=yes")]
#[case::a_reader_is_lost(0, 2, "s0=yes .10 s1=yes .11 n1=ok t2=busy .19 t2=busy .2 t2=yes")]
#[case::graces_of_readers(
    2,
    60,
    "s0=yes x0 .10 s1=yes x1 .12 t2=busy s2=yes x2 .19 t2=busy .2 t2=yes"
)]
#[case::both_or_none(
    0,
    60,
    "t0=yes b1=busy r0=ok b1=yes t0=busy b2=busy r1=ok b2=busy t0=yes x1 r0=ok b2=yes"
)]
#[case::both_end_with_their_owner(0, 60, "b0=yes n1=ok x0 b2=busy t3=busy x1 b2=yes")]
#[case::the_grace_of_both(2, 60, "b0=yes x0 .19 b1=busy t1=busy .2 b1=yes")]
#[case::the_leases_of_both(0, 2, "b0=yes .10 n1=ok .11 t2=busy b2=busy .8 b2=busy .2 b2=yes")]
#[case::not_beside_readers(0, 60, "s0=yes b1=busy s2=yes x0 b1=busy x2 b1=yes s0=busy")]
#[case::a_reader_over_in_a_stall(0, 1, "s0=yes !11 n0=gone t1=yes")]
fn the_stores_in_memory_and_on_etcd_answer_alike(
    #[case] grace: u64,
    #[case] lease: u64,
    #[case] script: &str,
) {
    play(grace, lease, script);
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let seats = 0..FRONTS * SEATS;
    let claims = prop_oneof![Just(Claim::LOCK), Just(Claim::Shared)];
    let event = prop_oneof![
        4 => (seats.clone(), 0..KEYS, 1u64..7, claims)
            .prop_map(|(seat, key, ttl, claim)| Event::Take { seat, key, ttl, claim }),
        2 => (seats.clone(), 1u64..7).prop_map(|(seat, ttl)| Event::TakeAll { seat, ttl }),
        6 => (seats.clone(), 0..KEYS, 1u64..7).prop_map(|(seat, key, ttl)| Event::Renew { seat, key, ttl }),
        1 => (seats.clone(), 0..KEYS).prop_map(|(seat, key)| Event::Release { seat, key }),
        5 => seats.clone().prop_map(|seat| Event::Leave { seat, auto: AutoRelease::On }),
        1 => seats.clone().prop_map(|seat| Event::Leave { seat, auto: AutoRelease::Off }),
        5 => (1u64..30).prop_map(|tenths| Event::Pass { tenths }),
        2 => (seats.clone(), 0..KEYS, 1u64..7, 1u64..30)
            .prop_map(|(seat, key, ttl, tenths)| Event::Late { seat, key, ttl, tenths }),
    ];
    prop::collection::vec(event, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn both_stores_agree(events in events(), grace in 0u64..5) {
        runtime().block_on(async {
            let mut world = World::new(grace);
            for event in events {
                world.apply(event).await;
            }
        });
    }
}

/// A create's answer was lost, and then the session: nobody has its ticket, which would keep the key
/// for a whole lease.
#[test]
fn a_ticket_nobody_knows_of_goes_also_after_its_session() {
    runtime().block_on(async {
        let (clock, etcd) = (Arc::new(Clock::default()), Etcd::default());
        let front = front(CAPS, &clock, &etcd);
        let inner = &front.inner;
        let old = inner.state().session.unwrap();
        let tickets: Vec<(Arc<[u8]>, u64)> = vec![(b"k"[..].into(), 7), (b"l"[..].into(), 8)];
        let front = inner.names.front(inner.front);
        etcd.txn(&super::together::create_all(&inner.names, &front, old, &tickets, b"held", false));
        let are_there =
            || tickets.iter().all(|(key, nonce)| etcd.has(&inner.names.ticket(key, *nonce)));
        let are_gone =
            || !tickets.iter().any(|(key, nonce)| etcd.has(&inner.names.ticket(key, *nonce)));
        assert!(are_there());
        etcd.end_lease(old.lease);
        inner.state().session = None;
        let until = clock.now().after_micros(60_000_000);
        let bury = tokio::spawn(Arc::clone(inner).bury(tickets.clone(), until));
        tokio::task::yield_now().await;
        register(inner, &etcd, 2);
        assert_eq!(bury.await.unwrap(), Ok(()));
        assert!(are_gone());
    });
}

/// As many keys as there may be: none of several is taken, nor left behind, until idle ones make room.
#[test]
fn several_keys_are_not_too_many() {
    let caps = Caps { max_locks: 3, ..CAPS };
    runtime().block_on(async {
        let (clock, etcd) = (Arc::new(Clock::default()), Etcd::default());
        let mut front = front(caps, &clock, &etcd);
        let id = front.connect(1);
        let Answer::Granted(x) = answer_to(&mut front, id, take(b"x", 33)).await else { panic!() };
        let Answer::Granted(y) = answer_to(&mut front, id, take(b"y", 33)).await else { panic!() };
        let all = Request::AcquireAll { keys: Keys::new(b"a b").unwrap(), ttl: None };
        let full = Answer::Refused(Refusal::MaxLocks);
        assert_eq!(answer_to(&mut front, id, all).await, full);
        let names = front.inner.names.clone();
        for key in [b"a", b"b"] {
            let tickets = names.tickets(key);
            let range = super::rpc::RangeRequest {
                key: tickets.from,
                range_end: tickets.to,
                ..Default::default()
            };
            assert!(etcd.range(&range).kvs.is_empty() && !etcd.has(&names.limit(key)));
        }
        for (key, grant) in [(b"x", x), (b"y", y)] {
            let request =
                Request::Release { key: Key::new(key).unwrap(), token: Some(grant.token) };
            assert_eq!(answer_to(&mut front, id, request).await, Answer::Released);
        }
        assert_eq!(answer_to(&mut front, id, all).await.grants().len(), 2);
        let state = front.inner.state();
        assert_eq!((state.tickets.len(), state.counters.grants), (2, 4));
    });
}

async fn answer_to(front: &mut Engine, id: ConnId, request: Request<'_>) -> Answer {
    assert_eq!(front.ask(front.inner.now(), id, request), Verdict::Later);
    for _ in 0..TURNS * 10 {
        tokio::task::yield_now().await;
        if let Some(Effect::Answer(_, answer)) = front.take_effect() {
            return answer;
        }
    }
    panic!("no answer to {request:?}")
}

/// A key more costs etcd no more than the one before: it is not asked to count all of them each time.
#[test]
fn many_new_keys_are_seldom_counted() {
    const MANY: usize = 1000;
    let caps =
        Caps { max_locks: 200_000, max_entries: MANY, max_entries_per_connection: MANY, ..CAPS };
    runtime().block_on(async {
        let (clock, etcd) = (Arc::new(Clock::default()), Etcd::default());
        let mut front = front(caps, &clock, &etcd);
        let id = front.connect(1);
        for number in 0..MANY {
            let name = number.to_string();
            let request = take(name.as_bytes(), 33);
            assert_eq!(front.ask(clock.now(), id, request), Verdict::Later);
            let mut answer = None;
            while answer.is_none() {
                tokio::task::yield_now().await;
                answer = front.take_effect();
            }
            assert!(matches!(answer, Some(Effect::Answer(_, Answer::Granted(_)))), "{answer:?}");
        }
        assert!(etcd.counted() < MANY, "{} keys counted", etcd.counted());
    });
}
